"""How far figures move when only some of the seeds are drawn, and how many seeds an interval takes.

The paper evaluates language models on one of 100 draws of 500 seeds (appendix A.4.1), and says
that S moves by around 3 % between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from merge_dataset.layout import format_in, split_files
from merge_metric.analyses.measures import Row
from merge_metric.runs.relations import read_columns
from merge_metric.runs.run import HasCounts
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, figures, sv_at
from merge_metric.seed_variant_accuracy.resampling import CONFIDENCE, interval
from merge_metric.tables import Column, Table
from merge_metric.tables.plots import (
    COLUMN,
    PAGE,
    PALETTE,
    distinct,
    grid,
    panels,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

_Z: Final = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True, slots=True)
class Draws:
    """Settings of the draws."""

    draws: int = 100
    """Number of draws."""
    seeds: int = 500
    """Seeds of each, without replacement."""
    correctness_threshold: int = 90
    """CT of SV accuracy."""
    width: float = 5.0
    """Wanted width of a 95 % interval, in percentage points."""
    rng_seed: int = 0

    def __post_init__(self) -> None:
        """Check the numbers; raises ValueError saying what they can be."""
        if not 0 < self.width < 100:
            raise ValueError(
                f"width: expected percentage points between 0 and 100, got {self.width:g}"
            )

    def weights(self, n_seeds: int, where: str) -> Floats:
        """Draw, (draws, n_seeds): 1 for the seeds of a draw, 0 for all others.

        Raises:
            ValueError: there are not more seeds than are to be drawn.
        """
        if n_seeds <= self.seeds:
            raise ValueError(
                f"{where}: expected more seeds than are drawn, got {n_seeds:,}, of which "
                f"{self.seeds:,} are to be drawn; draw fewer with `seeds`"
            )
        rng = np.random.default_rng(self.rng_seed)
        weights = np.zeros((self.draws, n_seeds))
        for row in weights:
            row[rng.choice(n_seeds, self.seeds, replace=False)] = 1.0
        return weights


@dataclass(frozen=True, slots=True, eq=False)
class Seeds:
    """Seeds of a configuration with their gold labels and, if any, a model's answers."""

    config: str
    seed_ids: Sequence[Any]
    """(S,) sorted."""
    gold: NDArray[np.int64]
    """(S,) positions in `labels`."""
    labels: tuple[str, ...]
    model: str | None = None
    counts: SeedCounts | None = None


def seeds_of(run: HasCounts) -> Seeds:
    """Take the seeds of a run and what its model answers."""
    counts = run.counts
    return Seeds(run.config, counts.seed_ids, counts.gold, counts.labels, run.model, counts)


def read_seeds(folder: Path, config: str) -> Seeds:
    """Read the seeds of a configuration, without any answers."""
    table = read_columns(folder, split_files(folder, config)["seeds"], ("seed_id", "label"))
    table = table.sort_by("seed_id")
    gold = table["label"].to_numpy().astype(np.int64)
    return Seeds(config, table["seed_id"].to_pylist(), gold, format_in(folder, config).labels)


def stability(everything: Iterable[Seeds], how: Draws) -> Table:
    """Make a row per label and, with a model, of S and SV accuracy, for each configuration.

    Models of the same seeds see the same draws.

    Raises:
        ValueError: a configuration has too few seeds to draw from.
    """
    rows: list[Row] = []
    known: dict[str, list[Sequence[Any]]] = {}
    ct = how.correctness_threshold
    for seeds in everything:
        weights = how.weights(len(seeds.seed_ids), seeds.config)
        before = known.setdefault(seeds.config, [])
        if seeds.seed_ids not in before:
            # Labels are the same for all models, unless these were asked about other seeds.
            model = seeds.model if before else None
            is_label = (seeds.gold[:, None] == np.arange(len(seeds.labels))).astype(np.float64)
            shares = weights @ is_label / how.seeds
            rows += [
                {"config": seeds.config, "model": model}
                | _row(label, is_label[:, number], shares[:, number], how)
                for number, label in enumerate(seeds.labels)
            ]
            before.append(seeds.seed_ids)
        if (counts := seeds.counts) is not None:
            of_draws = figures(counts, ct, weights).means()
            rows += [
                {"config": seeds.config, "model": seeds.model}
                | _row(figure.heading, influence_of(holds, counts.present), of_draws[key], how)
                for figure, key, holds in (
                    (CATALOGUE["seed_accuracy"], "seed_accuracy", counts.right[:, None]),
                    (sv_at(ct), "seed_variant_accuracy", counts.level >= ct),
                )
            ]
    notes = [
        f"In percent and percentage points. In brackets the middle {100 * CONFIDENCE:.0f} % of "
        f"the draws, which are without replacement. Off: how far a draw is from all seeds, on "
        f"average over draws and at most; sd: standard deviation of the draws. Labels: share of "
        f"seeds with that gold label.",
        f"Needed: the smallest number of seeds with which a "
        f"{100 * CONFIDENCE:.0f} % interval, which is about other seeds of the kind too, is at "
        f"most {how.width:g} points wide, by the normal approximation; – where a figure does not "
        f"vary.",
    ]
    if any((row["needed"] or 0) > row["n_seeds"] for row in rows):
        notes.append("A number above that of all seeds: there are too few for such an interval.")
    return Table(
        name="stability",
        title=f"Figures on {how.draws:,} random draws of {how.seeds:,} seeds, beside all seeds",
        columns=(
            Column("config", "source"),
            Column("model", "model"),
            Column("figure", "figure"),
            Column("n_seeds", "seeds", "count"),
            Column("value", "all seeds", "share", "value_ci"),
            Column("mean_off", "off, mean", "share"),
            Column("largest_off", "largest", "share"),
            Column("spread", "sd", "share"),
            Column("needed", "needed", "count"),
        ),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def influence_of(holds: NDArray[np.bool_], present: NDArray[np.bool_]) -> Floats:
    """Compute, (S,), what each seed adds to a share of seeds that is averaged over subsamples.

    Their mean is that share. Where every seed has variants in every subsample, it is the share
    of subsamples in which it holds; elsewhere a seed counts for more where there are fewer.

    Args:
        holds: (S, K) or (S, 1) whether it does, of each seed in each subsample.
        present: (S, K) whether the seed has variants there.
    """
    there: NDArray[np.bool_] = np.any(present, axis=0)
    present = present[:, there]
    in_each = np.broadcast_to(holds, (len(holds), len(there)))[:, there] & present
    n_present = present.sum(axis=0)
    shares = in_each.sum(axis=0) / n_present
    off = np.where(present, in_each - shares, 0.0) * len(present) / n_present
    influence: Floats = off.mean(axis=1) + shares.mean()
    return influence


def _row(figure: str, influence: Floats, draws: Floats, how: Draws) -> Row:
    """Make the row of a figure, of what each seed adds to it, (S,), and of its draws, (draws,)."""
    value = float(influence.mean())
    off = np.abs(draws - value)
    return {
        "figure": figure,
        "n_seeds": len(influence),
        "n_drawn": how.seeds,
        "value": value,
        "value_ci": interval(draws).tolist(),
        "mean_off": float(off.mean()),
        "largest_off": float(off.max()),
        "spread": float(draws.std(ddof=1)) if len(draws) > 1 else None,
        "needed": needed(influence, how.width / 100),
        "draws": draws.tolist(),
    }


def needed(influence: Floats, width: float) -> int | None:
    """Find the smallest number of seeds whose 95 % interval is no wider; None if all are alike.

    Args:
        influence: (S,) what each seed adds to a mean.
        width: As a share of 1.

    >>> needed(np.array([0.0, 1.0]), 0.1)
    385
    """
    spread = float(influence.std())
    if spread < 1e-12:
        return None
    return math.ceil((2 * _Z * spread / width) ** 2)


def plot_stability(table: Table) -> Figure:
    """Draw a panel per configuration: how far off each draw is, and the middle 95 % of them."""
    configs = distinct(table.rows, "config")
    figure, columns = panels(len(configs), 1)
    of_configs = [[row for row in table.rows if row["config"] == config] for config in configs]
    lines = [f"{row['model'] or 'labels'}: {row['figure']}" for row in table.rows]
    figure.set_size_inches(
        min(PAGE, COLUMN + 0.03 * max(map(len, lines))),
        sum(0.7 + 0.22 * len(rows) for rows in of_configs),
    )
    for (axes,), config, rows in zip(columns, configs, of_configs, strict=True):
        for place, row in enumerate(rows):
            off = 100 * (np.array(row["draws"]) - row["value"])
            low, high = (100 * (bound - row["value"]) for bound in row["value_ci"])
            colour = PALETTE[distinct(rows, "model").index(row["model"]) % len(PALETTE)]
            axes.plot([low, high], [place, place], color=colour, linewidth=5, alpha=0.35)
            axes.plot(off, [place] * len(off), "|", color=colour, markersize=8, alpha=0.5)
        axes.axvline(0, color="black", linewidth=0.8)
        names = [f"{row['model'] or 'labels'}: {row['figure']}" for row in rows]
        axes.set_yticks(range(len(rows)), names)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        grid(axes, "x")
        axes.set_title(config, fontsize="medium")
    columns[-1][0].set_xlabel("draws minus all seeds, points")
    return figure
