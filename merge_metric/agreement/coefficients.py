"""Cohen's κ, Krippendorff's α and Spearman's ρ, of a sample and of many resampled ones at once.

For κ and α each item has a confusion or coincidence matrix. The matrix of a resampled set is the
sum of its items' matrices, weighted by how often each item was drawn.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.resampling import interval, seed_weights

Floats = NDArray[np.float64]
Codes = NDArray[np.int8]
"""Array of answers, 1 to k; 0 where there is none."""

Weighting = Literal["plain", "linear", "quadratic"]
Level = Literal["nominal", "ordinal", "interval"]


def resampled(seed_ids: Sequence[str], settings: Settings) -> Floats:
    """Resample seeds of items, (n,): how often each item is drawn, (replicates, n)."""
    seeds, of_item = np.unique(np.array(seed_ids, np.str_), return_inverse=True)
    none = np.empty((0, len(seeds)))
    return np.concatenate([none, *seed_weights(len(seeds), settings)])[:, of_item]


# --- Cohen's κ ---


def confusions(a: Codes, b: Codes, k: int) -> Floats:
    """Make a confusion matrix per item, (n, k, k): a's answers in rows, b's in columns."""
    return _one_hot(a, k)[:, :, None] * _one_hot(b, k)[:, None, :]


def kappas(matrices: Floats, weighting: Weighting) -> Floats:
    """Compute κ of two annotators (Cohen 1960, 1968), (B,); NaN where it is undefined.

    `matrices`, (B, k, k), are those of `confusions`, summed over items. Disagreements have equal
    weights, or weights by distance or by its square.
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
    """Make a coincidence matrix per item, (n, k, k), of codes (A, n) (Krippendorff 2011).

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
    if level == "ordinal":  # from one answer's mean rank to the other's
        middle = np.cumsum(counts, axis=1) - counts / 2
        distance = (middle[:, :, None] - middle[:, None, :]) ** 2
    else:
        distance = _distance(k, "plain" if level == "nominal" else "quadratic")
    with np.errstate(invalid="ignore", divide="ignore"):
        by_chance = counts[:, :, None] * counts[:, None, :] / (total - 1)
        return _chance_corrected(matrices, by_chance, distance)


# --- Both ---


def _one_hot(codes: Codes, k: int) -> Floats:
    """Encode answers as one-hot rows, (n, k); zeros where there is no answer."""
    return np.eye(k + 1)[codes][:, 1:]


def _chance_corrected(observed: Floats, by_chance: Floats, distance: Floats) -> Floats:
    """Compute 1 − observed / expected disagreement; NaN where no disagreement is expected."""
    seen = (observed * distance).sum(axis=(1, 2))
    expected = (by_chance * distance).sum(axis=(1, 2))
    return np.where(expected > 0, 1 - seen / np.where(expected > 0, expected, 1), np.nan)


# --- Spearman's ρ ---

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def spearman(x: Floats, y: Floats) -> float | None:
    """Compute Spearman's ρ by SciPy; None where `x` or `y` is constant."""
    from scipy.stats import spearmanr

    if len(np.unique(x)) < 2 or len(np.unique(y)) < 2:
        return None
    return round(float(spearmanr(x, y).statistic), 12)


def within_seeds(x: Floats, y: Floats, seed: Ints, n_seeds: int) -> Floats:
    """Rank x and y within each seed; sum products and squares of centred ranks, (n_seeds, 3)."""
    ranks = []
    for values in (x, y):
        group = np.unique(values, return_inverse=True)[1]
        # Distinct values of each seed in turn: ranks start again at every seed.
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
    """Compute ρ, (…,), from sums of `within_seeds` over seeds, (…, 3); NaN if all tie."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rho: Floats = sums[..., 0] / np.sqrt(sums[..., 1] * sums[..., 2])
    return rho


def spearman_interval(x: Floats, y: Floats, seed: Ints, weights: Iterable[Floats]) -> Floats:
    """Compute the bootstrap interval, (2,), of `spearman`; `weights`, (b, S), resample seeds."""
    a, b = (np.unique(values, return_inverse=True)[1] for values in (x, y))
    replicates = [weighted_spearman(a, b, drawn[seed]) for part in weights for drawn in part]
    return interval(np.array(replicates))


def weighted_spearman(x: Ints, y: Ints, weight: Floats) -> float:
    """Compute ρ of dense ranks from 0, (n,), with integer weights, (n,); NaN if one is constant."""
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
    """Compute areas under ROC curves, (b,): how often a good variant has the higher signal.

    Ties count half; NaN without good variants, or with only good ones. `groups`, (n,), are dense
    ranks of the signal from 0, ascending; `weights`, (b, n), say how often each variant counts.

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
    with np.errstate(invalid="ignore"):  # 0/0: no good variant, or no other one, was drawn
        areas: Floats = (good * below).sum(1) / (good.sum(1) * bad.sum(1))
    return areas
