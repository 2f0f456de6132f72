"""SV curves as small vector drawings: for breakdowns, for print, and without JavaScript."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from merge_metric.report.columns import MATCHING, SEED, Cell, Result, cell
from merge_metric.report.styles import Style, style

ACROSS: Final = 2.0
"""Units of a drawing per percent of the threshold."""

UP: Final = 1.4
"""Units of a drawing per percent of accuracy."""


@dataclass(frozen=True, slots=True)
class Line:
    """A model's curve in a drawing of 100 × 100 percent, its origin at the top left, in units."""

    style: Style
    path: str
    seed_accuracy: float
    """Height of S."""
    matching: float | None
    """Position of MC along the thresholds."""


def lines(results: Sequence[Result | None]) -> list[Line]:
    """The curves of those models that have a result."""
    return [
        Line(
            style=style(position),
            path=step_path([100 * share for share in result["sv_curve"]["accuracy"]]),
            seed_accuracy=_height(cell(result, SEED)),
            matching=_along(cell(result, MATCHING).value),
        )
        for position, result in enumerate(results)
        if result
    ]


def step_path(curve: Sequence[float]) -> str:
    """SVG path of a step curve: the value at CT holds for thresholds above CT − 1.

    >>> step_path([100.0, 100.0, 62.5])
    'M0 0H4V52.5H6'
    """
    heights = [_plain(UP * (100 - value)) for value in curve]
    path = [f"M0 {heights[0]}"]
    for threshold, (height, before) in enumerate(zip(heights[1:], heights, strict=False), start=1):
        if height != before:
            path.append(f"H{_plain(ACROSS * threshold)}V{height}")
    return "".join([*path, f"H{_plain(ACROSS * len(curve))}"])


def _height(value: Cell) -> float:
    return float(_plain(UP * (100 - (value.value or 0.0))))


def _along(value: float | None) -> float | None:
    return None if value is None else float(_plain(ACROSS * value))


def _plain(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
