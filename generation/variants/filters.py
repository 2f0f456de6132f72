"""The filters that need no tagger, over many suggestions at once (D4–D6), and D7, D8.

Cheap filters come first: about one suggestion in ten is more probable than the original,
and tagging costs a thousand times more than comparing two numbers. As every filter looks
at one suggestion alone, the order does not change what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from generation.problems.shared_words import coarse_class
from generation.ragged import starts_of
from generation.records import Scores
from generation.suggestions.vocabulary import Vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOT_ALPHABETIC: Final = "not_alphabetic"
SUBWORD: Final = "subword"
LESS_PROBABLE: Final = "less_probable"
DUPLICATE: Final = "duplicate"
IN_PROBLEM: Final = "in_problem"
OTHER_OCCURRENCE: Final = "other_occurrence"
OTHER_SENTENCE: Final = "other_sentence"
TOKENIZATION: Final = "tokenization"
WORD_CLASS: Final = "other_class"

REASONS: Final = {
    NOT_ALPHABETIC: "not letters only (D4)",
    SUBWORD: "not a whole word where it stands (D4)",
    LESS_PROBABLE: "not more probable than the original (D5)",
    DUPLICATE: "differs from a more probable suggestion in case alone (D6)",
    IN_PROBLEM: "is a word of the problem already (D7)",
    OTHER_OCCURRENCE: "the same MLM did not validate it at the word's other occurrence (D2)",
    OTHER_SENTENCE: "no MLM validated it in the other sentence (eq. 1)",
    TOKENIZATION: "changes the tokenisation (D8)",
    WORD_CLASS: "has another word class in context (D8)",
}
"""Why a suggestion is rejected, in the order in which the reasons are tried."""

CHEAP_REASONS: Final = (NOT_ALPHABETIC, SUBWORD, LESS_PROBABLE, DUPLICATE)

CASINGS: Final[Mapping[str, Callable[[str], str]]] = {
    "lower": str,
    "title": str.capitalize,
    "upper": str.upper,
}
"""The casings a replacement can take over (D6): name → what it does to a lower-case word."""


@dataclass(frozen=True, slots=True)
class Survivors:
    """What the cheap filters leave of the suggestions at n occurrences.

    Row i's survivors lie at `starts[i]:starts[i + 1]`, most probable first.
    """

    starts: NDArray[np.int64]
    """[n + 1]"""
    in_vocabulary: NDArray[np.bool_]
    """[n] Whether the original is one token there (D3)."""
    tokens: NDArray[np.int32]
    """[starts[-1]] Token ids."""
    log_odds: NDArray[np.float32]
    """[starts[-1]] log P(suggestion) − log P(original), in nats."""
    rejected: NDArray[np.int32]
    """[n, len(CHEAP_REASONS)] How many fell under each reason."""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """[n] How many survive at each occurrence."""
        return np.diff(self.starts)


def cheap_filters(scores: Scores, vocabulary: Vocabulary, *, probability_filter: bool) -> Survivors:
    """Keep whole alphabetic words (D4) more probable than the original (D5), once each (D6).

    Args:
        scores: Suggestions at n occurrences; those not in the vocabulary have none (D3).
        vocabulary: What the token ids read as.
        probability_filter: Condition (i); off in some ablations (D13).
    """
    n = len(scores.original)
    alive = (scores.original >= 0)[:, None] & (scores.tokens >= 0)
    tests = {
        NOT_ALPHABETIC: lambda: vocabulary.is_alphabetic[_bounded(scores.tokens, vocabulary)],
        SUBWORD: lambda: vocabulary.fits(scores.tokens, scores.original),
        LESS_PROBABLE: lambda: scores.logits > scores.original_logit[:, None],
        DUPLICATE: lambda: _first_of_each_word(scores.tokens, alive, vocabulary),
    }
    rejected = np.zeros((n, len(CHEAP_REASONS)), np.int32)
    for column, reason in enumerate(CHEAP_REASONS):
        if reason == LESS_PROBABLE and not probability_filter:
            continue
        passed = alive & tests[reason]()
        rejected[:, column] = alive.sum(1) - passed.sum(1)
        alive = passed
    rows, columns = np.nonzero(alive)
    return Survivors(
        starts=starts_of(alive.sum(1)),
        in_vocabulary=scores.original >= 0,
        tokens=scores.tokens[rows, columns],
        log_odds=scores.logits[rows, columns] - scores.original_logit[rows],
        rejected=rejected,
    )


def not_in_problem(
    candidates: NDArray[np.int64], problem_words: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Condition (ii), D7: which candidates are no word of their problem.

    Args:
        candidates: [n] Keys of (problem, candidate).
        problem_words: [m] Keys of (problem, word of it), sorted.

    >>> not_in_problem(np.array([7, 3, 9]), np.array([2, 3, 8])).tolist()
    [True, False, True]
    """
    places = np.searchsorted(problem_words, candidates)
    places[places == len(problem_words)] = 0
    if not len(problem_words):
        return np.ones(len(candidates), np.bool_)
    outside: NDArray[np.bool_] = problem_words[places] != candidates
    return outside


def comparable(tag: str, *, tag_match: str) -> str:
    """What D8 compares: a Penn tag's class, or the tag itself with `fine`.

    >>> comparable("VBD", tag_match="coarse"), comparable("VBD", tag_match="fine")
    ('verb', 'VBD')
    """
    return coarse_class(tag) if tag_match == "coarse" else tag


def casing_of(original: str) -> str:
    """Which of `CASINGS` a word has (D6).

    A single capital is Title, any other mixture lower.

    >>> [casing_of(word) for word in ("boy", "Boy", "BOY", "A", "McBoy")]
    ['lower', 'title', 'upper', 'title', 'lower']
    """
    if len(original) > 1 and original.isupper():
        return "upper"
    if original[:1].isupper() and original[1:].lower() == original[1:]:
        return "title"
    return "lower"


def match_case(word: str, original: str) -> str:
    """Give a lower-case word the casing of the original (D6).

    >>> match_case("girl", "Boy"), match_case("girl", "BOY"), match_case("girl", "boy")
    ('Girl', 'GIRL', 'girl')
    """
    return CASINGS[casing_of(original)](word)


def _bounded(tokens: NDArray[np.int32], vocabulary: Vocabulary) -> NDArray[np.int32]:
    """Ids past the tokenizer's vocabulary (padding of the output layer) → a special id."""
    special = int(np.flatnonzero(vocabulary.kinds == 0)[0])
    return np.where((tokens >= 0) & (tokens < len(vocabulary.texts)), tokens, special)


def _first_of_each_word(
    tokens: NDArray[np.int32], alive: NDArray[np.bool_], vocabulary: Vocabulary
) -> NDArray[np.bool_]:
    """Of the living suggestions in a row that differ in case alone, the first."""
    words = vocabulary.word_numbers[_bounded(tokens, vocabulary)].astype(np.int64)
    rows = np.arange(len(tokens))[:, None]
    keys = (rows * (len(vocabulary.texts) + 1) + words)[alive]
    places = np.flatnonzero(alive)
    _, first = np.unique(keys, return_index=True)
    result = np.zeros(alive.size, np.bool_)
    result[places[first]] = True
    return result.reshape(alive.shape)
