"""The shared words of a block of problems and their occurrences, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from generation.problems.shared_words import TaggedProblems
from generation.problems.substitutions import Place
from generation.ragged import pairs
from generation.records import MaskedQuery, Seed, SharedWord
from generation.suggestions.questions import masked_queries
from generation.variants.filters import CASINGS, casing_of
from generation.variants.lexicon import Lexicon
from generation.variants.set_algebra import Sides
from merge_dataset.schema import WORD_CLASSES

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Occurrences:
    """A row per shared word, a row per text it stands in, and a row per occurrence there.

    A *side* is a word in one text of its problem: of NLI two to each word, premise and
    hypothesis. Words are sorted by seed id, class and form, sides by word and text;
    occurrences lie side by side, in order.
    """

    seeds: list[Seed]
    """[words] The problem a word is of."""
    words: list[SharedWord]
    """[words]"""
    places: list[Place]
    """[sides] Where the word stands."""
    sides: Sides
    """Which sides there are."""
    queries: list[MaskedQuery]
    """[occurrences] What the masked LMs were asked."""
    problem_words: NDArray[np.int64]
    """Keys of (word, number of a word of its problem), sorted (D7)."""

    @classmethod
    def of(cls, problems: TaggedProblems, lexicon: Lexicon, *, masking: str, texts: int) -> Self:
        """The shared words of some problems, each of which has as many texts."""
        rows = sorted(
            ((seed, word) for seed in problems.seeds for word in problems.words[seed.seed_id]),
            key=lambda row: (row[0].seed_id, row[1].word_class, row[1].word),
        )
        sides = [
            (number, text, place)
            for number, (seed, word) in enumerate(rows)
            for text, place in problems.places(seed, word)
        ]
        places = [place for _, _, place in sides]
        known = {
            text: lexicon.known({token.text.lower() for token in sentence.tokens})
            for text, sentence in problems.sentences.items()
        }
        in_problem = [{n for text in seed.texts for n in known[text]} for seed, _ in rows]
        return cls(
            seeds=[seed for seed, _ in rows],
            words=[word for _, word in rows],
            places=places,
            sides=Sides(
                np.array([word for word, _, _ in sides], np.int64),
                np.array([text for _, text, _ in sides], np.int64),
                texts,
            ),
            queries=[query for place in places for query in masked_queries(place, masking=masking)],
            problem_words=np.sort(
                pairs(
                    np.repeat(np.arange(len(rows)), [len(numbers) for numbers in in_problem]),
                    np.array([number for numbers in in_problem for number in numbers], np.int64),
                )
            ),
        )

    @cached_property
    def per_side(self) -> NDArray[np.int64]:
        """[sides] How many occurrences each has."""
        return np.array([len(place.positions) for place in self.places], np.int64)

    @cached_property
    def side(self) -> NDArray[np.int64]:
        """[occurrences] The side each is on."""
        return np.repeat(np.arange(len(self.places)), self.per_side)

    @cached_property
    def word_class(self) -> NDArray[np.int64]:
        """[words] Place in `WORD_CLASSES`."""
        return np.array([WORD_CLASSES.index(word.word_class) for word in self.words], np.int64)

    @cached_property
    def casing(self) -> NDArray[np.int64]:
        """[words] Place in `CASINGS`."""
        casings = list(CASINGS)
        return np.array([casings.index(casing_of(word.word)) for word in self.words], np.int64)

    def class_of(self, side: NDArray[np.int64]) -> NDArray[np.int64]:
        """[n] Place in `WORD_CLASSES` of the words of some sides."""
        return self.word_class[self.sides.word[side]]
