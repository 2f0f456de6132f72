"""SV curves of models on sources, the thresholds at which they match S, and how they are drawn.

Figures 4 and 18 (curves), 5 and 17 (matching thresholds) and 8 (ablations) of the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from merge_metric.analyses.measures import (
    COUNT_COLUMNS,
    MEAN,
    RUN_COLUMNS,
    Row,
    measure_columns,
    measures,
)
from merge_metric.runs.run import HasCounts, by_config, on_common_seeds
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, MATCHING_RANGE, is_undetermined
from merge_metric.seed_variant_accuracy.options import NO_INTERVALS, Settings
from merge_metric.tables import Column, Table, figure_column, is_few
from merge_metric.tables.plots import (
    distinct,
    grid,
    heat_map,
    label_left,
    legend_below,
    line_style,
    new_figure,
    percent_ticks,
    row_of_panels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# --- Curves of models ---


def curves(runs: Iterable[HasCounts], settings: Settings = NO_INTERVALS) -> Table:
    """Make a row per model and configuration; with a bootstrap, a 95 % band around each curve.

    Where several models answered the same seeds of one dataset, a further row has their average.
    """
    found = list(runs)
    rows: list[Row] = [
        {"config": run.config, "model": run.model} | measures(run.counts, settings) for run in found
    ]
    for config, group in by_config(found).items():
        own = [row for row in rows if row["config"] == config]
        if len(group) > 1 and len({(run.dataset, run.counts.seed_ids) for run in group}) == 1:
            rows.append({"config": config, "model": MEAN} | _over_models(own))
    return Table(
        name="curves",
        title="Seed-variant accuracy by correctness threshold",
        columns=(
            *RUN_COLUMNS,
            *COUNT_COLUMNS,
            *measure_columns(),
            figure_column(CATALOGUE["matching_threshold"]),
        ),
        rows=tuple(rows),
        notes=(
            "In percent, averaged over subsamples. MC: the CT at which SV matches S.",
            *([f"{MEAN}: over models."] if any(row["model"] == MEAN for row in rows) else []),
        ),
    )


def _over_models(rows: Sequence[Row]) -> Row:
    """Average figures over models on the same seeds, without thresholds and bands.

    An average of thresholds is not where the averaged curve matches.
    """
    return {
        key: value
        if key in ("n_seeds", "n_variants")  # the same for all models
        else np.mean([row[key] for row in rows], axis=0).tolist()
        for key, value in rows[0].items()
        if key not in ("config", "model") and "threshold" not in key and "curve_" not in key
    }


def plot_curves(table: Table) -> Figure:
    """Draw a panel per configuration, a line per model and a dot at its MC."""
    return _plot(table, "model", note="SV = S, at MC")


# --- Matching thresholds ---


def matching(runs: Iterable[HasCounts]) -> Table:
    """Make a row per model and a column per configuration, of the metric's matching threshold.

    The JSON also has the lowest and highest threshold that match, under `<configuration>_low`
    and `<configuration>_high`; where they lie far apart, text shows them instead of the value. Of
    few seeds, `<configuration>_n_seeds`, text marks them.
    """
    rows: dict[str, Row] = {}
    configs: dict[str, None] = {}
    for run in runs:
        configs[run.config] = None
        found = measures(run.counts)
        rows.setdefault(run.model, {"model": run.model}).update(
            {
                f"{run.config}{end}": found[f"matching_threshold{end}"]
                for end in ("", "_low", "_high")
            }
            | {f"{run.config}_n_seeds": found["n_seeds"]}
        )
    ends = ("", "_low", "_high", "_n_seeds")
    empty = {f"{config}{end}": None for config in configs for end in ends}
    return Table(
        name="matching",
        title="Matching correctness threshold (MC): the CT at which SV accuracy matches S",
        columns=(
            Column("model", "model"),
            *(Column(config, config, "threshold") for config in configs),
        ),
        rows=tuple(empty | row for row in rows.values()),
        notes=(
            f"In percent; 100 would be perfect generalisation. Of the curve averaged over "
            f"subsamples. {CATALOGUE['matching_threshold'].remark}",
        ),
    )


def plot_matching(table: Table) -> Figure:
    """Draw a heat map, numbers in its cells."""
    columns = [column for column in table.columns if column.kind == "threshold"]
    configs = [column.key for column in columns]
    values = [
        [_colourless(column, row) or row[column.key] for column in columns] for row in table.rows
    ]
    known = [value for row in values for value in row if isinstance(value, float)] or [0.0, 99.0]
    # Multiples of ten around them, so that differences show.
    low, high = 10.0 * (min(known) // 10), min(100.0, 10.0 * (max(known) // 10 + 1))
    longest = max(len(str(row["model"])) for row in table.rows)
    figure = new_figure(1.0 + 0.065 * longest + 0.7 * len(configs), 1.1 + 0.24 * len(values))
    axes = figure.subplots()
    image = heat_map(axes, values, (low, high), "{:.0f}")
    axes.set_xticks(range(len(configs)), configs, rotation=30, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(values)), [row["model"] for row in table.rows])
    figure.colorbar(image, ax=axes, label="MC, %", shrink=min(1.0, 3 / len(values) + 0.4))
    return figure


def _colourless(column: Column, row: Mapping[str, Any]) -> str:
    """Write an undetermined threshold, or one of few seeds, which have no colour; else nothing."""
    value, low, high = (row[f"{column.key}{end}"] for end in ("", "_low", "_high"))
    if value is None or not (
        is_undetermined(low, high) or is_few(row.get(f"{column.key}_n_seeds"))
    ):
        return ""
    return column.show(row)


# --- Ablations ---


def ablations(runs: Iterable[HasCounts]) -> Table:
    """Make a row per data set and configuration: averages over models, on the seeds all have.

    Args:
        runs: The same models on each data set.
    """
    rows: list[Row] = []
    for config, group in by_config(runs).items():
        datasets = list(dict.fromkeys(run.dataset for run in group))
        models = {each: {run.model for run in group if run.dataset == each} for each in datasets}
        if len(datasets) < 2:
            raise ValueError(
                f"{config}: expected predictions for two data sets or more, got only {datasets}: "
                "give those for others as FILE@DATASET"
            )
        if len(set(map(frozenset, models.values()))) > 1:
            shown = "; ".join(f"{name}: {', '.join(sorted(models[name]))}" for name in datasets)
            raise ValueError(
                f"{config}: expected predictions of the same models for each data set, got "
                f"{shown}; name the same model alike: NAME=FILE@DATASET"
            )
        counts = on_common_seeds([run.counts for run in group], config)
        found = [measures(each) for each in counts]
        for dataset in datasets:
            mine = [row for row, run in zip(found, group, strict=True) if run.dataset == dataset]
            names = [run.model for run in group if run.dataset == dataset]
            mean = _over_models(mine)
            rows.append({"config": config, "dataset": dataset, "models": names} | mean)
    every = dict.fromkeys(model for row in rows for model in row["models"])
    return Table(
        name="ablations",
        title="Averages over models on variants made with other filters",
        columns=(
            Column("config", "source"),
            Column("dataset", "data set"),
            *COUNT_COLUMNS,
            *measure_columns(),
        ),
        rows=tuple(rows),
        notes=(f"In percent, averaged over subsamples and over the models {', '.join(every)}.",),
    )


def plot_ablations(table: Table) -> Figure:
    """Draw a panel per configuration, a line per data set."""
    return _plot(table, "dataset")


# --- Drawing ---

SV_LABEL: Final = "seed-variant accuracy, %"


def _plot(table: Table, series: str, note: str | None = None) -> Figure:
    """Draw a panel per configuration, a line per value of a key.

    Args:
        table: Rows with `config`, `curve`, and with a note `matching_threshold`.
        series: Key that tells lines apart.
        note: Meaning of the dots, where lines have one at their MC and S.
    """
    configs, names = distinct(table.rows, "config"), distinct(table.rows, series)
    figure, row_of_axes = row_of_panels(len(configs))
    for axes, config in zip(row_of_axes, configs, strict=True):
        axes.set_title(config, fontsize="medium")
        for row in table.rows:
            if row["config"] == config:
                style = line_style(names.index(row[series]))
                draw_curve(axes, row, row[series], style)
                if note:
                    mark_matching(axes, row, style)
        curve_axes(axes, left=False, bottom=True)
    label_left(row_of_axes, SV_LABEL)
    legend_below(figure, row_of_axes, note=note)
    return figure


def curve_axes(axes: Axes, *, left: bool, bottom: bool) -> None:
    """Set scales, grid and labels of SV curves; labels at the outer sides only."""
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 1)
    axes.set_xticks(range(0, 101, 20))
    percent_ticks(axes.yaxis)
    grid(axes)
    if bottom:
        axes.set_xlabel("correctness threshold (CT), %")
    if left:
        axes.set_ylabel(SV_LABEL)


def draw_curve(axes: Axes, row: Mapping[str, Any], label: str, style: Mapping[str, Any]) -> None:
    """Draw the SV curve of a row, a step function, with its band where there is one."""
    thresholds = np.arange(1, 101)
    axes.plot(thresholds, row["curve"], label=label, drawstyle="steps-pre", **style)
    if "curve_low" in row:
        band = (row["curve_low"], row["curve_high"])
        axes.fill_between(thresholds, *band, color=style["color"], alpha=0.15, lw=0, step="pre")


def mark_matching(axes: Axes, row: Mapping[str, Any], style: Mapping[str, Any]) -> None:
    """Draw a dot at the MC and S of a row, where MC is determined."""
    if row["model"] == MEAN or is_undetermined(*(row[key] for key in MATCHING_RANGE)):
        return
    axes.plot(
        [row["matching_threshold"]],
        [row["seed_accuracy"]],
        marker="o",
        markersize=5,
        color=style["color"],
        markeredgecolor="white",
        markeredgewidth=0.7,
        linestyle="none",
    )
