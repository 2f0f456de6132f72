"""Words: in lower case for comparison, in the original's casing for texts (D6), as numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from generation.suggestions.vocabulary import Vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray

CASINGS: Final[Mapping[str, Callable[[str], str]]] = {
    "lower": str,
    "title": str.capitalize,
    "upper": str.upper,
}
"""Casings that a replacement can take over (D6): name → function of a lower-case word."""


def casing_of(original: str) -> str:
    """Return which of `CASINGS` a word has (D6).

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


def scramble(word: str, key: str) -> str:
    """Shuffle a word's letters by the key (D13); the outcome differs from the word if it can.

    >>> sorted(scramble("poodle", "x")) == sorted("poodle")
    True
    """
    if len(set(word)) < 2:
        return word
    rng = random.Random(f"{key}\n{word}")
    while True:
        letters = sorted(((rng.random(), letter) for letter in word), key=lambda pair: pair[0])
        shuffled = "".join(letter for _, letter in letters)
        if shuffled != word:
            return shuffled


@dataclass(frozen=True)
class Lexicon:
    """Words in lower case (D6); their forms are numbered `casing × len(words) + word`."""

    numbers: Mapping[str, int]
    """Word → its number, which is its place among the sorted words."""
    of_token: Mapping[str, NDArray[np.int64]]
    """MLM → [vocabulary] number of each token's word."""

    @classmethod
    def of(cls, vocabularies: Mapping[str, Vocabulary]) -> Self:
        """Number the words of each MLM's vocabulary."""
        words = sorted({word for each in vocabularies.values() for word in each.lowered})
        numbers = {word: number for number, word in enumerate(words)}
        return cls(
            numbers,
            {
                mlm: np.array([numbers[word] for word in each.lowered], np.int64)
                for mlm, each in vocabularies.items()
            },
        )

    def form(self, casing: NDArray[np.int64], word: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return [n] numbers of forms, from [n] numbers of casings and of words."""
        return casing * len(self.numbers) + word

    @cached_property
    def forms(self) -> list[str]:
        """The text of every form."""
        return [shape(word) for shape in CASINGS.values() for word in self.numbers]
