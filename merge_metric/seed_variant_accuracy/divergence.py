"""Distances between the label distributions of variants and those of their seeds.

Arakelyan, Liu and Augenstein (2024), section 5.2, figures 3 and 4.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .figures import Floats

_TERMS: Final = 100
"""Terms of the Kolmogorov series; the rest is below double precision where it matters."""


def distribution_shift(
    own_distribution: Floats,
    distribution: Floats,
    seed: NDArray[np.int64],
    own_prediction: NDArray[np.int64],
    changed: NDArray[np.bool_],
) -> dict[str, float]:
    """Measure n variants' divergences and confidences, split by whether the prediction changed.

    Args:
        own_distribution: (n, L) label probabilities of the variant's seed.
        distribution: (n, L) label probabilities of the variant.
        seed: (n,) which seed, any ints.
        own_prediction: (n,) label predicted for the seed.
        changed: (n,) whether the variant is predicted differently.

    Returns:
        `jsd_*` in bits (0–1), averaged over variants; `ks_*` (0–1) with `ks_*_p_value`
        between the probabilities that variants and that their seeds give to the seed's
        predicted label, one of each per variant; `sigma_*`, the average standard
        deviation of label probabilities, over seeds (each once) and variants. NaN where
        a group is empty. The p-values take rows for independent, which variants of one
        seed are not.
    """
    _, first = np.unique(seed, return_index=True)
    at = np.arange(len(seed))
    before, after = own_distribution[at, own_prediction], distribution[at, own_prediction]
    divergence = jensen_shannon(own_distribution, distribution)
    spread = sigma(distribution)
    result = {"sigma_seeds": _mean(sigma(own_distribution[first]))}
    for name, group in (("changed", changed), ("unchanged", ~changed)):
        result[f"jsd_{name}"] = _mean(divergence[group])
        statistic, p_value = kolmogorov_smirnov(before[group], after[group])
        result |= {f"ks_{name}": statistic, f"ks_{name}_p_value": p_value}
        result[f"sigma_{name}"] = _mean(spread[group])
    return result


def jensen_shannon(p: Floats, q: Floats) -> Floats:
    """Compute the Jensen–Shannon divergence, (n,) in bits, 0 to 1, of two (n, L) tables' rows.

    >>> jensen_shannon(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.0, 1.0], [0.5, 0.5]]))
    array([1., 0.])
    """
    middle = (p + q) / 2
    return np.clip((_relative_entropy(p, middle) + _relative_entropy(q, middle)) / 2, 0, 1)


def kolmogorov_smirnov(x: Floats, y: Floats) -> tuple[float, float]:
    """Compute the two-sample Kolmogorov–Smirnov statistic and its limiting two-sided p-value.

    NaN both where a sample is empty.

    >>> kolmogorov_smirnov(np.array([0.1, 0.2]), np.array([0.1, 0.9]))[0]
    0.5
    """
    n, m = len(x), len(y)
    if not n or not m:
        return math.nan, math.nan
    x, y = np.sort(x), np.sort(y)
    values = np.concatenate([x, y])
    below_x = np.searchsorted(x, values, side="right") / n
    below_y = np.searchsorted(y, values, side="right") / m
    statistic = float(np.abs(below_x - below_y).max())
    return statistic, _kolmogorov_tail(statistic * math.sqrt(n * m / (n + m)))


def sigma(p: Floats) -> Floats:
    """Compute the population standard deviation, (n,), of each row's probabilities.

    At most 0.471 for three labels, when one of them has all.

    >>> sigma(np.array([[1.0, 0.0, 0.0]])).round(3)
    array([0.471])
    """
    spread: Floats = p.std(axis=1)
    return spread


def _relative_entropy(p: Floats, q: Floats) -> Floats:
    ratio = np.divide(p, q, out=np.ones_like(p), where=p > 0)
    total: Floats = (p * np.log2(ratio)).sum(axis=1)
    return total


def _kolmogorov_tail(z: float) -> float:
    """Compute P(K > z) of the Kolmogorov distribution."""
    if z < 0.2:  # there it differs from 1 by less than 1e-12, and the series is slow
        return 1.0
    k = np.arange(1, _TERMS + 1)
    return float(np.clip(2 * np.sum((-1.0) ** (k - 1) * np.exp(-2.0 * (k * z) ** 2)), 0, 1))


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan
