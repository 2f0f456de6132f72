"""The SV curve of a result as an SVG drawing with a legend; `app_view` has its style."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Final

from .app_view import Result, percent, threshold

WIDTH: Final = 480
HEIGHT: Final = 320
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 10, 44
"""Margins around the plot, for the numbers and names of its axes."""


def curve(result: Result, correctness_threshold: int) -> str:
    """The SV curve with S, MC and the chosen threshold: an SVG drawing and its legend."""
    accuracy = result["sv_curve"]["accuracy"]
    s, mc = result["seed_accuracy"], result["matching_threshold"]
    at_mc, at_ct = accuracy[round(mc) - 1], accuracy[correctness_threshold - 1]
    described = (
        f"SV accuracy falls from {percent(accuracy[0])} at threshold 1 % to "
        f"{percent(accuracy[-1])} at 100 %; S is {percent(s)}, MC {threshold(mc)}."
    )
    drawing = [
        *_axes(),
        _band(result["sv_curve"]),
        _line("seeds", _x(0), _y(s), _x(100), _y(s)),
        _line("chosen", _x(correctness_threshold), _y(0), _x(correctness_threshold), _y(1)),
        f"<polyline class=sv points='{_points(_steps(accuracy))}' />",
        f"<path class=mc d='{_diamond(_x(mc), _y(at_mc))}' />",
        *_hints(result["sv_curve"]),
    ]
    legend = (
        ("sv", "SV accuracy" + (", band: 95 % interval" if "low" in result["sv_curve"] else "")),
        ("seeds", f"seed accuracy S, {percent(s)}"),
        ("mc", f"MC, {threshold(mc)}"),
        ("chosen", f"chosen threshold {correctness_threshold} %: SV {percent(at_ct)}"),
    )
    return (
        f"<figure class=sva-curve><svg viewBox='0 0 {WIDTH} {HEIGHT}' role=img "
        f"aria-label='{html.escape(described)}'>{''.join(drawing)}</svg>"
        f"<figcaption>{''.join(_legend(kind, text) for kind, text in legend)}</figcaption></figure>"
    )


def _x(percent_right: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * percent_right / 100, 2)


def _y(share: float) -> float:
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - share), 2)


def _steps(accuracy: Sequence[float]) -> list[tuple[float, float]]:
    """Corners of the step function: the value at CT holds above CT − 1 and up to CT."""
    return [(_x(end), _y(value)) for ct, value in enumerate(accuracy, 1) for end in (ct - 1, ct)]


def _points(corners: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in corners)


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f"<line class={kind} x1={x1:g} y1={y1:g} x2={x2:g} y2={y2:g} />"


def _axes() -> Iterator[str]:
    for tick in (0, 20, 40, 60, 80, 100):
        x, y = _x(tick), _y(tick / 100)
        yield _line("grid", _x(0), y, _x(100), y)
        yield f"<text x={LEFT - 6} y={y + 4:g} text-anchor=end>{tick}</text>"
        yield f"<text x={x:g} y={_y(0) + 17:g} text-anchor=middle>{tick}</text>"
    middle = _y(0.5)
    yield (
        f"<text x={_x(50):g} y={HEIGHT - 6} text-anchor=middle>correctness threshold, %</text>"
        f"<text transform='translate(12 {middle:g}) rotate(-90)' text-anchor=middle>"
        "share of seeds, %</text>"
    )


def _band(sv_curve: Result) -> str:
    if "low" not in sv_curve:
        return ""
    corners = [*_steps(sv_curve["high"]), *reversed(_steps(sv_curve["low"]))]
    return f"<polygon class=band points='{_points(corners)}' />"


def _hints(sv_curve: Result) -> Iterator[str]:
    """Strips without colour that say the value where the pointer is."""
    for index, (ct, value) in enumerate(
        zip(sv_curve["threshold"], sv_curve["accuracy"], strict=True)
    ):
        text = f"SV@{ct}: {percent(value)}"
        if "low" in sv_curve:
            text += f" ({100 * sv_curve['low'][index]:.1f} – {100 * sv_curve['high'][index]:.1f})"
        yield (
            f"<rect class=hint x={_x(ct - 1):g} y={_y(1):g} width={_x(1) - _x(0):g} "
            f"height={_y(0) - _y(1):g}><title>{text}</title></rect>"
        )


def _diamond(x: float, y: float, half: int = 6) -> str:
    return f"M{x - half:g} {y:g}l{half} {-half}l{half} {half}l{-half} {half}z"


def _legend(kind: str, text: str) -> str:
    mark = f"<path class=mc d='{_diamond(14, 7)}' />" if kind == "mc" else _line(kind, 0, 7, 28, 7)
    return f"<span><svg viewBox='0 0 28 14' aria-hidden=true>{mark}</svg>{text}</span>"
