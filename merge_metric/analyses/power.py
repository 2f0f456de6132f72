"""How many seeds, and variants of each, show a difference between two models, by a pair's answers.

Two models answer the same seeds, so what varies is their difference on a seed. Its variance, by
seeds or by clusters of seeds, says how small a difference a data set shows, and how many seeds
show a given one: the usual calculation for a paired test (Miller 2024, arXiv 2411.00640, does it
for single questions). Variants of a seed are drawn from all that the data set has of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from merge_metric.analyses.contrasts import random_ranks
from merge_metric.analyses.measures import Row
from merge_metric.runs.run import VARIANT_IDS, Run, by_config
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, Figure, sv_at
from merge_metric.seed_variant_accuracy.resampling import CONFIDENCE, resampled_units
from merge_metric.tables import Column, Table
from merge_metric.tables.plots import PALETTE, distinct, grid, legend_below, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

POWER: Final = 0.8
"""How often a difference of the given size is to be found significant."""

SIZES: Final = (5, 10, 20, 40, 80)
"""Variants of a seed; a draw of the paper has 20 for each class."""

DRAWS: Final = 10
"""Draws of variants over which the variance is averaged."""

_Z: Final = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) + NormalDist().inv_cdf(POWER)


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Answers of two models to the n distinct variants of the same S seeds."""

    seed: Ints
    """(n,) numbers from 0 to S − 1."""
    right: Bools
    """(n, 2)"""
    seed_right: Bools
    """(S, 2)"""
    unit: Ints
    """(S,) clusters of seeds, numbered; each seed by itself where there are none."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Size of the difference that is to be shown, and settings of the draws."""

    difference: float = 2.0
    """In percentage points."""
    correctness_threshold: int = 90
    rng_seed: int = 0

    def __post_init__(self) -> None:
        """Check the difference; raises ValueError saying what it can be."""
        if not 0 < self.difference < 100:
            raise ValueError(
                f"difference: expected percentage points between 0 and 100, got {self.difference:g}"
            )


def pair_of(first: Run, second: Run) -> Pair:
    """Join the answers of two runs on one configuration, on the variants that both have."""
    ids = [np.asarray(run.values[VARIANT_IDS], str) for run in (first, second)]
    _, *places = np.intersect1d(ids[0], ids[1], assume_unique=True, return_indices=True)
    in_order = np.argsort(places[0])
    answers, own = [], []
    for run, place in zip((first, second), places, strict=True):
        rows, chosen = run.rows, place[in_order]
        seed = rows.seed[chosen]
        answers.append(rows.prediction[chosen] == rows.gold[seed])
        own.append((rows.own == rows.gold)[np.unique(seed)])
    seeds, seed = np.unique(first.rows.seed[places[0][in_order]], return_inverse=True)
    clusters = first.counts.clusters
    unit = np.arange(len(seeds)) if clusters is None else clusters.code[seeds]
    return Pair(
        seed, np.stack(answers, 1), np.stack(own, 1), np.unique(unit, return_inverse=True)[1]
    )


def influences(pair: Pair, size: int | None, how: Wanted) -> Iterator[tuple[Figure, Floats]]:
    """Yield the figures and, (K, S), what each seed adds to a draw's difference, their mean.

    Args:
        pair: The two models.
        size: Variants of a seed in a draw, all where it has fewer; None for all.
        how: The threshold, and the seed of the draws.
    """
    n_seeds = len(pair.seed_right)
    in_draw = np.zeros((DRAWS if size else 1, len(pair.seed)), np.bool_)
    for number, draw in enumerate(in_draw):
        draw[:] = size is None or random_ranks(pair.seed, how.rng_seed + number) < size
    n = np.stack([np.bincount(pair.seed[draw], minlength=n_seeds) for draw in in_draw])
    right = np.stack(
        [
            [np.bincount(pair.seed[draw & pair.right[:, m]], minlength=n_seeds) for m in (0, 1)]
            for draw in in_draw
        ]
    )  # (K, 2, S)
    less, mean = right[:, 0] - right[:, 1], n.mean(axis=1, keepdims=True)
    difference = less.mean(axis=1, keepdims=True) / mean
    yield CATALOGUE["variant_accuracy"], (less - difference * n) / mean + difference
    holds = (100 * right >= how.correctness_threshold * n[:, None]).astype(np.float64)
    yield sv_at(how.correctness_threshold), holds[:, 0] - holds[:, 1]


def power_rows(pair: Pair, how: Wanted) -> Iterator[Row]:
    """Yield a row for S, and for variant and SV accuracy with each number of variants."""
    own = pair.seed_right.astype(np.float64) @ (1.0, -1.0)
    yield _row(CATALOGUE["seed_accuracy"], None, own[None], pair.unit, how)
    median = float(np.median(np.bincount(pair.seed)))
    for size in (*(size for size in SIZES if size <= median), None):
        for figure, influence in influences(pair, size, how):
            yield _row(figure, "all" if size is None else str(size), influence, pair.unit, how)


def _row(figure: Figure, size: str | None, influence: Floats, unit: Ints, how: Wanted) -> Row:
    n_seeds, n_units = len(unit), int(unit.max()) + 1
    off = influence - influence.mean(axis=1, keepdims=True)
    squares = [float((np.bincount(unit, each) ** 2).sum()) for each in off]
    error = math.sqrt(sum(squares) / len(squares) * n_units / max(n_units - 1, 1)) / n_seeds
    varies = n_units > 1 and error > 1e-12
    return {
        "figure": figure.heading,
        "per_seed": size,
        "n_seeds": n_seeds,
        "difference": float(influence.mean()),
        "standard_error": error if varies else None,
        "smallest": _Z * error if varies else None,
        "needed": math.ceil(n_seeds * (100 * _Z * error / how.difference) ** 2) if varies else None,
    }


def power(runs: Iterable[Run], how: Wanted, cluster: str = "") -> Table:
    """Make rows of each pair of models on each configuration.

    Args:
        runs: With their variants.
        how: What is to be shown.
        cluster: Text by which the runs' seeds are clustered, such as `premise`.

    Raises:
        ValueError: no configuration has answers of two models.
    """
    rows: list[Row] = []
    for config, of_models in by_config(runs).items():
        for first, second in combinations(of_models, 2):
            who: dict[str, Any] = {"config": config, "a": first.model, "b": second.model}
            rows += [who | row for row in power_rows(pair_of(first, second), how)]
    if not rows:
        raise ValueError(
            "expected predictions of two models for a configuration, got none; a model and "
            "`merge-nli baseline majority` are two"
        )
    return Table(
        name="power",
        title=f"Differences that seeds and variants show in {POWER:.0%} of the cases",
        columns=(
            Column("config", "source"),
            Column("a", "first"),
            Column("b", "second"),
            Column("figure", "figure"),
            Column("per_seed", "variants"),
            Column("n_seeds", "seeds", "count"),
            Column("difference", "difference", "points"),
            Column("smallest", "smallest shown", "share"),
            Column("needed", f"seeds for {how.difference:g}", "count"),
        ),
        rows=tuple(rows),
        notes=(
            "In percentage points, of two models that differ from one another as these do. "
            f"Smallest shown: the difference that a two-sided test at {1 - CONFIDENCE:.0%} finds "
            f"in {POWER:.0%} of such data sets with that number of seeds, by the normal "
            f"approximation, paired over {resampled_units(cluster)}. Seeds for "
            f"{how.difference:g}: how many show that many points. –: nothing varies.",
            "Variants: their number for each seed, drawn at random; all where it has fewer. SV "
            "accuracy of more variants is another figure, not only a sharper one.",
        ),
    )


def plot_power(table: Table) -> Drawing:
    """Draw the smallest difference of each figure by number of seeds, a panel per configuration."""
    configs = distinct(table.rows, "config")
    figure, column = panels(len(configs), 1)
    for (axes,), config in zip(column, configs, strict=True):
        rows = [row for row in table.rows if row["config"] == config and row["smallest"]]
        rows = [row for row in rows if row["per_seed"] in (None, "20", "all")]
        for number, row in enumerate(rows):
            seeds = np.geomspace(50, 20_000, 50)
            per_seed = f", {row['per_seed']} variants" if row["per_seed"] else ""
            axes.plot(
                seeds,
                100 * row["smallest"] * np.sqrt(row["n_seeds"] / seeds),
                color=PALETTE[number % len(PALETTE)],
                label=f"{row['a']} – {row['b']}: {row['figure']}{per_seed}",
            )
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_ylabel("smallest shown, points")
        axes.set_title(config, fontsize="medium")
        grid(axes, "both")
    column[-1][0].set_xlabel("seeds")
    legend_below(figure, [axes for (axes,) in column])
    return figure
