"""Contrasts: groups of variants compared on the same seeds, so that only the variants differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from merge_metric.analyses.curves import curve_axes, draw_curve
from merge_metric.analyses.measures import (
    RUN_COLUMNS,
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
from merge_metric.tables import Column, Table, figure_column
from merge_metric.tables.plots import DASHES, PALETTE, distinct, legend_below, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def on_shared_seeds(
    rows: Rows, group: NDArray[np.int64], n_groups: int, *, draws_seed: int | None = None
) -> list[SeedCounts]:
    """Count each group of variants, on the seeds that have variants in every group.

    In each subsample the seeds are those that have variants of every group *there*, so in
    each of them every group is measured on the same seeds.

    Args:
        rows: Of one run.
        group: (n,) group of each row, from 0; -1 for rows of none.
        n_groups: How many groups there are.
        draws_seed: Of a random choice of equally many variants of each group, per seed and
            subsample: SV accuracy at high thresholds is lower where there are more. None: all.

    Returns:
        One per group, of the same seeds; without any seed where none has all groups.
    """
    n_subsamples = rows.n_subsamples or 1
    n_cells = len(rows.seed_ids) * n_subsamples
    cell = rows.seed[rows.draw_row] * n_subsamples + rows.draw_subsample
    of_draw = group[rows.draw_row]
    grouped = of_draw >= 0
    key = of_draw * n_cells + cell
    sizes = np.bincount(key[grouped], minlength=n_groups * n_cells).reshape(n_groups, n_cells)
    least = sizes.min(axis=0)[cell]
    kept = grouped & (least > 0)
    if draws_seed is not None:  # among the draws of its group, seed and subsample
        kept &= random_ranks(key, draws_seed) < least
    return [
        count(rows, draws=np.flatnonzero(kept & (of_draw == number))) for number in range(n_groups)
    ]


def random_ranks(key: NDArray[np.int64], rng_seed: int) -> NDArray[np.int64]:
    """Rank each entry, (m,), among those with the same key, in random order."""
    shuffled = np.random.default_rng(rng_seed).permutation(len(key))
    order = shuffled[np.argsort(key[shuffled], kind="stable")]
    starts = np.searchsorted(key[order], key[order])
    ranks = np.empty_like(key)
    ranks[order] = np.arange(len(key)) - starts
    return ranks


FIXED_DRAWS: Final = 10
"""Draws of matched variants from a fixed set of seeds: as many as the paper has subsamples."""


def on_fixed_seeds(
    rows: Rows, group: NDArray[np.int64], n_groups: int, *, matched: bool = False, rng_seed: int = 0
) -> list[SeedCounts]:
    """Count each group of variants, on the seeds with distinct variants in every group.

    These are the same in every draw, whatever the dataset's subsamples hold of them.

    Args:
        rows: Of one run.
        group: (n,) group of each row, from 0; -1 for rows of none.
        n_groups: How many groups there are.
        matched: Take, per seed, as many of each group as the smallest has, in `FIXED_DRAWS` draws;
            else each distinct variant once.
        rng_seed: Of the draws.

    Returns:
        One per group, of the same seeds; without any seed where none has all groups.
    """
    n_draws, n_rows = FIXED_DRAWS if matched else 1, len(rows.seed)
    drawn = replace(
        rows,
        draw_row=np.repeat(np.arange(n_rows), n_draws),
        draw_subsample=np.tile(np.arange(n_draws), n_rows),
        n_subsamples=n_draws if matched else None,
    )
    draws_seed = rng_seed if matched else None
    return on_shared_seeds(drawn, group, n_groups, draws_seed=draws_seed)


def difference(a: SeedCounts, b: SeedCounts, settings: Settings) -> dict[str, Any]:
    """Subtract SV accuracy of `b` from that of `a`, on the same seeds, with an interval.

    Returns:
        `difference` and, with a bootstrap (paired, over seeds), `difference_ci`.
    """
    key, n_seeds = "seed_variant_accuracy", len(a.seed_ids)

    def less(weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
        ct = settings.correctness_threshold
        of_a, of_b = (figures(x, ct, weights).means()[key] for x in (a, b))
        return of_a - of_b

    result: dict[str, Any] = {"difference": float(less(None)[0])}
    if settings.n_bootstrap:
        parts = [less(weights) for weights in seed_weights(n_seeds, settings, a.clusters)]
        result["difference_ci"] = interval(np.concatenate(parts)).tolist()
    return result


def group_codes(groups: Mapping[str, NDArray[np.bool_]]) -> NDArray[np.int64]:
    """Number the group of each row, (n,), from 0; -1 for rows of none."""
    codes = np.full(len(next(iter(groups.values()))), -1)
    for number, mask in enumerate(groups.values()):
        codes[mask] = number
    return codes


def contrast_rows(
    identity: Mapping[str, Any],
    rows: Rows,
    groups: Mapping[str, NDArray[np.bool_]],
    settings: Settings,
) -> list[Row]:
    """Make a row per group, or none where no seed has variants of every group.

    Groups are (n,) masks of the rows; no row is in two of them. Differences are to the first.
    """
    counts = on_shared_seeds(rows, group_codes(groups), len(groups))
    return rows_of_counts(identity, dict(zip(groups, counts, strict=True)), settings)


def rows_of_counts(
    identity: Mapping[str, Any], counts: Mapping[str, SeedCounts], settings: Settings
) -> list[Row]:
    """Make a row per group, of counts of the same seeds; none where there is no seed."""
    first = next(iter(counts.values()))
    if not first.seed_ids:
        return []
    found = []
    for name, each in counts.items():
        row = {**identity, "group": name} | measures(each)
        row |= {key: value for key, value in fooling(each).items() if not key.endswith("_ci")}
        if each is first:
            row |= {"difference": None, "difference_ci": None}
        else:
            row |= difference(each, first, settings)
        found.append(row)
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
    """Make the table of rows of `contrast_rows`, or, where `fixed`, of those on fixed seeds."""
    several = len({row["contrast"] for row in rows}) > 1
    chosen = (
        "Groups differ in variants per seed, and SV accuracy at high thresholds falls with their "
        "number."
    )
    averaged = (
        "averaged over subsamples; in each subsample on the seeds that have variants of every "
        "group there"
    )
    if fixed:
        averaged = "on the seeds that have variants of every group, in whatever subsamples"
    changing = any(row["seeds_per_subsample"] < row["n_seeds"] for row in rows)
    sizes: dict[tuple[str, ...], set[float]] = {}
    for row in rows:
        key = (row["config"], row["model"], row["contrast"])
        sizes.setdefault(key, set()).add(round(row["variants_per_seed"], 9))
    unequal = any(len(each) > 1 for each in sizes.values())
    return Table(
        name=name,
        title=title,
        columns=(
            *RUN_COLUMNS,
            *([Column("contrast", "variants" if fixed else "seeds with")] if several else []),
            Column("group", group),
            Column("n_seeds", "seeds", "count"),
            *([Column("seeds_per_subsample", "at once", "threshold")] if changing else []),
            Column("variants_per_seed", "per seed", "threshold"),
            *measure_columns((50, 80, 90, 100)),
            figure_column(CATALOGUE["matching_threshold"]),
            Column("difference", f"SV@{ct} diff.", "points", interval="difference_ci"),
        ),
        rows=tuple(rows),
        notes=(
            *notes,
            f"In percent, {averaged}. SV@{ct} diff.: minus the first group's, with its 95 % "
            f"interval by paired bootstrap over seeds.",
            *(["At once: seeds in a subsample, on average."] if changing else []),
            *([chosen] if not fixed and unequal else []),
        ),
    )


def plot_contrasts(table: Table) -> Figure:
    """Draw a panel per model (row) and configuration (column).

    With several contrasts a colour for each and dashes for its second group, else a
    colour and dashes for each group.
    """
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
                label, colour = f"{row['group']} (of {row['contrast']})", row["contrast"]
                if len(contrasts) == 1:
                    label, colour = row["group"], row["group"]
                scale = contrasts if len(contrasts) > 1 else groups
                style = {
                    "color": PALETTE[scale.index(colour) % len(PALETTE)],
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
            curve_axes(axes, left=axes is row_of_axes[0], bottom=row_of_axes is axes_of[-1])
    legend_below(figure, [axes for row in axes_of for axes in row])
    return figure
