"""How hard a seed is, for the analysis `hardest` and for the report alike.

A seed is the harder, the fewer of its variants are answered right, averaged over models: the
"average accuracy of NLI models across all variants per seed" of the paper's table 11. Each
distinct variant counts once. Subsamples, over which all other figures are averages, let seeds
with many and with few variants weigh the same; of one seed alone they would only leave variants
out, and weigh those more that were drawn more often.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_DECIMALS: Final = 12
"""Averages that differ by less are rounding errors of equal ones."""


def mean_right(n_right: Ints, n_answered: Ints) -> Floats:
    """Share of each seed's variants that is answered right, averaged over models.

    Args:
        n_right: (M, S) distinct variants that each model answers right.
        n_answered: (M, S) those that it answers; models without any do not count.

    Returns:
        (S,) from 0 to 1, NaN where no model answers any.

    >>> mean_right(np.array([[1, 0], [3, 0]]), np.array([[2, 0], [3, 0]])).tolist()
    [0.75, nan]
    """
    answered = n_answered > 0
    shares = np.where(answered, n_right / np.maximum(n_answered, 1), 0.0)
    with np.errstate(invalid="ignore"):  # 0/0: nobody answers
        mean: Floats = shares.sum(axis=0) / answered.sum(axis=0)
    return mean


def hardest_first(right: Floats, n_wrong: Ints) -> Ints:
    """Order of seeds, the hardest first, those without answers last.

    Args:
        right: (S,) of `mean_right`.
        n_wrong: (S,) models that answer the seed itself wrong, which decides between seeds
            of the same share; then their order does.

    >>> hardest_first(np.array([0.5, 0.25, 0.5]), np.array([0, 0, 1])).tolist()
    [1, 2, 0]
    """
    return np.lexsort((np.arange(len(right)), -n_wrong, right.round(_DECIMALS)))
