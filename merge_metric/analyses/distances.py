"""Distances of sentences in the space of an encoder (Arakelyan et al. 2024, section 5.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from merge_metric.seed_variant_accuracy.divergence import jensen_shannon

Floats = NDArray[np.float64]

Encode = Callable[[Sequence[str]], Floats]
"""n sentences → (n, d) embeddings."""

_BIN: Final = 0.01
"""Width of a histogram's bins."""


def cosine_distances(one: Sequence[str], other: Sequence[str], encode: Encode) -> Floats:
    """(n,) one less the cosine of the embeddings of two lists of n sentences, 0 to 2.

    Each distinct sentence is encoded once.
    """
    places = {text: number for number, text in enumerate(dict.fromkeys([*one, *other]))}
    embeddings = np.asarray(encode(list(places)), np.float64)
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    directions = embeddings / np.where(norms > 0, norms, 1.0)
    a, b = (directions[[places[text] for text in texts]] for texts in (one, other))
    distances: Floats = np.clip(1 - (a * b).sum(axis=1), 0, 2)
    return distances


def histogram_divergence(one: Floats, other: Floats) -> float | None:
    """Jensen–Shannon divergence in bits of two samples of distances; None where one is empty.

    Of their histograms in bins of width 0.01. Small samples diverge by chance alone.

    >>> histogram_divergence(np.array([0.001, 0.1]), np.array([0.009, 0.5]))
    0.5
    """
    if not len(one) or not len(other):
        return None
    bins = np.linspace(0, 2, round(2 / _BIN) + 1)
    p, q = (np.histogram(sample, bins)[0] / len(sample) for sample in (one, other))
    return float(jensen_shannon(p[None], q[None])[0])
