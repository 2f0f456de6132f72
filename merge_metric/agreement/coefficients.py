"""Cohen's κ and Krippendorff's α: by their libraries, and of many resampled samples at once.

A sample of items is told by a matrix: of two annotators the confusion matrix, of any number the
coincidence matrix. Both are sums over items, so those of resampled items are products with the
numbers of times that items were drawn, and no replicate takes a pass over the items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int8]
"""Answers, 1 to k; 0 where there is none."""

Weighting = Literal["plain", "linear", "quadratic"]
Level = Literal["nominal", "ordinal", "interval"]

WEIGHTINGS: Final[tuple[Weighting, ...]] = ("plain", "linear", "quadratic")
LEVELS: Final[tuple[Level, ...]] = ("nominal", "ordinal", "interval")


def resampled(seed_ids: Sequence[str], n_bootstrap: int, rng_seed: int) -> Floats:
    """(n_bootstrap, n) how often each item is drawn, where seeds are, each with all its items.

    Variants of a seed are alike, so they say less than as many of different seeds.

    Args:
        seed_ids: (n,) of the items.
        n_bootstrap: Replicates.
        rng_seed: Of NumPy's default generator.
    """
    seeds, of_item = np.unique(np.array(seed_ids, np.str_), return_inverse=True)
    rng = np.random.default_rng(rng_seed)
    draws = rng.multinomial(len(seeds), np.full(len(seeds), 1 / len(seeds)), size=n_bootstrap)
    return np.asarray(draws[:, of_item], np.float64)


# --- Cohen's κ ---


def confusions(a: Codes, b: Codes, k: int) -> Floats:
    """(n, k, k) each item's own confusion matrix: a's answers in rows, b's in columns."""
    return _one_hot(a, k)[:, :, None] * _one_hot(b, k)[:, None, :]


def kappa(a: Codes, b: Codes, k: int, weighting: Weighting) -> float:
    """κ of two annotators (Cohen 1960, 1968), by scikit-learn; NaN where it is undefined.

    Args:
        a: (n,) one's answers.
        b: (n,) the other's. Items that one of the two did not answer do not count.
        k: How many answers there are. That one was never given takes no distance away, as it
            would if scikit-learn found out the answers by itself.
        weighting: Of disagreements: all the same, or by distance or squared distance.
    """
    from sklearn.metrics import cohen_kappa_score

    both = (a > 0) & (b > 0)
    if len(np.unique([a[both], b[both]])) < 2:
        return np.nan  # chance alone would have them agree
    weights = None if weighting == "plain" else weighting
    labels = np.arange(1, k + 1)
    return float(cohen_kappa_score(a[both], b[both], labels=labels, weights=weights))


def kappas(matrices: Floats, weighting: Weighting) -> Floats:
    """(B,) κ of confusion matrices (B, k, k); NaN where it is undefined."""
    distance = _distance(matrices.shape[-1], weighting)
    rows, columns = matrices.sum(axis=2), matrices.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        by_chance = rows[:, :, None] * columns[:, None, :] / rows.sum(axis=1)[:, None, None]
        return _one_less(matrices, by_chance, distance)


def _distance(k: int, weighting: Weighting) -> Floats:
    apart = np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(np.float64)
    if weighting == "plain":
        return np.sign(apart)
    return apart if weighting == "linear" else apart**2


# --- Krippendorff's α ---


def coincidences(codes: Codes, k: int) -> Floats:
    """(n, k, k) each item's own coincidence matrix (Krippendorff 2011).

    Every ordered pair of answers to the item by two annotators, over one less than their
    number, so that each answer counts once. Items with fewer than two answers have none.

    Args:
        codes: (annotators, n).
        k: How many answers there are.
    """
    counts = _one_hot(codes.reshape(-1), k).reshape(*codes.shape, k).sum(axis=0)
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(k)
    own: Floats = pairs / np.maximum(counts.sum(axis=1) - 1, 1)[:, None, None]
    return own


def alpha(codes: Codes, k: int, level: Level) -> float:
    """α of all annotators, by the package krippendorff; NaN where it is undefined.

    Args:
        codes: (annotators, n).
        k: How many answers there are.
        level: How answers differ: at all, by rank, or by squared distance.
    """
    import krippendorff

    pairable = codes[:, (codes > 0).sum(axis=0) >= 2]
    if len(np.unique(pairable[pairable > 0])) < 2:
        return np.nan
    data = np.where(pairable > 0, pairable, np.nan)
    domain = np.arange(1.0, k + 1)
    return float(
        krippendorff.alpha(reliability_data=data, value_domain=domain, level_of_measurement=level)
    )


def alphas(matrices: Floats, level: Level) -> Floats:
    """(B,) α of coincidence matrices (B, k, k); NaN where it is undefined."""
    counts = matrices.sum(axis=2)
    total = counts.sum(axis=1)[:, None, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        by_chance = counts[:, :, None] * counts[:, None, :] / (total - 1)
        return _one_less(matrices, by_chance, _differences(counts, level))


def _differences(counts: Floats, level: Level) -> Floats:
    """(B, k, k) δ² of two answers, which by rank depends on how often those between are given."""
    k = counts.shape[1]
    if level != "ordinal":
        return np.broadcast_to(
            _distance(k, "plain" if level == "nominal" else "quadratic"), (len(counts), k, k)
        )
    upto = np.cumsum(counts, axis=1)
    # From the middle of one answer's ranks to the middle of the other's.
    middle = upto - counts / 2
    return (middle[:, :, None] - middle[:, None, :]) ** 2


# --- Both ---


def _one_hot(codes: Codes, k: int) -> Floats:
    """(n, k) with a 1 at the answer; a row of zeros where there is none."""
    return np.eye(k + 1)[codes][:, 1:]


def _one_less(observed: Floats, by_chance: Floats, distance: Floats) -> Floats:
    """1 less observed over expected disagreement; NaN where none is expected."""
    seen = (observed * distance).sum(axis=(1, 2))
    expected = (by_chance * distance).sum(axis=(1, 2))
    return np.where(expected > 0, 1 - seen / np.where(expected > 0, expected, 1), np.nan)
