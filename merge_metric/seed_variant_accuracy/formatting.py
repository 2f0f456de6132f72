"""How a value becomes text, wherever one is shown: on pages, in terminals, in LaTeX."""

from typing import Any, Final, Literal

Kind = Literal[
    "text",
    "passage",
    "count",
    "share",
    "points",
    "threshold",
    "gain",
    "fraction",
    "change",
    "number",
    "correlation",
    "p_value",
]
"""Kind of a value. A share is of 1 and shown in percent, a threshold is in percent already; points
and gain are their signed differences. A fraction is shown as it is, change is its signed
difference. A passage is a longer text, which in plain text goes below its row."""

DECIMALS: Final = 1
"""Decimals of what is shown in percent, and of differences of it."""

HUNDRED: Final = f"{100:.{DECIMALS}f}"
"""How 100 % is shown; in narrow places without decimals."""

_FORMATS: Final[dict[Kind, tuple[int, str]]] = {
    "count": (1, ","),
    "share": (100, f"z.{DECIMALS}f"),
    "points": (100, f"+z.{DECIMALS}f"),
    "threshold": (1, f"z.{DECIMALS}f"),
    "gain": (1, f"+z.{DECIMALS}f"),
    "fraction": (1, "z.3f"),
    "change": (1, "+z.3f"),
    "number": (1, "z.2f"),
    "correlation": (1, "+z.2f"),
    "p_value": (1, "z.3f"),
}
"""Kind of number → what it is multiplied by, and its format; z: no "−0.0"."""

SMALL_P: Final = 0.001
"""p-values below are shown as such."""


def show_value(value: Any, kind: Kind, *, signed: bool = True) -> str:
    """Write a value; a dash for none.

    >>> [show_value(0.0512, kind) for kind in ("share", "points", "fraction", "number")]
    ['5.1', '+5.1', '0.051', '0.05']
    >>> show_value(-0.0512, "points", signed=False), show_value(-0.0001, "points")
    ('−5.1', '+0.0')
    >>> show_value(None, "share"), show_value(1234, "count"), show_value("a-b", "text")
    ('–', '1,234', 'a-b')
    """
    if value is None:
        return "–"
    if kind not in _FORMATS:
        return str(value)
    if kind == "p_value" and value < SMALL_P:
        return f"<{SMALL_P}"
    factor, text = _FORMATS[kind]
    number = value if factor == 1 else factor * value
    return format(number, text if signed else text.removeprefix("+")).replace("-", "−")


def as_percent(share: float) -> str:
    """Write a share in percent, as sentences have it.

    >>> as_percent(0.0512)
    '5.1%'
    """
    return f"{show_value(share, 'share')}%"
