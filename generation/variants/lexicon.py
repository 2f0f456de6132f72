"""Words as numbers: what several masked LMs may suggest, numbered alike for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from generation.suggestions.vocabulary import Vocabulary
from generation.variants.filters import CASINGS

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Lexicon:
    """The words of some vocabularies in lower case, in which they are compared (D6).

    A *form* is a word in one of `CASINGS`: form `casing × len(words) + word`.
    """

    words: tuple[str, ...]
    """Sorted, each once; a word's number is its place."""
    of_token: Mapping[str, NDArray[np.int64]]
    """MLM → [its vocabulary] the number of each token's word."""

    @classmethod
    def of(cls, vocabularies: Mapping[str, Vocabulary]) -> Self:
        """Number the words of each MLM's vocabulary."""
        words = sorted({word for each in vocabularies.values() for word in each.lowered})
        numbers = {word: number for number, word in enumerate(words)}
        return cls(
            tuple(words),
            {
                mlm: np.array([numbers[word] for word in each.lowered], np.int64)
                for mlm, each in vocabularies.items()
            },
        )

    def known(self, words: Iterable[str]) -> list[int]:
        """The numbers of those among some lower-case words that have one."""
        return [self._numbers[word] for word in words if word in self._numbers]

    def form(self, casing: NDArray[np.int64], word: NDArray[np.int64]) -> NDArray[np.int64]:
        """[n] Words as they stand in a text, from the number of a casing and of a word."""
        return casing * len(self.words) + word

    @cached_property
    def forms(self) -> list[str]:
        """The text of every form."""
        return [shape(word) for shape in CASINGS.values() for word in self.words]

    @cached_property
    def arrow_forms(self) -> pa.StringArray:
        """The same as a column."""
        return pa.array(self.forms, pa.string())

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}
