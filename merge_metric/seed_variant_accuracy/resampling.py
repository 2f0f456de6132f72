"""Uncertainty: bootstrap over seeds, and paired comparison of models on the same seeds.

Variants of a seed are alike, so seeds, not rows, are what is resampled; and seeds of a premise may
be, so on request clusters of seeds are.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .counts import SeedCounts
from .figures import Floats, figures, none_if_nan
from .inputs import Clusters, Ints
from .options import USUAL, Settings

CONFIDENCE: Final = 0.95
"""Level of every interval; percentile method (Efron and Tibshirani 1993, chapter 13)."""

_CHUNK: Final = 2**22
"""Draws held in memory at a time."""


def bootstrap(
    tables: Sequence[SeedCounts], settings: Settings
) -> list[tuple[dict[str, Floats], Floats]]:
    """Compute figures of resamplings of each table, key → (B,), and their SV curves, (B, 100).

    The tables count equally many seeds, and share the draws; with clusters there is only one.
    """
    means: list[list[dict[str, Floats]]] = [[] for _ in tables]
    curves: list[list[Floats]] = [[] for _ in tables]
    for weights in seed_weights(len(tables[0].seed_ids), settings, tables[0].clusters):
        for number, counts in enumerate(tables):
            resampled = figures(counts, settings.correctness_threshold, weights)
            means[number].append(resampled.means())
            curves[number].append(resampled.mean_curve())
    return [
        ({key: np.concatenate([part[key] for part in parts]) for key in parts[0]}, joined)
        for parts, joined in zip(means, map(np.concatenate, curves), strict=True)
    ]


def interval(replicates: Floats) -> Floats:
    """Find the bounds, (2, …), over the replicates, (B, …), that are defined; else NaN."""
    tail = (1 - CONFIDENCE) / 2
    if replicates.ndim == 1:
        replicates = replicates[~np.isnan(replicates)]
        if not len(replicates):
            return np.full(2, np.nan)
    return np.asarray(np.quantile(replicates, [tail, 1 - tail], axis=0))


class Difference(NamedTuple):
    """A figure of two models, a and b, and a − b, with its interval; NaN where undefined."""

    a: float
    b: float
    difference: float
    low: float
    high: float
    p_value: float
    """Two-sided share of replicates on the other side of 0 (Davison, Hinkley 1997, section 4.2)."""

    def as_dict(self) -> dict[str, Any]:
        """Make plain values for JSON: the interval is `ci`, and None is undefined."""
        a, b, difference, low, high, p_value = map(none_if_nan, self)
        return {"a": a, "b": b, "difference": difference, "ci": [low, high], "p_value": p_value}


class McNemar(NamedTuple):
    """Numbers of seeds that only one of two models gets right, and the exact p-value."""

    only_a: int
    only_b: int
    p_value: float


class Pair(NamedTuple):
    """Two models compared: the differences of figures, by key, and McNemar's test."""

    figures: Mapping[str, Difference]
    mcnemar: McNemar


def compare(a: SeedCounts, b: SeedCounts, settings: Settings = USUAL) -> dict[str, dict[str, Any]]:
    """Compare two models, as pairs: by figure what `Difference.as_dict` has, and `mcnemar`."""
    pair = compare_all([a, b], settings)[0][0, 1]
    compared = {key: of.as_dict() for key, of in pair.figures.items()}
    return compared | {"mcnemar": pair.mcnemar._asdict()}


def compare_all(
    models: Sequence[SeedCounts], settings: Settings = USUAL, replicates: int | None = None
) -> tuple[dict[tuple[int, int], Pair], list[dict[str, Floats]]]:
    """Compare every pair of models on the same seeds and variants, resampled alike for all.

    Returns pairs by the positions of their models, the lower first, and the figures of each model's
    replicates, (B,), which may be more than those of the settings.
    """
    one, codes = models[0], [m.clusters and _in_order(m.clusters.code).tolist() for m in models]
    for other, code in zip(models, codes, strict=True):
        is_same = {
            "seeds": one.seed_ids == other.seed_ids,
            "gold labels": one.labels == other.labels and np.array_equal(one.gold, other.gold),
            "subsamples": one.has_subsamples == other.has_subsamples,
            "numbers of variants": np.array_equal(one.n_variants, other.n_variants),
            "clusters of seeds": codes[0] == code,
        }
        if odd := [what for what, same in is_same.items() if not same]:
            raise ValueError(
                "expected the same seeds, gold labels and variants for both models, got other "
                f"{odd[0]}"
            )
    if not settings.n_bootstrap:
        raise ValueError("n_bootstrap: expected an int of 1 or more, got 0")
    many = replace(settings, n_bootstrap=replicates or settings.n_bootstrap)
    resampled = [means for means, _ in bootstrap(models, many)]
    exact = [figures(model, settings.correctness_threshold).means() for model in models]
    compared = dict[tuple[int, int], Pair]()
    for i, j in combinations(range(len(models)), 2):
        a, b = models[i].right, models[j].right
        only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
        differences = {
            key: _difference(of_a[0], exact[j][key][0], resampled[i][key] - resampled[j][key])
            for key, of_a in exact[i].items()
        }
        compared[i, j] = Pair(differences, McNemar(only_a, only_b, mcnemar(only_a, only_b)))
    return compared, resampled


def _difference(a: float, b: float, replicates: Floats) -> Difference:
    defined, p_value = replicates[~np.isnan(replicates)], math.nan
    if len(defined):
        side = min((defined <= 0).sum(), (defined >= 0).sum())
        p_value = float(min(1.0, 2 * (side + 1) / (len(defined) + 1)))
    low, high = interval(replicates)
    return Difference(a, b, a - b, low, high, p_value)


def mcnemar(only_a: int, only_b: int) -> float:
    """Compute the exact two-sided p-value of McNemar's test (McNemar 1947), by the binomial.

    `only_a` and `only_b` are the numbers of seeds that only one of two models gets right.

    >>> mcnemar(3, 3), mcnemar(0, 5)
    (1.0, 0.0625)
    """
    n, fewer = only_a + only_b, min(only_a, only_b)
    # Whole numbers of any size: nothing is rounded before the division.
    term = tail = 1
    for k in range(1, fewer + 1):
        term = term * (n - k + 1) // k
        tail += term
    return float(min(Fraction(1), Fraction(2 * tail, 2**n)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for several comparisons (Holm 1979), in the order given.

    >>> holm([0.04, 0.01, 0.03])
    [0.06, 0.03, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return [float(value) for value in adjusted]


def seed_weights(
    n_seeds: int, settings: Settings, clusters: Clusters | None = None
) -> Iterator[Floats]:
    """Resample seeds, or clusters of seeds, with replacement: the home of every bootstrap.

    Yields how often each seed is drawn, (b, S) at a time, B rows in all. As many clusters are drawn
    as there are, numbered in the order in which their first seeds come.
    """
    rng = np.random.default_rng(settings.rng_seed)
    cluster = None if clusters is None else _in_order(clusters.code)
    n_units = n_seeds if cluster is None else int(cluster.max(initial=-1)) + 1
    rows = max(1, _CHUNK // n_seeds)
    for start in range(0, settings.n_bootstrap, rows):
        b = min(rows, settings.n_bootstrap - start)
        times = np.empty((b, n_units))
        for row in times:  # one by one, as the counts of one stay in the processor's cache
            row[:] = np.bincount(rng.integers(n_units, size=n_units), minlength=n_units)
        yield times if cluster is None else times[:, cluster]


def resampled_units(cluster: str) -> str:
    """Name what is resampled, for "bootstrap over …": clusters by a column, or seeds where empty.

    >>> resampled_units(""), resampled_units("premise")
    ('seeds', 'seeds, those with the same premise together')
    """
    return f"seeds, those with the same {cluster} together" if cluster else "seeds"


def _in_order(code: Ints) -> Ints:
    """Number clusters, (S,), from 0 in the order in which they first come."""
    _, first, cluster = np.unique(code, return_index=True, return_inverse=True)
    rank = np.empty_like(first)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[cluster]


def content_order(counts: SeedCounts) -> NDArray[np.intp]:
    """Order seeds by their counts, so that their names decide nothing.

    Numbers are compared, as big-endian bytes, so that doubling all counts changes nothing.
    Clusters are ordered by the counts of all of their seeds: a cluster's seeds stand together.
    """
    columns = (
        counts.gold[:, None],
        counts.own[:, None],
        counts.n_variants,
        counts.n_correct,
        counts.n_changed,
        counts.n_opposite,
        counts.n_commonest,
    )
    table = np.concatenate(columns, axis=1).astype(">i8")
    contents = table.view(np.dtype((np.void, table[0].nbytes))).ravel()
    if counts.clusters is None:
        return np.argsort(contents, kind="stable")
    _, rank = np.unique(contents, return_inverse=True)
    within = np.lexsort((rank, counts.clusters.code))
    starts = np.flatnonzero(np.diff(counts.clusters.code[within])) + 1
    of_cluster = sorted(np.split(within, starts), key=lambda seeds: rank[seeds].tolist())
    return np.concatenate(of_cluster)
