"""Cohen's κ, Krippendorff's α and Spearman's ρ, of a sample and of many resampled ones at once.

For κ and α an item is summed up by a confusion or coincidence matrix: those of resampled items are
products with the numbers of times that items were drawn.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.resampling import interval, seed_weights

Floats = NDArray[np.float64]
Codes = NDArray[np.int8]
"""Answers, 1 to k; 0 where there is none."""

Weighting = Literal["plain", "linear", "quadratic"]
Level = Literal["nominal", "ordinal", "interval"]

WEIGHTINGS: Final[tuple[Weighting, ...]] = ("plain", "linear", "quadratic")
LEVELS: Final[tuple[Level, ...]] = ("nominal", "ordinal", "interval")


def resampled(seed_ids: Sequence[str], settings: Settings) -> Floats:
    """Resample seeds of items, (n,): how often each item is drawn, (replicates, n)."""
    seeds, of_item = np.unique(np.array(seed_ids, np.str_), return_inverse=True)
    none = np.empty((0, len(seeds)))
    return np.concatenate([none, *seed_weights(len(seeds), settings)])[:, of_item]


# --- Cohen's κ ---


def confusions(a: Codes, b: Codes, k: int) -> Floats:
    """Make each item's own confusion matrix, (n, k, k): a's answers in rows, b's in columns."""
    return _one_hot(a, k)[:, :, None] * _one_hot(b, k)[:, None, :]


def kappas(matrices: Floats, weighting: Weighting) -> Floats:
    """Compute κ of two annotators (Cohen 1960, 1968), (B,); NaN where it is undefined.

    Of matrices, (B, k, k), of `confusions`, summed over items; disagreements weigh the same, or by
    distance or its square.
    """
    distance = _distance(matrices.shape[-1], weighting)
    rows, columns = matrices.sum(axis=2), matrices.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        by_chance = rows[:, :, None] * columns[:, None, :] / rows.sum(axis=1)[:, None, None]
        return _chance_corrected(matrices, by_chance, distance)


def _distance(k: int, weighting: Weighting) -> Floats:
    apart = np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(np.float64)
    if weighting == "plain":
        return np.sign(apart)
    return apart if weighting == "linear" else apart**2


# --- Krippendorff's α ---


def coincidences(codes: Codes, k: int) -> Floats:
    """Make each item's own coincidence matrix, (n, k, k) (Krippendorff 2011), of codes (A, n).

    Ordered pairs of answers by two annotators are divided by one less than the number of answers;
    an item with fewer than two has none.
    """
    counts = _one_hot(codes.reshape(-1), k).reshape(*codes.shape, k).sum(axis=0)
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(k)
    own: Floats = pairs / np.maximum(counts.sum(axis=1) - 1, 1)[:, None, None]
    return own


def alphas(matrices: Floats, level: Level) -> Floats:
    """Compute α (Krippendorff 2011), (B,), of summed `coincidences` (B, k, k); NaN if undefined."""
    counts, k = matrices.sum(axis=2), matrices.shape[-1]
    total = counts.sum(axis=1)[:, None, None]
    if level == "ordinal":  # from the middle of one answer's ranks to the middle of the other's
        middle = np.cumsum(counts, axis=1) - counts / 2
        distance = (middle[:, :, None] - middle[:, None, :]) ** 2
    else:
        distance = _distance(k, "plain" if level == "nominal" else "quadratic")
    with np.errstate(invalid="ignore", divide="ignore"):
        by_chance = counts[:, :, None] * counts[:, None, :] / (total - 1)
        return _chance_corrected(matrices, by_chance, distance)


# --- Both ---


def _one_hot(codes: Codes, k: int) -> Floats:
    """Put a 1 at the answer, (n, k); a row of zeros where there is none."""
    return np.eye(k + 1)[codes][:, 1:]


def _chance_corrected(observed: Floats, by_chance: Floats, distance: Floats) -> Floats:
    """Subtract observed over expected disagreement from 1; NaN where none is expected."""
    seen = (observed * distance).sum(axis=(1, 2))
    expected = (by_chance * distance).sum(axis=(1, 2))
    return np.where(expected > 0, 1 - seen / np.where(expected > 0, expected, 1), np.nan)


# --- Spearman's ρ ---

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def spearman(x: Floats, y: Floats) -> float | None:
    """Compute Spearman's ρ, by SciPy; None where one of the two is the same everywhere."""
    from scipy.stats import spearmanr

    if len(np.unique(x)) < 2 or len(np.unique(y)) < 2:
        return None
    return round(float(spearmanr(x, y).statistic), 12)


def within_seeds(x: Floats, y: Floats, seed: Ints, n_seeds: int) -> Floats:
    """Sum products and squares of (n,) centred ranks within each seed (n,): (n_seeds, 3)."""
    ranks = []
    for values in (x, y):
        group = np.unique(values, return_inverse=True)[1]
        # Seed by seed, each value once: ranks start again at every seed.
        _, of_seed, sizes = np.unique(
            seed * (group.max(initial=0) + 1) + group, return_inverse=True, return_counts=True
        )
        mean_rank = np.cumsum(sizes) - (sizes - 1) / 2
        rank, n = mean_rank[of_seed], np.bincount(seed, minlength=n_seeds)
        means = np.bincount(seed, rank, minlength=n_seeds) / np.maximum(n, 1)
        ranks.append(rank - means[seed])
    a, b = ranks
    sums: Floats = np.stack(
        [np.bincount(seed, part, minlength=n_seeds) for part in (a * b, a * a, b * b)], axis=1
    )
    return sums


def pooled(sums: Floats) -> Floats:
    """Compute ρ, (…,), from sums of `within_seeds` over seeds, (…, 3); NaN if ranks are equal."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rho: Floats = sums[..., 0] / np.sqrt(sums[..., 1] * sums[..., 2])
    return rho


def spearman_interval(x: Floats, y: Floats, seed: Ints, weights: Iterable[Floats]) -> Floats:
    """Compute a bootstrap interval (2,) of `spearman` over seeds (n,), drawn as weights (b, S)."""
    a, b = (np.unique(values, return_inverse=True)[1] for values in (x, y))
    replicates = [weighted_spearman(a, b, drawn[seed]) for part in weights for drawn in part]
    return interval(np.array(replicates))


def weighted_spearman(x: Ints, y: Ints, weight: Floats) -> float:
    """Compute ρ of x and y, (n,) dense ranks from 0, with whole weights, (n,); NaN if constant."""
    total = weight.sum()
    ranks = []
    for group in (x, y):  # from 1, equal values sharing the mean of their ranks
        sizes = np.bincount(group, weights=weight)
        ranks.append((np.cumsum(sizes) - (sizes - 1) / 2)[group])
    # Ranks average (total + 1) / 2 whatever their ties.
    a, b = (rank - (total + 1) / 2 for rank in ranks)
    spread = (weight * a * a).sum() * (weight * b * b).sum()
    return float((weight * a * b).sum() / np.sqrt(spread)) if spread > 0 else float("nan")


def auc(groups: Ints, is_good: Mask, weights: Floats) -> Floats:
    """Compute the areas under ROC curves, (b,): how often a good variant's signal is the higher.

    Ties count half; NaN without good variants, or with only good ones. Groups, (n,), are places of
    the signal among its different values, ascending; weights, (b, n), say how often each variant
    counts.

    >>> signal, is_good = np.array([0, 1, 1, 2]), np.array([False, True, False, True])
    >>> auc(signal, is_good, np.ones((1, 4))).tolist()
    [0.875]
    """
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    good, bad = (
        np.add.reduceat((weights * part)[:, order], starts, axis=1) for part in (is_good, ~is_good)
    )
    below = np.cumsum(bad, axis=1) - bad / 2
    with np.errstate(invalid="ignore"):  # 0/0: one kind was not drawn
        areas: Floats = (good * below).sum(1) / (good.sum(1) * bad.sum(1))
    return areas
