"""Counts → figures. One formula each, over any number of reweighted sets of seeds at once.

Arrays have a leading axis B, the replicates of a bootstrap; the figures of the data
themselves are those of a single replicate in which every seed weighs one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .counts import SeedCounts

Floats = NDArray[np.float64]

THRESHOLDS: Final = np.arange(1, 101)
"""Every correctness threshold, in integer percent."""

QUALITY_THRESHOLD: Final = 90
"""The CT of the QT gap (paper v1, Table 3)."""

_DECIMALS: Final = 12
"""Averages over subsamples that differ by less are rounding errors of equal ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """Figures of B replicates in K subsamples; NaN where one is undefined."""

    scalars: dict[str, Floats]
    """Result key → (B, K)."""
    curve: Floats
    """(B, K, 100) SV accuracy at CT 1..100."""
    has_subsamples: bool

    def means(self) -> dict[str, Floats]:
        """Result key → (B,) averages over the subsamples in which the figure is defined."""
        averaged = {key: _mean(values) for key, values in self.scalars.items()}
        if self.has_subsamples:
            averaged |= self._of_mean_curve()
        return averaged

    def mean_curve(self) -> Floats:
        """(B, 100) the SV curve, averaged over subsamples."""
        return _mean(np.moveaxis(self.curve, 1, -1))

    def spreads(self) -> dict[str, Floats]:
        """Result key → (B,) standard deviations over subsamples (ddof 1); 0 for one."""
        return {key: _spread(values) for key, values in self.scalars.items()}

    def _of_mean_curve(self) -> dict[str, Floats]:
        above = self.curve - self.scalars["seed_accuracy"][:, :, None]
        gap = np.abs(_mean(np.moveaxis(above, 1, -1))).round(_DECIMALS)
        low, high, least = matching(gap)
        return {
            "matching_threshold_of_mean_curve": low,
            "matching_threshold_of_mean_curve_low": low,
            "matching_threshold_of_mean_curve_high": high,
            "matching_gap_of_mean_curve": least,
        }


def figures(
    counts: SeedCounts, correctness_threshold: int = 90, weights: Floats | None = None
) -> Figures:
    """Every figure of the seeds, each weighing so many times as `weights` says.

    Args:
        counts: Of S seeds in K subsamples.
        correctness_threshold: CT of `seed_variant_accuracy`, integer percent 1–100.
        weights: (B, S) whole numbers; by default one replicate of ones.
    """
    if weights is None:
        weights = np.ones((1, len(counts.seed_ids)))
    per_subsample = [
        _of_subsample(counts, k, weights, correctness_threshold)
        for k in range(counts.n_variants.shape[1])
    ]
    return Figures(
        scalars={
            key: np.stack([scalars[key] for scalars, _ in per_subsample], axis=1)
            for key in per_subsample[0][0]
        },
        curve=np.stack([curve for _, curve in per_subsample], axis=1),
        has_subsamples=counts.has_subsamples,
    )


def matching(gap: Floats) -> tuple[Floats, Floats, Floats]:
    """Matching correctness threshold: where SV comes closest to S (paper, section 4).

    SV is a step function, so the thresholds of least gap form an interval.

    Args:
        gap: (…, 100) |SV(CT) − S| for CT 1..100, in any unit.

    Returns:
        Lowest and highest threshold of least gap, and that gap, each (…). The lowest is
        the one quoted, as the paper's values ending in 1 and 6 show (20 variants per seed).

    >>> low, high, least = matching(np.abs(np.repeat([90, 80, 50], [40, 30, 30]) - 85))
    >>> int(low), int(high), int(least)
    (1, 70, 5)
    """
    least = gap.min(axis=-1)
    tied = gap == least[..., None]
    low = tied.argmax(axis=-1) + 1.0
    high = 100.0 - tied[..., ::-1].argmax(axis=-1)
    return low, high, least


def _of_subsample(
    counts: SeedCounts, k: int, weights: Floats, correctness_threshold: int
) -> tuple[dict[str, Floats], Floats]:
    """Scalars, each (B,), and the curve, (B, 100), of one subsample."""
    present, right = counts.present[:, k], counts.right & counts.present[:, k]
    columns = (
        present,
        right,
        counts.n_variants[:, k],
        counts.n_correct[:, k],
        right & (counts.n_changed[:, k] > 0),
        right & (counts.n_opposite[:, k] > 0),
    )
    # One product: whole numbers far below 2**53, so exact in any order of summation.
    # The bootstrap's draws meet levels, of which there are at most 101, not thresholds.
    levels, level = np.unique(counts.level[:, k], return_inverse=True)
    table = np.zeros((len(present), len(columns) + len(levels)))
    table[:, : len(columns)] = np.stack(columns, axis=1)
    table[np.arange(len(present)), len(columns) + level] = present
    sums = weights @ table
    seeds, rights, variants, corrects, changed, opposite = sums[:, : len(columns)].T

    reached = np.zeros((len(weights), 101))
    reached[:, levels] = sums[:, len(columns) :]
    solved = reached[:, :0:-1].cumsum(axis=1)[:, ::-1]  # at CT 1..100
    low, high, least = matching(np.abs(solved - rights[:, None]))
    holding = (solved >= rights[:, None]).sum(axis=1).astype(float)  # SV only falls with CT

    with np.errstate(invalid="ignore", divide="ignore"):  # 0/0: undefined, NaN
        curve = solved / seeds[:, None]
        defined = np.where(seeds > 0, 1.0, np.nan)
        scalars = {
            "seed_accuracy": rights / seeds,
            "variant_accuracy": corrects / variants,
            "seed_variant_accuracy": curve[:, correctness_threshold - 1],
            "qt_gap": (rights - solved[:, QUALITY_THRESHOLD - 1]) / seeds,
            "matching_threshold": low * defined,
            "matching_threshold_low": low * defined,
            "matching_threshold_high": high * defined,
            "matching_gap": least / seeds,
            "holding_threshold": holding * defined,
            "relaxed_fooling_rate": changed / rights,
            "strict_fooling_rate": opposite / rights,
        }
    return scalars, curve


def _sum(values: Floats) -> Floats:
    total: Floats = np.where(np.isnan(values), 0.0, values).sum(axis=-1)
    return total


def _mean(values: Floats) -> Floats:
    """Averages over the last axis of what is not NaN; NaN where nothing is."""
    with np.errstate(invalid="ignore"):
        mean: Floats = _sum(values) / (~np.isnan(values)).sum(axis=-1)
    return mean


def _spread(values: Floats) -> Floats:
    mean = _mean(values)
    degrees = np.maximum((~np.isnan(values)).sum(axis=-1) - 1, 1)
    spread: Floats = np.sqrt(_sum((values - mean[..., None]) ** 2) / degrees)
    return np.where(np.isnan(mean), np.nan, spread)
