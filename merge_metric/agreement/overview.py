"""All tables on judgements, one after the other, and which masked LMs to drop."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from merge_metric.agreement.coefficients import alpha_table, confusion_tables, pair_table
from merge_metric.agreement.judgements import read_judgements
from merge_metric.agreement.shares import (
    ANSWERS,
    DROP,
    WEIGHTED,
    drop_table,
    meaning_table,
    score_shares_table,
    share_table,
)
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.tables import Table, plots
from merge_metric.tables.plots import distinct

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Output = Literal["text", "markdown", "latex", "longtable", "json"]


def agreement(
    files: Sequence[Path],
    output: Output = "text",
    *,
    sessions: Sequence[Path] = (),
    dataset: Path | None = None,
    n_bootstrap: int = 1000,
    rng_seed: int = 0,
) -> tuple[list[Table], str]:
    """Tabulate annotators' agreement, the quality of variants, and masked LMs to drop.

    Returns:
        The tables, and everything as text: JSON has shares as fractions of 1, LaTeX the tables
        alone.
    """
    judgements = read_judgements(files, sessions, dataset)
    settings = Settings(n_bootstrap=n_bootstrap, rng_seed=rng_seed)
    tables: list[Table] = []
    counts = judgements.answered.sum(axis=1).tolist()
    who = ", ".join(f"{a} {n:,}" for a, n in zip(judgements.annotators, counts, strict=True))
    remarks = [f"{sum(counts):,} answers to {len(judgements.variant_ids):,} variants: {who}."]
    if len(judgements.annotators) > 1:
        tables += [pair_table(judgements, settings), alpha_table(judgements, settings)]
        tables += confusion_tables(judgements)
    else:
        remarks.append("One annotator: how far others would agree cannot be told.")
    if judgements.about_meaning:
        tables.append(meaning_table(judgements))
    else:
        tables += [share_table(judgements, settings), score_shares_table(judgements)]
    if any(item.mlms for item in judgements.items):
        tables.append(drop_table(judgements))
    drop = [row["mlm"] for row in tables[-1].rows if row.get("verdict") == DROP]
    if not judgements.items:
        remarks.append(
            "Nothing is known of the variants: give --session or --dataset for classes, sources "
            "and masked LMs."
        )
    command = None
    if drop:  # a separate build: one without a name would replace the run's
        names = (re.sub(r"[^A-Za-z0-9_-]+", "-", mlm.rpartition("/")[2]) for mlm in drop)
        words = ["merge-nli", "build", "--run", "RUN", "--into", "-".join(["without", *names])]
        command = shlex.join([*words, *(word for mlm in drop for word in ("--without-mlm", mlm))])
    if output == "json":
        whole: dict[str, Any] = {
            "annotators": dict(zip(judgements.annotators, counts, strict=True)),
            "variants": len(judgements.variant_ids),
            "remarks": remarks,
            "tables": {table.name: table.as_dict() for table in tables},
            "drop": drop,
            "command": command,
        }
        return tables, json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False)
    parts = [getattr(table, f"to_{output}")() for table in tables]
    if output in ("latex", "longtable"):
        return tables, "\n\n".join(parts)
    after = f"To drop {', '.join(drop)}:\n    {command}" if command else ""
    gap = "\n\n\n" if output == "text" else "\n\n"
    return tables, gap.join(filter(None, ["\n".join(remarks), *parts, after]))


# --- Drawings ---

_NAMES: Final = {"F": "fluency (F)", "R": "reasoning (R)"}
_STEPS: Final = ("#B2182B", "#EF8A62", "#D9D9D9", "#67A9CF", "#2166AC")
"""Colours of scores 1 to 5, from red to blue: ColorBrewer's RdBu, with grey in the middle."""


def draw_judgements(tables: Sequence[Table]) -> Iterator[tuple[str, Figure]]:
    """Yield the names and figures of the drawings: scores by class and by masked LM."""
    for scores in (table for table in tables if table.name == "scores"):
        yield "scores", plot_scores(scores)
        if any(row["by"] == "MLM" for row in scores.rows):
            yield "scores-by-mlm", plot_mlms(scores)


def plot_scores(table: Table) -> Figure:
    """Draw bars of F and R by class within the weighted overall bars (paper, figure 9)."""
    figure, (row_of_axes,) = plots.panels(1, 2)
    places = range(len(ANSWERS))
    for axes, score in zip(row_of_axes, _NAMES, strict=True):
        rows = {
            (row["by"], row["group"]): [row[answer] for answer in ANSWERS]
            for row in table.rows
            if row["score"] == score
        }
        bars = {group: shares for (by, group), shares in rows.items() if by == "class"}
        bars = bars or {"all": rows["all", ""]}
        for number, (name, shares) in enumerate(bars.items()):
            plots.draw_bars(axes, shares, name, number, len(bars), plots.PALETTE)
        if weighted := rows.get(("all", WEIGHTED)):
            style: dict[str, Any] = {"fill": False, "edgecolor": "#C00000", "linewidth": 1.6}
            axes.bar(places, weighted, width=0.9, label="all, weighted", **style)
        axes.set_xticks(places, ANSWERS)
        axes.set_xlabel(_NAMES[score])
        plots.grid(axes, "y")
    plots.percent_axis(row_of_axes[0], max(row[a] for row in table.rows for a in ANSWERS))
    row_of_axes[0].set_ylabel("variants, %")
    plots.legend_below(figure)
    return figure


def plot_mlms(table: Table) -> Figure:
    """Draw a bar for each masked LM, cut by the scores of its variants (paper, figure 10)."""
    from matplotlib.colors import to_rgb
    from matplotlib.ticker import PercentFormatter

    mlms = distinct([row for row in table.rows if row["by"] == "MLM"], "group")
    figure, (row_of_axes,) = plots.panels(1, 2)
    figure.set_size_inches(plots.PAGE, 1.2 + 0.27 * len(mlms))
    figure.set_layout_engine("constrained", wspace=0.06)
    for axes, score in zip(row_of_axes, _NAMES, strict=True):
        rows = {r["group"]: r for r in table.rows if r["score"] == score and r["by"] == "MLM"}
        left = np.zeros(len(mlms))
        for answer, colour in zip(ANSWERS, _STEPS, strict=True):
            widths = np.array([rows[mlm][answer] for mlm in mlms])
            bars = axes.barh(
                range(len(mlms)), widths, left=left, height=0.75, color=colour, label=answer,
                edgecolor="white", linewidth=0.5,
            )  # fmt: skip
            # A number has room from 6 % on; black cannot be read on colours darker than 0.3.
            shown = [f"{100 * width:.0f}" if width >= 0.06 else "" for width in widths]
            ink = "white" if plots.luminance(to_rgb(colour)) < 0.3 else "black"
            axes.bar_label(bars, shown, label_type="center", fontsize="small", color=ink)
            left += widths
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=""))
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(f"variants, %, by {_NAMES[score]}")
    labels = [f"{n} ({rows[mlm]['n']:,})" for n, mlm in zip(short_names(mlms), mlms, strict=True)]
    row_of_axes[0].set_yticks(range(len(mlms)), labels)
    row_of_axes[0].invert_yaxis()
    plots.legend_below(figure)
    return figure


def short_names(mlms: Sequence[str]) -> list[str]:
    """Leave out the owners in names if the names still differ without them.

    >>> short_names(["google-bert/bert-base-cased", "FacebookAI/roberta-base"])
    ['bert-base-cased', 'roberta-base']
    >>> short_names(["ann/bert", "ben/bert"])
    ['ann/bert', 'ben/bert']
    """
    short = [mlm.rpartition("/")[2] for mlm in mlms]
    return short if len({*short}) == len(mlms) else [*mlms]
