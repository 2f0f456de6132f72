"""SV curves of models on sources (paper, figures 4 and 18)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from merge_metric.analyses.measures import measure_columns, measures
from merge_metric.runs.run import Run
from merge_metric.tables import Column, Table
from merge_metric.tables.plots import (
    curve_axes,
    distinct,
    draw_curve,
    legend_below,
    line_style,
    mark_matching,
    panels,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def curves(runs: Iterable[Run], *, n_bootstrap: int = 0, rng_seed: int = 0) -> Table:
    """A row per model and configuration.

    Args:
        runs: Models on configurations.
        n_bootstrap: Replicates for a 95 % band around each curve; 0 for none.
        rng_seed: Of the bootstrap.
    """
    return Table(
        name="curves",
        title="Seed-variant accuracy by correctness threshold",
        columns=(Column("config", "source"), Column("model", "model"), *measure_columns()),
        rows=tuple(
            {"config": run.config, "model": run.model}
            | measures(run.counts, n_bootstrap=n_bootstrap, rng_seed=rng_seed)
            for run in runs
        ),
        notes=("In percent, averaged over subsamples. MC: the CT at which SV matches S.",),
    )


def plot_curves(table: Table) -> Figure:
    """A panel per configuration, a line per model."""
    configs, models = distinct(table.rows, "config"), distinct(table.rows, "model")
    figure, (row_of_axes,) = panels(1, len(configs))
    for axes, config in zip(row_of_axes, configs, strict=True):
        axes.set_title(config, fontsize="medium")
        for row in table.rows:
            if row["config"] == config:
                style = line_style(models.index(row["model"]))
                draw_curve(axes, row, row["model"], style)
                mark_matching(axes, row, style)
        curve_axes(axes, left=axes is row_of_axes[0], bottom=True)
    legend_below(figure, row_of_axes, note="SV = S, at MC")
    return figure
