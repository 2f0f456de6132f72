"""Equation 1 (section 3) on columns of `pairs(side, word)`; a *side* is a word in one text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from generation.problems.shared_words import TaggedProblems
from generation.problems.substitutions import Place, Substitutions
from generation.reasons import NO_REASON
from generation.records import MaskedQuery, Seed, SharedWord, pairs, split
from generation.signals.signal_columns import UNKNOWN
from generation.suggestions.questions import masked_queries
from generation.variants.words import CASINGS, Lexicon, casing_of
from merge_dataset.schema import WORD_CLASSES

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Occurrences:
    """Rows per shared word (sorted by seed, class, form), per side (by text), per occurrence."""

    seeds: list[Seed]
    """[words] The word's problem."""
    words: list[SharedWord]
    """[words] The shared word."""
    places: list[Place]
    """[sides] The word's place in its text."""
    side_word: NDArray[np.int64]
    """[sides] Number of the shared word, ascending."""
    side_text: NDArray[np.int64]
    """[sides] Number of the text in its problem; in NLI 0 is the premise, 1 the hypothesis."""
    texts: int
    queries: list[MaskedQuery]
    """[occurrences] The query to the masked LMs."""
    problem: NDArray[np.int64]
    """[words] Number of the word's problem."""
    problem_words: NDArray[np.int64]
    """Keys of (problem, number of a word in it) (D7)."""
    lexicon: Lexicon

    @classmethod
    def of(cls, problems: TaggedProblems, lexicon: Lexicon, *, masking: str, texts: int) -> Self:
        """Lay out the shared words of some problems, each with `texts` texts."""
        rows = sorted(
            problems.pairs(), key=lambda row: (row[0].seed_id, row[1].word_class, row[1].word)
        )
        sides = [
            (number, text, place)
            for number, (seed, word) in enumerate(rows)
            for text, place in problems.places(seed, word)
        ]
        places = [place for _, _, place in sides]
        words = {
            text: {token.text.lower() for token in sentence.tokens} & lexicon.numbers.keys()
            for text, sentence in problems.sentences.items()
        }
        seeds = {seed.seed_id: seed for seed, _ in rows}
        number_of = {seed_id: number for number, seed_id in enumerate(seeds)}
        in_problem = [
            {lexicon.numbers[word] for text in seed.texts for word in words[text]}
            for seed in seeds.values()
        ]
        return cls(
            seeds=[seed for seed, _ in rows],
            words=[word for _, word in rows],
            places=places,
            side_word=np.array([word for word, _, _ in sides], np.int64),
            side_text=np.array([text for _, text, _ in sides], np.int64),
            texts=texts,
            queries=[query for place in places for query in masked_queries(place, masking=masking)],
            problem=np.array([number_of[seed.seed_id] for seed, _ in rows], np.int64),
            problem_words=pairs(
                np.repeat(np.arange(len(seeds)), [len(numbers) for numbers in in_problem]),
                np.array([number for numbers in in_problem for number in numbers], np.int64),
            ),
            lexicon=lexicon,
        )

    @property
    def sides(self) -> NDArray[np.int64]:
        """[words, texts] Number of each side, −1 where a text does not have the word."""
        numbers = np.full((len(self.words), self.texts), -1)
        numbers[self.side_word, self.side_text] = np.arange(len(self.side_word))
        return numbers

    @cached_property
    def per_side(self) -> NDArray[np.int64]:
        """[sides] Number of the side's occurrences."""
        return np.array([len(place.positions) for place in self.places], np.int64)

    @cached_property
    def side(self) -> NDArray[np.int64]:
        """[occurrences] Number of the occurrence's side."""
        return np.repeat(np.arange(len(self.places)), self.per_side)

    def units(self, scope: str) -> NDArray[np.int64]:
        """Return [words] a number for each group whose replacements are counted together (D9)."""
        if scope == "word":
            return np.arange(len(self.words))
        if scope == "problem":
            return self.problem
        return self.problem * len(WORD_CLASSES) + self.word_class

    def settled(self, asked: NDArray[np.bool_], *, scope: str) -> NDArray[np.bool_]:
        """Return [words] whether all questions about it and the words of its group were asked."""
        groups = self.units("problem" if scope == "problem" else "class")
        missing = self.side_word[self.side[~asked]]
        return ~np.isin(groups, groups[missing])

    @cached_property
    def word_class(self) -> NDArray[np.int64]:
        """[words] Place in `WORD_CLASSES`."""
        return np.array([WORD_CLASSES.index(word.word_class) for word in self.words], np.int64)

    @cached_property
    def casing(self) -> NDArray[np.int64]:
        """[words] Place in `CASINGS`."""
        casings = list(CASINGS)
        return np.array([casings.index(casing_of(word.word)) for word in self.words], np.int64)

    def form(self, word: NDArray[np.int64], new: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return [n] forms of [n] words in the casing of the shared ones they replace (D6)."""
        return self.lexicon.form(self.casing[word], new)

    def put(self, keys: NDArray[np.int64]) -> Substitutions:
        """Substitute words, given as [n] keys of (side, word), for the shared ones."""
        side, word = split(keys)
        form = self.form(self.side_word[side], word)
        return Substitutions(self.places, self.lexicon.forms, side, form)

    def class_of(self, side: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return [n] places in `WORD_CLASSES` of the words of [n] sides."""
        return self.word_class[self.side_word[side]]


@dataclass(frozen=True, slots=True)
class Suggested:
    """The words that masked LMs validated on sides, a row per side and word."""

    keys: NDArray[np.int64]
    """[n] (side, word), sorted, each once."""
    log_odds: NDArray[np.float32]
    """[n] log P(word) − log P(original) in nats, the smallest over MLMs and occurrences (D14)."""
    mlms: NDArray[np.bool_]
    """[n, MLMs] Whether the masked LM validated it (D14)."""
    reasons: NDArray[np.int64]
    """[n] Number of the reason to reject it; `NO_REASON` if there is none."""
    changed: NDArray[np.int64]
    """[n, 2] Whether number and verb form change in context, as `forms_changed` returns it."""

    def mlms_by_text(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return [m, texts, MLMs] whether each validated; `places`: [m, texts] rows, −1: none."""
        validated: NDArray[np.bool_] = self.mlms[places] & (places >= 0)[:, :, None]
        return validated


def over_occurrences(
    keys: NDArray[np.int64], log_odds: NDArray[np.float32], per_side: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Intersect one MLM's sets: R_j(S, o) = ∩ over the occurrences i of o in S of R_j(S, i).

    `keys` are [n] (side, word), a row per occurrence, in any order. Returns the sorted keys that
    have a row for every occurrence, with their smallest log-odds.
    """
    order = np.argsort(keys)
    keys = keys[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    found = np.diff(starts, append=len(keys))
    everywhere = found == per_side[split(keys[starts])[0]]
    least = np.minimum.reduceat(log_odds[order], starts)
    return keys[starts][everywhere], least[everywhere]


def over_mlms(sets: Sequence[tuple[NDArray[np.int64], NDArray[np.float32]]]) -> Suggested:
    """Unite all MLMs' sets of keys (each once) and log-odds: R_M(S, o) = ∪ over j of R_j(S, o)."""
    every = np.concatenate([keys for keys, _ in sets])
    mlm = np.repeat(np.arange(len(sets)), [len(keys) for keys, _ in sets])
    order = np.argsort(every)
    ordered = every[order]
    is_first = np.diff(ordered, prepend=-1) != 0
    starts = np.flatnonzero(is_first)
    mlms = np.zeros((len(starts), len(sets)), np.bool_)
    mlms[np.cumsum(is_first) - 1, mlm[order]] = True
    log_odds = np.concatenate([log_odds for _, log_odds in sets])[order]
    return Suggested(
        keys=ordered[starts],
        log_odds=np.minimum.reduceat(log_odds, starts),
        mlms=mlms,
        reasons=np.full(len(starts), NO_REASON),
        changed=np.full((len(starts), 2), UNKNOWN),
    )


def over_sentences(
    keys: NDArray[np.int64],
    side_word: NDArray[np.int64],
    side_text: NDArray[np.int64],
    *,
    texts: int,
    combine: str,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Combine the texts that have o: R_M(⟨p, h⟩, o) = R_M(p, o) ∩ R_M(h, o), or their union (D13).

    Returns [m] sorted keys of (shared word, word), and [m, texts] their places in `keys`, or −1.
    """
    side, word = split(keys)
    of_word = pairs(side_word[side], word)
    both, count = np.unique(of_word, return_counts=True)
    if combine == "intersection":
        both = both[count == np.bincount(side_word)[split(both)[0]]]
    places = np.full((len(both), texts), -1)
    row = np.searchsorted(both, of_word)
    there = row < len(both)
    there[there] = both[row[there]] == of_word[there]
    places[row[there], side_text[side[there]]] = np.flatnonzero(there)
    return both, places
