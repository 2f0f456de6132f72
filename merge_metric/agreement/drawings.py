"""Drawings of judgements: figures 9 to 11 of the paper, and who said what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from merge_dataset.annotation.answers import ENOUGH
from merge_metric.agreement.annotators import confusion
from merge_metric.agreement.judgements import N_ANSWERS, Judgements
from merge_metric.agreement.masked_lms import Provided
from merge_metric.agreement.shares import ANSWERS, WEIGHTED
from merge_metric.tables import Table
from merge_metric.tables.plots import (
    COLUMN,
    GREY,
    PAGE,
    PALETTE,
    distinct,
    draw_bars,
    grid,
    heat_map,
    legend_below,
    luminance,
    new_figure,
    panels,
    percent_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_NAMES: Final = {
    "F": "fluency (F)",
    "R": "reasoning (R)",
    "good": f"F + R ≥ {ENOUGH}",
    "same": "the same",
}
_STEPS: Final = ("#B2182B", "#EF8A62", "#D9D9D9", "#67A9CF", "#2166AC")
"""Scores 1 to 5, red to blue: ColorBrewer's RdBu, with grey for what is neither."""
_RED: Final = "#C00000"
_ROOM: Final = 0.06
"""Share from which a number fits into its part of a bar."""
_DARK: Final = 0.3
"""Luminance below which black could not be read."""


def draw_judgements(
    judgements: Judgements, scores: Table | None, found: Provided | None
) -> Iterator[tuple[str, Figure]]:
    """Draw what can be drawn: names and plots.

    Args:
        judgements: Of one annotator or more.
        scores: `shares.score_shares_table` of them; None where they are about paraphrases.
        found: What each masked LM provides, where that is known.
    """
    if scores is not None:
        yield "scores", plot_scores(scores)
        if any(row["by"] == "MLM" for row in scores.rows):
            yield "scores-by-mlm", plot_mlms(scores)
    if found is not None:
        yield "shared-replacements", plot_shared(found)
    if len(judgements.annotators) > 1:
        yield "confusion", plot_confusions(judgements)


def plot_scores(table: Table) -> Figure:
    """Draw bars of F and R by class, and around them those of all, weighted (paper, figure 9)."""
    figure, (row_of_axes,) = panels(1, 2)
    for axes, score in zip(row_of_axes, ("F", "R"), strict=True):
        rows = {(r["by"], r["group"]): r for r in table.rows if r["score"] == score}
        classes = [group for by, group in rows if by == "class"]
        bars = [(name, rows["class", name]) for name in classes] or [("all", rows["all", ""])]
        for number, (name, row) in enumerate(bars):
            shares = [row[answer] for answer in ANSWERS]
            draw_bars(axes, shares, name, number, len(bars), PALETTE)
        if weighted := rows.get(("all", WEIGHTED)):
            axes.bar(
                range(len(ANSWERS)),
                [weighted[answer] for answer in ANSWERS],
                width=0.9,
                label="all, weighted",
                fill=False,
                edgecolor=_RED,
                linewidth=1.6,
            )
        axes.set_xticks(range(len(ANSWERS)), ANSWERS)
        axes.set_xlabel(_NAMES[score])
        grid(axes, "y")
    percent_axis(row_of_axes[0], max(row[a] for row in table.rows for a in ANSWERS))
    row_of_axes[0].set_ylabel("variants, %")
    legend_below(figure, row_of_axes)
    return figure


def plot_mlms(table: Table) -> Figure:
    """Draw, for each masked LM, shares of scores of variants it validated (paper, figure 10)."""
    mlms = distinct([row for row in table.rows if row["by"] == "MLM"], "group")
    figure, (row_of_axes,) = panels(1, 2)
    names = short_names(mlms)
    figure.set_size_inches(PAGE, 1.2 + 0.27 * len(mlms))
    figure.set_layout_engine("constrained", wspace=0.06)
    for axes, score in zip(row_of_axes, ("F", "R"), strict=True):
        rows = {r["group"]: r for r in table.rows if r["score"] == score and r["by"] == "MLM"}
        _stacked(axes, [rows[mlm] for mlm in mlms])
        axes.set_xlabel(f"variants, %, by {_NAMES[score]}")
    labels = [f"{name} ({rows[mlm]['n']:,})" for name, mlm in zip(names, mlms, strict=True)]
    row_of_axes[0].set_yticks(range(len(mlms)), labels)
    row_of_axes[0].invert_yaxis()
    legend_below(figure, row_of_axes)
    return figure


def _stacked(axes: Axes, rows: list[Any]) -> None:
    """Draw a bar of 100 % for each row, cut by score, with numbers where there is room."""
    from matplotlib.colors import to_rgb
    from matplotlib.ticker import PercentFormatter

    left = np.zeros(len(rows))
    for answer, colour in zip(ANSWERS, _STEPS, strict=True):
        widths = np.array([row[answer] for row in rows])
        bars = axes.barh(
            range(len(rows)), widths, left=left, height=0.75, color=colour, label=answer,
            edgecolor="white", linewidth=0.5,
        )  # fmt: skip
        shown = [f"{100 * width:.0f}" if width >= _ROOM else "" for width in widths]
        ink = "white" if luminance(to_rgb(colour)) < _DARK else "black"
        axes.bar_label(bars, shown, label_type="center", fontsize="small", color=ink)
        left += widths
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=""))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def plot_shared(found: Provided) -> Figure:
    """Draw a heat map of what masked LMs have in common (paper, figure 11)."""
    names = short_names(found.mlms)
    longest = max(map(len, names))
    side = 0.45 * len(names)
    width = 1.6 + 0.06 * longest + max(side, 1.2)
    figure = new_figure(width, 0.7 + 0.05 * longest + max(0.8 * side, 1.0))
    axes = figure.subplots()
    top = float(found.shared.max()) or 1.0
    image = heat_map(axes, found.shared.tolist(), (0.0, top), "{:.1f}")
    places = range(len(names))
    axes.set_xticks(places, names, rotation=30, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.set_yticks(places, names)
    axes.tick_params(length=0, labelsize="small")
    figure.colorbar(image, ax=axes, label=f"{found.unit} per problem")
    figure.supxlabel("on the diagonal those that no other has", fontsize="small", color=GREY)
    return figure


def plot_confusions(judgements: Judgements) -> Figure:
    """Draw, for each pair of annotators, who gave which answer where the other gave which."""
    pairs = list(combinations(range(len(judgements.annotators)), 2))
    scores = {score: N_ANSWERS[score] for score in judgements.codes}
    figure = new_figure(COLUMN * len(scores), 0.3 + 2.4 * len(pairs))
    axes_of = figure.subplots(len(pairs), len(scores), squeeze=False)
    for line, (one, other) in zip(axes_of, pairs, strict=True):
        for axes, (score, k) in zip(line, scores.items(), strict=True):
            counts = confusion(judgements, score, one, other)
            heat_map(axes, counts.tolist(), (0.0, float(counts.max()) or 1.0), "{:.0f}")
            names = ["no", "yes"] if k == 2 else list(ANSWERS)
            axes.set_xticks(range(k), names)
            axes.set_yticks(range(k), names)
            axes.set_title(_NAMES[score], fontsize="medium")
            axes.set_xlabel(judgements.annotators[other])
            axes.set_ylabel(judgements.annotators[one])
    return figure


def short_names(mlms: Sequence[str]) -> list[str]:
    """Shorten names by whose they are, where the rest tells them apart.

    >>> short_names(["google-bert/bert-base-cased", "FacebookAI/roberta-base"])
    ['bert-base-cased', 'roberta-base']
    >>> short_names(["ann/bert", "ben/bert"])
    ['ann/bert', 'ben/bert']
    """
    short = [mlm.rpartition("/")[2] for mlm in mlms]
    return short if len({*short}) == len(mlms) else [*mlms]
