"""Contrasts: groups of variants compared on the same seeds, so that only the variants differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from merge_metric.analyses.curves import SV_LABEL, curve_axes, draw_curve
from merge_metric.analyses.measures import (
    RUN_COLUMNS,
    Bools,
    Floats,
    Ints,
    Row,
    fooling,
    measure_columns,
    measures,
)
from merge_metric.seed_variant_accuracy.counts import SeedCounts, count
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, figures
from merge_metric.seed_variant_accuracy.inputs import Rows
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.resampling import interval, seed_weights
from merge_metric.tables import Table, columns, figure_column, interval_columns
from merge_metric.tables.plots import DASHES, PALETTE, distinct, label_left, legend_below, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    first, found = next(iter(counts.values())), []
    for name, each in counts.items() if first.seed_ids else ():
        rates = {key: value for key, value in fooling(each).items() if not key.endswith("_ci")}
        gap = {"difference": None, "difference_ci": None}
        if each is not first:
            gap = difference(each, first, settings)
        found.append({**row, "group": name} | measures(each) | rates | gap)
    return found


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
