"""SV curves on data sets made with other filters, averaged over models (paper, figure 8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from merge_metric.analyses.measures import measure_columns, measures
from merge_metric.runs.run import Run, by_config, on_common_seeds
from merge_metric.tables import Column, Table
from merge_metric.tables.plots import (
    curve_axes,
    distinct,
    draw_curve,
    legend_below,
    line_style,
    panels,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def ablations(runs: Iterable[Run]) -> Table:
    """A row per data set and configuration: averages over models, on the seeds all have.

    Args:
        runs: The same models on each data set.

    Raises:
        ValueError: only one data set, or other models on one than on another.
    """
    rows: list[dict[str, Any]] = []
    for config, group in by_config(runs).items():
        datasets = list(dict.fromkeys(run.dataset for run in group))
        _require_same_models(config, group, datasets)
        counts = on_common_seeds([run.counts for run in group], config)
        found = [measures(each) for each in counts]
        for dataset in datasets:
            mine = [row for row, run in zip(found, group, strict=True) if run.dataset == dataset]
            models = [run.model for run in group if run.dataset == dataset]
            rows.append({"config": config, "dataset": dataset, "models": models} | _mean(mine))
    return Table(
        name="ablations",
        title="Averages over models on variants made with other filters",
        columns=(
            Column("config", "source"),
            Column("dataset", "data set"),
            *measure_columns(with_matching=False),
        ),
        rows=tuple(rows),
        notes=(
            f"In percent, averaged over subsamples and over the models "
            f"{', '.join(distinct_models(rows))}.",
        ),
    )


def distinct_models(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Names of the models of all rows, each once."""
    return list(dict.fromkeys(model for row in rows for model in row["models"]))


def _mean(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Each figure averaged over models; the counts are the same for all."""
    whole = ("n_seeds", "n_variants")
    mean: dict[str, Any] = {
        key: rows[0][key] if key in whole else np.mean([row[key] for row in rows], axis=0).tolist()
        for key in rows[0]
    }
    # An average of thresholds is not where the averaged curve matches: leave them out.
    return {key: value for key, value in mean.items() if "threshold" not in key}


def _require_same_models(config: str, runs: Sequence[Run], datasets: Sequence[str]) -> None:
    models = {name: {run.model for run in runs if run.dataset == name} for name in datasets}
    if len(datasets) < 2:
        raise ValueError(
            f"{config}: expected predictions for two data sets or more, got only {datasets}: "
            "give those for others as FILE@DATASET"
        )
    if len(set(map(frozenset, models.values()))) > 1:
        shown = "; ".join(f"{name}: {', '.join(sorted(models[name]))}" for name in datasets)
        raise ValueError(
            f"{config}: expected predictions of the same models for each data set, got {shown}; "
            "name the same model alike: NAME=FILE@DATASET"
        )


def plot_ablations(table: Table) -> Figure:
    """A panel per configuration, a line per data set."""
    configs, datasets = distinct(table.rows, "config"), distinct(table.rows, "dataset")
    figure, (row_of_axes,) = panels(1, len(configs))
    for axes, config in zip(row_of_axes, configs, strict=True):
        axes.set_title(config, fontsize="medium")
        for row in table.rows:
            if row["config"] == config:
                draw_curve(axes, row, row["dataset"], line_style(datasets.index(row["dataset"])))
        curve_axes(axes, left=axes is row_of_axes[0], bottom=True)
    legend_below(figure, row_of_axes)
    return figure
