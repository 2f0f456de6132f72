"""SV curves of models on sources, the thresholds at which they match S, and how they are drawn.

Figures 4 and 18 (curves), 5 and 17 (matching thresholds) and 8 (ablations) of the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from merge_metric.analyses.accuracy import Tests, read_choice
from merge_metric.analyses.measures import (
    COUNT_COLUMNS,
    MEAN,
    RUN_COLUMNS,
    Row,
    identity,
    measure_columns,
    measures,
)
from merge_metric.analyses.registry import Request
from merge_metric.frame.joined import by_config, on_common_seeds
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, MATCHING_RANGE, is_undetermined
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.tables import Table, columns, figure_column, is_few, plots
from merge_metric.tables.plots import distinct

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# --- Curves of models ---


def curves(
    request: Request,
    *,
    tests: Sequence[str] | Tests = (),
    groups: Sequence[str] = (),
    best_and_worst: bool = False,
    n_bootstrap: int = 0,
    rng_seed: int = 0,
) -> Table:
    """Make a row per model and configuration, with a 95 % band; average models with equal seeds."""
    _, mark = read_choice(request, tests, groups, best_and_worst)
    frames = list(request.frames())
    settings = Settings(n_bootstrap=n_bootstrap, rng_seed=rng_seed)
    rows = [identity(frame) | measures(frame.counts, settings) for frame in frames]
    for config, group in by_config(frames).items():
        own = [row for row in rows if row["config"] == config]
        if len(group) > 1 and len({(frame.dataset, frame.counts.seed_ids) for frame in group}) == 1:
            rows.append({"config": config, "model": MEAN} | _over_models(own))
    title = "Seed-variant accuracy by correctness threshold"
    shown = (
        *RUN_COLUMNS,
        *COUNT_COLUMNS,
        *measure_columns(),
        figure_column(CATALOGUE["matching_threshold"]),
    )
    notes = (
        "In percent, averaged over subsamples. MC: the CT at which SV matches S.",
        *([f"{MEAN}: over models."] if any(row["model"] == MEAN for row in rows) else []),
    )
    return mark(Table("curves", title, shown, tuple(rows), notes))


def _over_models(rows: Sequence[Row]) -> Row:
    """Average over models; leave out thresholds, whose mean is not where the mean curve matches."""
    return {
        key: value
        if key in ("n_seeds", "n_variants")  # the same for all models
        else np.mean([row[key] for row in rows], axis=0).tolist()
        for key, value in rows[0].items()
        if key not in ("config", "model") and "threshold" not in key and "curve_" not in key
    }


def plot_curves(table: Table) -> Figure:
    """Draw a panel per configuration; a line per model, and dots where MC is determined."""
    of_models = "model" in table.rows[0]
    series = "model" if of_models else "dataset"
    names = distinct(table.rows, series)
    figure, row_of_axes = plots.row_of_panels(len(distinct(table.rows, "config")))
    for axes, rows in plots.config_panels(table, row_of_axes):
        for row in rows:
            style = plots.line_style(names.index(row[series]))
            draw_curve(axes, row, row[series], style)
            if not of_models or row["model"] == MEAN:
                continue
            if not is_undetermined(*(row[key] for key in MATCHING_RANGE)):
                dot = (row["matching_threshold"], row["seed_accuracy"], "o")
                axes.plot(*dot, color=style["color"], markersize=5, mec="white", mew=0.7)
        curve_axes(axes)
    plots.label_left(row_of_axes, SV_LABEL)
    plots.legend_below(figure, row_of_axes, note="SV = S, at MC" if of_models else None)
    return figure


# --- Matching thresholds ---


def matching(
    request: Request,
    *,
    tests: Sequence[str] | Tests = (),
    groups: Sequence[str] = (),
    best_and_worst: bool = False,
) -> Table:
    """Tabulate matching thresholds: a row per model, a column per configuration."""
    _, mark = read_choice(request, tests, groups, best_and_worst)
    table = matching_table(
        ((frame.model, frame.config, measures(frame.counts)) for frame in request.frames()),
        "Matching correctness threshold (MC): the CT at which SV accuracy matches S",
        "In percent; 100 would be perfect generalisation. Of the curve averaged over subsamples. "
        f"{CATALOGUE['matching_threshold'].remark}",
    )
    return mark(table)


def matching_table(
    cells: Iterable[tuple[str, str, Mapping[str, Any] | None]], title: str, note: str
) -> Table:
    """Tabulate matching thresholds, in percent: a row per model, a column per heading.

    `cells` are (model, heading, figures as of `measures`, or None). JSON also has the lowest and
    the highest matching threshold, which text shows where they are far apart, and the number of
    seeds, which text marks where it is small.
    """
    ends = {end: f"matching_threshold{end}" for end in ("", "_low", "_high")}
    ends |= {"_n_seeds": "n_seeds"}
    rows: dict[str, Row] = {}
    headings: dict[str, str] = {}
    for model, heading, measured in cells:
        headings[heading] = heading
        row = rows.setdefault(model, {"model": model})
        row |= {f"{heading}{end}": measured[key] for end, key in ends.items()} if measured else {}
    empty = {f"{heading}{end}": None for heading in headings for end in ends}
    shown = (*columns(model="model"), *columns("threshold", **headings))
    return Table("matching", title, shown, tuple(empty | row for row in rows.values()), (note,))


def plot_matching(table: Table) -> Figure:
    """Draw a heat map with numbers; cells undetermined or of few seeds have no colour."""
    shown = [column for column in table.columns if column.kind == "threshold"]
    values: list[list[float | str | None]] = []
    for row in table.rows:
        values.append([])
        for column in shown:
            value, low, high = (row[f"{column.key}{end}"] for end in ("", "_low", "_high"))
            few = is_few(row.get(f"{column.key}_n_seeds"))
            if value is not None and (few or is_undetermined(low, high)):
                value = column.show(row)
            values[-1].append(value)
    known = [value for row in values for value in row if isinstance(value, float)] or [0.0, 99.0]
    # The scale ends at multiples of ten around the values, so that differences show.
    low, high = 10.0 * (min(known) // 10), min(100.0, 10.0 * (max(known) // 10 + 1))
    longest = max(len(str(row["model"])) for row in table.rows)
    figure = plots.new_figure(1.0 + 0.065 * longest + 0.7 * len(shown), 1.1 + 0.24 * len(values))
    axes = figure.subplots()
    image = plots.heat_map(axes, values, (low, high), "{:.0f}")
    configs = [column.key for column in shown]
    axes.set_xticks(range(len(configs)), configs, rotation=30, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(values)), [row["model"] for row in table.rows])
    figure.colorbar(image, ax=axes, label="MC, %", shrink=min(1.0, 3 / len(values) + 0.4))
    return figure


# --- Ablations ---


def ablations(request: Request) -> Table:
    """Average over the same models for each data set and configuration, on common seeds."""
    rows: list[Row] = []
    for config, group in by_config(request.frames(repeated=True)).items():
        of_datasets: dict[str, dict[str, Row]] = {}
        counts = on_common_seeds([frame.counts for frame in group], config)
        for frame, of_frame in zip(group, counts, strict=True):
            of_datasets.setdefault(frame.dataset, {})[frame.model] = measures(of_frame)
        models = {dataset: ", ".join(sorted(of)) for dataset, of in of_datasets.items()}
        if len(models) < 2 or len(set(models.values())) > 1:
            raise ValueError(
                f"{config}: expected predictions of the same models for two data sets or more, got "
                f"{'; '.join(f'{dataset}: {names}' for dataset, names in models.items())}; name "
                "the same model alike: NAME=FILE@DATASET"
            )
        for dataset, of in of_datasets.items():
            mean = _over_models(list(of.values()))
            rows.append({"config": config, "dataset": dataset, "models": list(of)} | mean)
    every = dict.fromkeys(model for row in rows for model in row["models"])
    title = "Averages over models on variants made with other filters"
    shown = (*columns(config="source", dataset="data set"), *COUNT_COLUMNS, *measure_columns())
    notes = (f"In percent, averaged over subsamples and over the models {', '.join(every)}.",)
    return Table("ablations", title, shown, tuple(rows), notes)


plot_ablations: Final = plot_curves


# --- Drawing ---

SV_LABEL: Final = "seed-variant accuracy, %"


def curve_axes(axes: Axes, *, bottom: bool = True) -> None:
    """Set scales and grid of SV curves, and the label of the thresholds."""
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 1)
    axes.set_xticks(range(0, 101, 20))
    plots.percent_ticks(axes.yaxis)
    plots.grid(axes)
    if bottom:
        axes.set_xlabel("correctness threshold (CT), %")


def draw_curve(axes: Axes, row: Mapping[str, Any], label: str, style: Mapping[str, Any]) -> None:
    """Draw the SV curve of a row, a step function, with its band where there is one."""
    thresholds = np.arange(1, 101)
    axes.plot(thresholds, row["curve"], label=label, drawstyle="steps-pre", **style)
    if "curve_low" in row:
        band = (row["curve_low"], row["curve_high"])
        axes.fill_between(thresholds, *band, color=style["color"], alpha=0.15, lw=0, step="pre")
