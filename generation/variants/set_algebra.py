"""From suggestions to R_M(⟨p, h⟩, o): the set algebra of the paper's section 3, on columns.

A *side* is a shared word in one text of its problem. A set of words per side is a column
of keys `pairs(side, word)`, and beside it, for each member, the smallest log-odds so far (D14).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from generation.ragged import pairs, split

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Sides:
    """The shared words of some problems in the texts where they stand."""

    word: NDArray[np.int64]
    """[sides] Number of the shared word, ascending."""
    text: NDArray[np.int64]
    """[sides] Number of the text in its problem: of NLI 0 premise, 1 hypothesis."""
    texts: int
    """How many a problem has."""

    @property
    def table(self) -> NDArray[np.int64]:
        """[words, texts] The number of each side, −1 where a text has not the word."""
        numbers = np.full((self.word.max(initial=-1) + 1, self.texts), -1)
        numbers[self.word, self.text] = np.arange(len(self.word))
        return numbers


@dataclass(frozen=True, slots=True)
class Members:
    """The members of one MLM's sets, or one set algebra's outcome."""

    keys: NDArray[np.int64]
    """[n] (side, word)"""
    log_odds: NDArray[np.float32]
    """[n] log P(word) − log P(original), in nats."""


@dataclass(frozen=True, slots=True)
class Validated:
    """R_M(S, o) of all sides, with who validated what (D14)."""

    keys: NDArray[np.int64]
    """[n] (side, word), sorted, each once."""
    log_odds: NDArray[np.float32]
    """[n] Smallest of these MLMs'."""
    mlms: NDArray[np.bool_]
    """[n, MLMs]"""


def over_occurrences(candidates: Members, occurrences: NDArray[np.int64]) -> Members:
    """R_j(S, o) = ∩ over the occurrences i of o in S of R_j(S, i).

    Args:
        candidates: Of one MLM, a row per occurrence, in any order.
        occurrences: [sides] How many occurrences each side has.

    Returns:
        What stands at all of them, keys sorted.
    """
    order = np.argsort(candidates.keys)
    keys = candidates.keys[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    found = np.diff(starts, append=len(keys))
    everywhere = found == occurrences[split(keys[starts])[0]]
    least = np.minimum.reduceat(candidates.log_odds[order], starts)
    return Members(keys[starts][everywhere], least[everywhere])


def over_mlms(sets: Sequence[Members]) -> Validated:
    """R_M(S, o) = ∪ over the MLMs j of R_j(S, o).

    Args:
        sets: One per MLM, each key once.
    """
    every = np.concatenate([members.keys for members in sets])
    mlm = np.repeat(np.arange(len(sets)), [len(members.keys) for members in sets])
    order = np.argsort(every)
    ordered = every[order]
    is_first = np.diff(ordered, prepend=-1) != 0
    starts = np.flatnonzero(is_first)
    mlms = np.zeros((len(starts), len(sets)), np.bool_)
    mlms[np.cumsum(is_first) - 1, mlm[order]] = True
    log_odds = np.concatenate([members.log_odds for members in sets])[order]
    return Validated(ordered[starts], np.minimum.reduceat(log_odds, starts), mlms)


def over_sentences(
    keys: NDArray[np.int64], sides: Sides, *, combine: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Equation 1: R_M(⟨p, h⟩, o) = R_M(p, o) ∩ R_M(h, o), over all texts in which o stands.

    Args:
        keys: [n] Of (side, word), sorted, each once.
        sides: What sides there are.
        combine: `intersection`, or `union` for the ablation p ∪ h (D13).

    Returns:
        [m] keys of (shared word, word), sorted, and [m, texts] the place of each in `keys` as
        member of a text's set, −1 where it is none.
    """
    side, word = split(keys)
    of_word = pairs(sides.word[side], word)
    both, count = np.unique(of_word, return_counts=True)
    if combine == "intersection":
        both = both[count == np.bincount(sides.word)[split(both)[0]]]
    places = np.full((len(both), sides.texts), -1)
    row = np.searchsorted(both, of_word)
    there = row < len(both)
    there[there] = both[row[there]] == of_word[there]
    places[row[there], sides.text[side[there]]] = np.flatnonzero(there)
    return both, places
