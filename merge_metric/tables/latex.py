"""Tables in LaTeX, which break across pages; a table with many columns becomes several."""

import math
import re
from collections.abc import Sequence
from typing import Final

from merge_metric.tables.cells import Column, Row

PACKAGES: Final = (r"\usepackage[T1]{fontenc}", r"\usepackage{array,booktabs,xltabular}")
"""Preamble lines that load the LaTeX packages of the tables."""

_LONG: Final = 20
"""Length of a text, in characters, from which its column is wrapped."""

_LINE: Final = 80
"""Characters of a line of `article` at \\footnotesize, by which columns are shared out."""


def to_latex(
    name: str,
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    notes: Sequence[str] = (),
) -> str:
    """Render one or several long tables, each with all text columns and some numeric ones."""
    texts = [column for column in columns if column.is_text]
    numbers = [column for column in columns if not column.is_text]
    shown = [column for column in texts if column.kind != "passage"]
    room = _LINE - sum(min(_longest(column, rows), _LONG) for column in shown)
    needed = sum(_longest(column, rows) for column in numbers)
    n_parts = min(len(numbers), math.ceil(needed / max(room, 1)))
    if n_parts < 2:
        return _longtable(name, (title, *notes), columns, rows)
    size = math.ceil(len(numbers) / n_parts)
    parts = [[*texts, *numbers[at : at + size]] for at in range(0, len(numbers), size)]
    return "\n\n".join(
        _longtable(f"{name}-{number}", (f"{title} ({number} of {len(parts)})", *notes), part, rows)
        for number, part in enumerate(parts, start=1)
    )


def _longest(column: Column, rows: Sequence[Row]) -> float:
    """Return the width of a column in characters, with its gap; intervals are in smaller type."""
    texts = [len(column.heading), *(len(column.show(row)) for row in rows)]
    return 1.5 + max([*texts, *(0.88 * len(column.show_interval(row)) for row in rows)])


def _longtable(
    name: str, caption: Sequence[str], columns: Sequence[Column], rows: Sequence[Row]
) -> str:
    shown = [column for column in columns if column.kind != "passage"]
    passages = [column for column in columns if column.kind == "passage"]
    wrapped = [
        column
        for column in shown
        if column.kind == "text" and any(len(column.show(row)) > _LONG for row in rows)
    ]
    if passages and shown[0] not in wrapped:
        wrapped.append(shown[0])
    cells = []
    for row in rows:
        first, *others = (
            # Names, such as those of models and seeds, may be broken at punctuation too.
            re.sub(r"/|:|\.|\\_", r"\g<0>\\allowbreak{}", escape(column.show(row)))
            if column in wrapped
            else escape(column.show(row))
            for column in shown
        )
        for passage in passages:
            text = escape(passage.show(row))
            first += rf"\newline \textit{{{escape(passage.heading)}:}} {text}"
        lines = [_line([first, *others])]
        intervals = [column.show_interval(row) for column in shown]
        if any(intervals):  # interval below its value, on the same page
            lines[0] += "*"
            lines.append(_line([text and rf"{{\scriptsize {escape(text)}}}" for text in intervals]))
        cells.append(lines)
    environment = "xltabular" if wrapped else "longtable"
    width = r"{\linewidth}" if wrapped else ""
    letters = "".join(
        r">{\raggedright\arraybackslash}X" if column in wrapped else "l" if column.is_text else "r"
        for column in shown
    )
    heads = [r"\toprule", _line([escape(column.heading) for column in shown]), r"\midrule"]
    sentences = [escape(text if text.endswith((".", "!", "?")) else f"{text}.") for text in caption]
    with_space = wrapped or any(len(lines) > 1 for lines in cells)
    space = "\n\\addlinespace\n" if with_space else "\n"
    return "\n".join(
        [
            r"\begingroup\footnotesize",
            r"\setlength{\tabcolsep}{3pt}\setlength{\LTcapwidth}{\linewidth}",
            rf"\begin{{{environment}}}{width}{{@{{}}{letters}@{{}}}}",
            rf"\caption{{{' '.join(sentences)}}}\label{{tab:{name}}}\\",
            *(*heads, r"\endfirsthead"),
            *(*heads, r"\endhead"),
            *(r"\bottomrule", r"\endfoot"),
            *([space.join(map("\n".join, cells))] if cells else ()),
            rf"\end{{{environment}}}",
            r"\endgroup",
        ]
    )


def _line(cells: Sequence[str]) -> str:
    line = " & ".join(cells)
    # A bracket or asterisk after the \\ of the line above would be its argument.
    return ("{}" if line.startswith(("[", "*")) else "") + line + r" \\"


# --- Escapes ---

_MATHS: Final = {
    "⟨": r"\langle", "⟩": r"\rangle", "−": "-", "±": r"\pm", "×": r"\times", "·": r"\cdot",
    "≤": r"\leq", "≥": r"\geq", "≠": r"\neq", "≈": r"\approx", "∩": r"\cap", "∪": r"\cup",
    "←": r"\leftarrow", "→": r"\rightarrow", "↔": r"\leftrightarrow", "²": "^2", "′": "'",
    "Δ": r"\Delta", "δ": r"\delta", "α": r"\alpha", "κ": r"\kappa", "λ": r"\lambda",
    "τ": r"\tau", "ρ": r"\rho", "σ": r"\sigma",
}  # fmt: skip

_COMMANDS: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{"‘": "`", "’": "'", "“": "``", "”": "''", "…": r"\ldots{}", "†": r"\dag{}"},
    **{character: f"${maths}$" for character, maths in _MATHS.items()},
}

_LETTERS: Final = frozenset(map(chr, range(0xA1, 0x180))) - set("ĦħĸĿŀŉŦŧſ")
"""Non-ASCII letters that pdflatex sets with the fonts of `PACKAGES`."""

_DASHES: Final = {"–": "--", "—": "---"}


def escape(text: str) -> str:
    r"""Escape text for pdflatex, on one line; unsupported characters become their numbers.

    >>> print(escape("50 % of a_b, −3–5, --top, 猫"))
    50 \% of a\_b, $-$3--5, -{}-top, [U+732B]
    """
    escaped = "".join(
        _COMMANDS[character]
        if character in _COMMANDS
        else character
        if character.isascii() or character in _LETTERS or character in _DASHES
        else f"[U+{ord(character):04X}]"
        for character in " ".join(text.split())
    )
    escaped = escaped.replace("--", "-{}-")  # keep "--" from becoming a dash
    for dash, hyphens in _DASHES.items():
        escaped = escaped.replace(dash, hyphens)
    return re.sub(r"\br\\_([rs])\b", r"$r_\1$", escaped)  # the fooling rates
