"""How models are told apart in curves: by colour, by dashes and by marker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from merge_metric.tables.plots import PALETTE

DASHES: Final = ((), (8, 3), (2, 2.5), (10, 3, 2, 3))
"""In pixels; as many kinds as in `drawing.DASHES`, so that plots look alike."""

MARKERS: Final = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z",
    "M-3.5-3.5h7v7h-7Z",
    "M0-4.8L4.5 3.6h-9Z",
    "M0-5.2L5.2 0L0 5.2L-5.2 0Z",
    "M0 4.8L4.5-3.6h-9Z",
)
"""SVG paths about the origin: circle, square, triangle, diamond, triangle on its tip."""


@dataclass(frozen=True, slots=True)
class Style:
    """Of one model."""

    colour: str
    dash: tuple[float, ...]
    marker: str


def style(position: int) -> Style:
    """The style of a model, different from those of 139 others.

    >>> style(1)
    Style(colour='#D55E00', dash=(8, 3), marker='M-3.5-3.5h7v7h-7Z')
    """
    return Style(
        PALETTE[position % len(PALETTE)],
        DASHES[position % len(DASHES)],
        MARKERS[position % len(MARKERS)],
    )
