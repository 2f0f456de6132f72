"""How much of a sentence's wording another one keeps: in tokens, and fuzzily."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

_TOKEN: Final = re.compile(r"\w+|[^\w\s]")


def tokens(text: str) -> list[str]:
    """Words and single other marks, without regard to case.

    >>> tokens("A girl doesn't run.")
    ['a', 'girl', 'doesn', "'", 't', 'run', '.']
    """
    return _TOKEN.findall(text.casefold())


def n_common(one: Iterable[str], other: Iterable[str]) -> int:
    """How many tokens two lists have in common, each as often as in both.

    >>> n_common(["a", "dog", "a", "cat"], ["a", "dog", "dog"])
    2
    """
    return (Counter(one) & Counter(other)).total()


def fuzzy_match(
    one: Sequence[Sequence[str]], other: Sequence[Sequence[str]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(n,) similarities of lists of tokens, from 0 to 1: `token_sort_ratio`, `token_set_ratio`.

    Both are of rapidfuzz and do not regard the order of tokens. The first is lower for every
    difference, the second is 1 where one list has all tokens of the other.
    """
    from rapidfuzz import fuzz, process

    texts = [[" ".join(each) for each in lists] for lists in (one, other)]
    by_sort, by_set = (
        process.cpdist(*texts, scorer=scorer, dtype=np.float64) / 100
        for scorer in (fuzz.token_sort_ratio, fuzz.token_set_ratio)
    )
    return by_sort, by_set
