"""Distances between the label distributions of variants and those of their seeds.

Arakelyan, Liu and Augenstein (2024), section 5.2, figures 3 and 4.
"""

import math
from collections.abc import Sequence
from functools import reduce
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from .figures import Floats

Sums = dict[str, tuple[float, int]]
"""Key → the sum of some values, and how many they are."""


def distribution_shift(
    own_distribution: Floats,
    distribution: Floats,
    seed: NDArray[np.int64],
    changed: NDArray[np.bool_],
) -> Sums:
    """Sum n variants' divergences and confidences, split by whether the prediction changed.

    Distributions are (n, L): those of the variants and, `own_distribution`, of the variants' seeds,
    which `seed` numbers. `jsd_*` in bits (0–1) and `ks_*` (0–1) are of a variant and its seed, over
    variants; `sigma_*`, the standard deviation of label probabilities, is over seeds (each once)
    and over variants. `means` averages them.
    """
    _, first = np.unique(seed, return_index=True)
    divergence = jensen_shannon(own_distribution, distribution)
    distance = kolmogorov_smirnov(own_distribution, distribution)
    spread = sigma(distribution)
    values = {"sigma_seeds": sigma(own_distribution[first])}
    for name, group in (("changed", changed), ("unchanged", ~changed)):
        values[f"jsd_{name}"] = divergence[group]
        values[f"ks_{name}"] = distance[group]
        values[f"sigma_{name}"] = spread[group]
    return {key: (float(of.sum()), len(of)) for key, of in values.items()}


def added(parts: Sequence[Sums]) -> Sums:
    """Add the sums of several parts of the variants, which share no seed."""
    return {
        key: (math.fsum(part[key][0] for part in parts), sum(part[key][1] for part in parts))
        for key in parts[0]
    }


def means(sums: Sums) -> dict[str, float | None]:
    """Average: None where there is nothing.

    >>> means({"jsd_changed": (1.5, 3), "jsd_unchanged": (0.0, 0)})
    {'jsd_changed': 0.5, 'jsd_unchanged': None}
    """
    return {key: total / count if count else None for key, (total, count) in sums.items()}


def jensen_shannon(p: Floats, q: Floats) -> Floats:
    """Compute the Jensen–Shannon divergence, (n,) in bits, 0 to 1, of two (n, L) tables' rows.

    >>> jensen_shannon(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.0, 1.0], [0.5, 0.5]]))
    array([1., 0.])
    """
    middle = (p + q) / 2
    return np.clip((_relative_entropy(p, middle) + _relative_entropy(q, middle)) / 2, 0, 1)


def kolmogorov_smirnov(p: Floats, q: Floats) -> Floats:
    """Compute the Kolmogorov–Smirnov distance, (n,) 0 to 1, of two (n, L) tables' rows.

    It is the largest difference of their cumulative distributions over the labels, in the order
    of the columns: entailment, neutral, contradiction.

    >>> kolmogorov_smirnov(np.array([[1.0, 0.0, 0.0]]), np.array([[0.5, 0.25, 0.25]]))
    array([0.5])
    """
    distance: Floats = reduce(np.maximum, map(np.abs, accumulate((p - q).T)))
    return np.clip(distance, 0, 1)


def sigma(p: Floats) -> Floats:
    """Compute the population standard deviation, (n,), of each row's probabilities.

    At most 0.471 for three labels, when one of them has all.

    >>> sigma(np.array([[1.0, 0.0, 0.0]])).round(3)
    array([0.471])
    """
    n_labels = p.shape[1]
    away = p - (_sums(p) / n_labels)[:, None]
    spread: Floats = np.sqrt(_sums(away * away) / n_labels)
    return spread


def _relative_entropy(p: Floats, q: Floats) -> Floats:
    ratio = np.divide(p, q, out=np.ones_like(p), where=p > 0)
    return _sums(p * np.log2(ratio))


def _sums(table: Floats) -> Floats:
    """Add up rows, column by column: ten times as fast as short rows one by one, and the same."""
    total: Floats = reduce(np.add, table.T)
    return total
