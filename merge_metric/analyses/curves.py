"""SV curves of models on sources, the thresholds at which they match S, and how they are drawn.

Figures 4 and 18 (curves), 5 and 17 (matching thresholds) and 8 (ablations) of the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from merge_metric.analyses.measures import (
    COUNT_COLUMNS,
    MEAN,
    RUN_COLUMNS,
    Bools,
    Floats,
    Ints,
    Row,
    fooling,
    identity,
    measure_columns,
    measures,
)
from merge_metric.frame.joined import Frame, by_config, on_common_seeds
from merge_metric.seed_variant_accuracy.counts import SeedCounts, count
from merge_metric.seed_variant_accuracy.figures import (
    CATALOGUE,
    MATCHING_RANGE,
    figures,
    is_undetermined,
)
from merge_metric.seed_variant_accuracy.inputs import Rows
from merge_metric.seed_variant_accuracy.options import NO_INTERVALS, Settings
from merge_metric.seed_variant_accuracy.resampling import interval, seed_weights
from merge_metric.tables import Table, columns, figure_column, interval_columns, is_few, plots
from merge_metric.tables.plots import DASHES, PALETTE, distinct, label_left, legend_below, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# --- Curves of models ---


def curves(frames: Iterable[Frame], settings: Settings = NO_INTERVALS) -> Table:
    """Make a row per model and configuration, with a 95 % band; average models with equal seeds."""
    frames = list(frames)
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
    return Table("curves", title, shown, tuple(rows), notes)


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


def matching(frames: Iterable[Frame]) -> Table:
    """Tabulate matching thresholds: a row per model, a column per configuration."""
    return matching_table(
        ((frame.model, frame.config, measures(frame.counts)) for frame in frames),
        "Matching correctness threshold (MC): the CT at which SV accuracy matches S",
        "In percent; 100 would be perfect generalisation. Of the curve averaged over subsamples. "
        f"{CATALOGUE['matching_threshold'].remark}",
    )


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


def ablations(frames: Iterable[Frame]) -> Table:
    """Average over the same models for each data set and configuration, on common seeds."""
    rows: list[Row] = []
    for config, group in by_config(frames).items():
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


# --- Contrasts ---


def on_shared_seeds(
    rows: Rows, groups: Mapping[str, Bools], *, draws_seed: int | None = None
) -> dict[str, SeedCounts]:
    """Count groups of variants, masks (n,); in each subsample on the seeds that have all groups.

    With `draws_seed`, an equal number of variants of each group is chosen at random per seed and
    subsample: SV accuracy at high thresholds falls with the number of variants.
    """
    masks = np.stack([*groups.values()])
    group, n_groups = np.where(masks.any(axis=0), masks.argmax(axis=0), -1), len(groups)
    n_subsamples = rows.n_subsamples or 1
    n_cells = len(rows.seed_ids) * n_subsamples
    cell = rows.seed[rows.draw_row] * n_subsamples + rows.draw_subsample
    of_draw = group[rows.draw_row]
    grouped = of_draw >= 0
    key = of_draw * n_cells + cell
    sizes = np.bincount(key[grouped], minlength=n_groups * n_cells).reshape(n_groups, n_cells)
    least = sizes.min(axis=0)[cell]
    kept = grouped & (least > 0)
    if draws_seed is not None:  # ranks are within a group, seed and subsample
        kept &= random_ranks(key, draws_seed) < least
    return {
        name: count(rows, draws=np.flatnonzero(kept & (of_draw == number)))
        for number, name in enumerate(groups)
    }


def random_ranks(key: Ints, rng_seed: int) -> Ints:
    """Rank each entry, (m,), among those with the same key, in random order."""
    shuffled = np.random.default_rng(rng_seed).permutation(len(key))
    order = shuffled[np.argsort(key[shuffled], kind="stable")]
    starts = np.searchsorted(key[order], key[order])
    ranks = np.empty_like(key)
    ranks[order] = np.arange(len(key)) - starts
    return ranks


FIXED_DRAWS: Final = 10
"""Number of draws of matched variants from fixed seeds: the paper's number of subsamples."""


def on_fixed_seeds(
    rows: Rows, groups: Mapping[str, Bools], *, matched: bool = False, rng_seed: int = 0
) -> dict[str, SeedCounts]:
    """Count groups of distinct variants, masks (n,), on the seeds that have all groups.

    If `matched`, each of `FIXED_DRAWS` draws takes an equal number of variants of each group per
    seed: the size of the seed's smallest group.
    """
    n_draws, n_rows = FIXED_DRAWS if matched else 1, len(rows.seed)
    drawn = replace(
        rows,
        draw_row=np.repeat(np.arange(n_rows), n_draws),
        draw_subsample=np.tile(np.arange(n_draws), n_rows),
        n_subsamples=n_draws if matched else None,
    )
    return on_shared_seeds(drawn, groups, draws_seed=rng_seed if matched else None)


def difference(a: SeedCounts, b: SeedCounts, settings: Settings) -> dict[str, Any]:
    """Compute the SV accuracy of `a` minus that of `b`; if wanted, a paired interval over seeds."""

    def less(weights: Floats | None) -> Floats:
        ct = settings.correctness_threshold
        of_a, of_b = (figures(x, ct, weights).means()["seed_variant_accuracy"] for x in (a, b))
        return of_a - of_b

    result: dict[str, Any] = {"difference": float(less(None)[0])}
    if settings.n_bootstrap:
        parts = [less(weights) for weights in seed_weights(len(a.seed_ids), settings, a.clusters)]
        result["difference_ci"] = interval(np.concatenate(parts)).tolist()
    return result


def rows_of_counts(
    row: Mapping[str, Any], counts: Mapping[str, SeedCounts], settings: Settings
) -> list[Row]:
    """Make a row per group, on shared seeds (no rows without any); differences are to the first."""
    first, rows = next(iter(counts.values())), []
    for name, of_group in counts.items() if first.seed_ids else ():
        rates = {key: value for key, value in fooling(of_group).items() if not key.endswith("_ci")}
        gap = {"difference": None, "difference_ci": None}
        if of_group is not first:
            gap = difference(of_group, first, settings)
        rows.append({**row, "group": name} | measures(of_group) | rates | gap)
    return rows


def contrast_table(
    name: str,
    title: str,
    rows: Sequence[Mapping[str, Any]],
    ct: int,
    *,
    group: str,
    notes: Sequence[str] = (),
    fixed: bool = False,
) -> Table:
    """Make the table of `rows_of_counts`; if `fixed`, seeds are the same in all subsamples."""
    several = len({row["contrast"] for row in rows}) > 1
    averaged = (
        "averaged over subsamples; in each subsample on the seeds that have variants of every "
        "group there"
    )
    if fixed:
        averaged = "on the seeds that have variants of every group, in whatever subsamples"
    changing = any(row["seeds_per_subsample"] < row["n_seeds"] for row in rows)
    contrasts = {(row["config"], row["model"], row["contrast"]) for row in rows}
    sizes = {
        (r["config"], r["model"], r["contrast"], round(r["variants_per_seed"], 9)) for r in rows
    }
    more_notes = []
    if changing:
        more_notes.append("At once: seeds in a subsample, on average.")
    if not fixed and len(sizes) > len(contrasts):
        more_notes.append(
            "Groups differ in variants per seed, and SV accuracy at high thresholds falls with "
            "their number."
        )
    shown = (
        *RUN_COLUMNS,
        *(columns(contrast="variants" if fixed else "seeds with") if several else ()),
        *columns(group=group),
        *columns("count", n_seeds="seeds"),
        *(columns("threshold", seeds_per_subsample="at once") if changing else ()),
        *columns("threshold", variants_per_seed="per seed"),
        *measure_columns((50, 80, 90, 100)),
        figure_column(CATALOGUE["matching_threshold"]),
        *interval_columns("points", difference=f"SV@{ct} diff."),
    )
    all_notes = (
        *notes,
        f"In percent, {averaged}. SV@{ct} diff.: minus the first group's, with its 95 % "
        f"interval by paired bootstrap over seeds.",
        *more_notes,
    )
    return Table(name, title, shown, tuple(rows), all_notes)


def plot_contrasts(table: Table) -> Figure:
    """Draw panels: models by configurations; colours show contrasts, dashes the second groups."""
    models, configs = distinct(table.rows, "model"), distinct(table.rows, "config")
    contrasts, groups = distinct(table.rows, "contrast"), distinct(table.rows, "group")
    figure, axes_of = panels(len(models), len(configs))
    for model, row_of_axes in zip(models, axes_of, strict=True):
        for config, axes in zip(configs, row_of_axes, strict=True):
            axes.set_title(f"{model} on {config}", fontsize="medium")
            rows = [r for r in table.rows if r["model"] == model and r["config"] == config]
            for row in rows:
                within = [r["group"] for r in rows if r["contrast"] == row["contrast"]]
                number = within.index(row["group"])
                label, place = row["group"], groups.index(row["group"])
                if len(contrasts) > 1:
                    label = f"{label} (of {row['contrast']})"
                    place = contrasts.index(row["contrast"])
                style = {
                    "color": PALETTE[place % len(PALETTE)],
                    "linestyle": DASHES[number % len(DASHES)],
                    "linewidth": 1.6,
                }
                draw_curve(axes, row, label, style)
            seeds = {row["contrast"]: row["n_seeds"] for row in rows}
            lines = [f"{name}: {n:,} seeds" for name, n in seeds.items()]
            if len(seeds) == 1:
                lines = [f"{n:,} seeds" for n in seeds.values()]
            # SV curves leave this corner free.
            axes.text(0.03, 0.04, "\n".join(lines), transform=axes.transAxes, fontsize="small")
            curve_axes(axes, bottom=row_of_axes is axes_of[-1])
    label_left(every := [axes for row in axes_of for axes in row], SV_LABEL)
    legend_below(figure, every)
    return figure
