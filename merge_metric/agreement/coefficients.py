"""Cohen's κ and Krippendorff's α, of a sample and of many resampled samples at once.

A sample of items is summed up by a matrix: of two annotators the confusion matrix, of any number
the coincidence matrix. Both are sums over items, so those of resampled items are products with
the numbers of times that items were drawn, and no replicate takes a pass over the items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from merge_metric.seed_variant_accuracy.resampling import seed_weights

Floats = NDArray[np.float64]
Codes = NDArray[np.int8]
"""Answers, 1 to k; 0 where there is none."""

Weighting = Literal["plain", "linear", "quadratic"]
Level = Literal["nominal", "ordinal", "interval"]

WEIGHTINGS: Final[tuple[Weighting, ...]] = ("plain", "linear", "quadratic")
LEVELS: Final[tuple[Level, ...]] = ("nominal", "ordinal", "interval")


def resampled(seed_ids: Sequence[str], n_bootstrap: int, rng_seed: int) -> Floats:
    """Resample seeds: how often each item is drawn with its seed, (n_bootstrap, n).

    Variants of a seed are alike, so they say less than as many of different seeds.

    Args:
        seed_ids: (n,) of the items.
        n_bootstrap: Replicates.
        rng_seed: Of NumPy's default generator.
    """
    seeds, of_item = np.unique(np.array(seed_ids, np.str_), return_inverse=True)
    none = np.empty((0, len(seeds)))
    return np.concatenate([none, *seed_weights(len(seeds), n_bootstrap, rng_seed)])[:, of_item]


# --- Cohen's κ ---


def confusions(a: Codes, b: Codes, k: int) -> Floats:
    """Make each item's own confusion matrix, (n, k, k): a's answers in rows, b's in columns."""
    return _one_hot(a, k)[:, :, None] * _one_hot(b, k)[:, None, :]


def kappas(matrices: Floats, weighting: Weighting) -> Floats:
    """Compute κ of two annotators (Cohen 1960, 1968), (B,); NaN where it is undefined.

    Args:
        matrices: (B, k, k) of `confusions`, summed over items. That one of the k answers was never
            given takes no distance away.
        weighting: Of disagreements: all the same, or by distance or squared distance.
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
    """Make each item's own coincidence matrix, (n, k, k) (Krippendorff 2011).

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


def alphas(matrices: Floats, level: Level) -> Floats:
    """Compute α of all annotators (Krippendorff 2011), (B,); NaN where it is undefined.

    Args:
        matrices: (B, k, k) of `coincidences`, summed over items.
        level: How answers differ: at all, by rank, or by squared distance.
    """
    counts = matrices.sum(axis=2)
    total = counts.sum(axis=1)[:, None, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        by_chance = counts[:, :, None] * counts[:, None, :] / (total - 1)
        return _chance_corrected(matrices, by_chance, _differences(counts, level))


def _differences(counts: Floats, level: Level) -> Floats:
    """Compute δ², (B, k, k), of two answers; by rank, those given between them count."""
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
    """Put a 1 at the answer, (n, k); a row of zeros where there is none."""
    return np.eye(k + 1)[codes][:, 1:]


def _chance_corrected(observed: Floats, by_chance: Floats, distance: Floats) -> Floats:
    """Subtract observed over expected disagreement from 1; NaN where none is expected."""
    seen = (observed * distance).sum(axis=(1, 2))
    expected = (by_chance * distance).sum(axis=(1, 2))
    return np.where(expected > 0, 1 - seen / np.where(expected > 0, expected, 1), np.nan)
