"""Words put in place of others, as columns, and the chunks of text that this changes.

A chunk lies between white space. spaCy splits there before anything else, so of a sentence
in which words are replaced only their own chunks have to be tokenised again, and each
distinct chunk with each distinct word in it only once: most are one frequent word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from generation.ragged import pairs, ranges, split, starts_of
from generation.records import Sentence, Span, Token

if TYPE_CHECKING:
    from numpy.typing import NDArray

Word = tuple[str, str | None]
"""A token's text, and its norm as in `Token.norm`."""
Pattern = tuple[tuple[str | int, ...], bool]
"""A chunk's tokens, where a word is put its number, and whether a space follows."""


@dataclass(frozen=True, slots=True)
class Place:
    """The tokens of a sentence that a word is put in place of: all occurrences (D2)."""

    sentence: Sentence
    positions: tuple[int, ...]
    """In order."""
    several: bool = False
    """Whether each position gets a word of its own, and not all the same."""

    @property
    def put(self) -> dict[int, int]:
        """Position → which of the words is put there."""
        if self.several:
            return {position: n for n, position in enumerate(self.positions)}
        return dict.fromkeys(self.positions, 0)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Character offsets of the original there."""
        return tuple(self.sentence.tokens[position].span for position in self.positions)

    @property
    def tags(self) -> tuple[str, ...]:
        """Penn tags of the original there."""
        return tuple(self.sentence.tokens[position].tag for position in self.positions)


@dataclass(frozen=True, slots=True)
class Substitutions:
    """n words, each put in a place; or several, as many as the place has positions."""

    places: Sequence[Place]
    forms: Sequence[str | tuple[str, ...]]
    """Words as they stand in a text; where a place takes several, these in order."""
    place: NDArray[np.int64]
    """[n] Number of the place."""
    form: NDArray[np.int64]
    """[n] Number of the form that is put there."""

    def take(self, which: NDArray[np.int64] | NDArray[np.bool_]) -> Substitutions:
        """Some of them, by number or by mask."""
        return Substitutions(self.places, self.forms, self.place[which], self.form[which])

    def compact(self) -> Substitutions:
        """The same without the places in which nothing is put."""
        used, place = np.unique(self.place, return_inverse=True)
        places = [self.places[number] for number in used.tolist()]
        return Substitutions(places, self.forms, place, self.form)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """[n] Positions of each."""
        return np.array([len(place.positions) for place in self.places], np.int64)[self.place]


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of some places."""

    bounds: list[list[tuple[int, int]]]
    """[places] Half-open ranges of tokens, in order."""
    starts: NDArray[np.int64]
    """[places + 1] Where each place's chunks begin among all."""
    pattern: NDArray[np.int64]
    """[chunks] Number of its pattern."""
    patterns: list[Pattern]

    @classmethod
    def of(cls, places: Sequence[Place]) -> Chunks:
        """Find them."""
        bounds = [_bounds(place) for place in places]
        numbers: dict[Pattern, int] = {}
        pattern = [
            numbers.setdefault(_pattern(place, first, last), len(numbers))
            for place, chunks in zip(places, bounds, strict=True)
            for first, last in chunks
        ]
        sizes = np.array([len(chunks) for chunks in bounds], np.int64)
        return cls(bounds, starts_of(sizes), np.array(pattern, np.int64), list(numbers))


@dataclass(frozen=True, slots=True)
class Filled:
    """What the tokeniser makes of chunks with words in them."""

    starts: NDArray[np.int64]
    """[n + 1] Where each substitution's chunks begin in `outcome`."""
    outcome: NDArray[np.int64]
    """[starts[-1]] Number of each chunk's outcome."""
    words: list[tuple[Word, ...] | None]
    """[outcomes] The tokens, None if they are others than those put together."""
    space_after: list[bool]
    """[outcomes] Whether a space follows the last of them."""

    @classmethod
    def of(
        cls,
        substitutions: Substitutions,
        chunks: Chunks,
        retokenise: Callable[[str], tuple[Word, ...]],
    ) -> Filled:
        """Tokenise each distinct chunk with each distinct word in it."""
        sizes = np.diff(chunks.starts)[substitutions.place]
        pattern = chunks.pattern[ranges(chunks.starts[substitutions.place], sizes)]
        keys = pairs(pattern, np.repeat(substitutions.form, sizes))
        distinct, outcome = np.unique(keys, return_inverse=True)
        filled = [
            (chunks.patterns[number], substitutions.forms[form])
            for number, form in zip(*(column.tolist() for column in split(distinct)), strict=True)
        ]
        words = [_fill(texts, form, retokenise) for (texts, _), form in filled]
        return cls(starts_of(sizes), outcome, words, [space for (_, space), _ in filled])

    def take(self, which: NDArray[np.bool_]) -> Filled:
        """Those of some of the substitutions."""
        sizes = np.diff(self.starts)[which]
        outcome = self.outcome[ranges(self.starts[:-1][which], sizes)]
        return Filled(starts_of(sizes), outcome, self.words, self.space_after)

    @property
    def sound(self) -> NDArray[np.bool_]:
        """[n] Whether the tokens of all chunks are those put together."""
        is_sound = np.array([words is not None for words in self.words], np.bool_)
        all_sound: NDArray[np.bool_] = np.logical_and.reduceat(
            is_sound[self.outcome], self.starts[:-1]
        )
        return all_sound


def spaces_after(sentence: Sentence) -> tuple[bool, ...]:
    """Whether a space follows each token."""
    starts = [token.start for token in sentence.tokens[1:]] + [len(sentence.text)]
    return tuple(t.span[1] < start for t, start in zip(sentence.tokens, starts, strict=True))


def _fill(
    texts: Sequence[str | int],
    form: str | tuple[str, ...],
    retokenise: Callable[[str], tuple[Word, ...]],
) -> tuple[Word, ...] | None:
    put = (form,) if isinstance(form, str) else form
    words = [put[text] if isinstance(text, int) else text for text in texts]
    found = retokenise("".join(words))
    return found if [text for text, _ in found] == words else None


def _bounds(place: Place) -> list[tuple[int, int]]:
    """Ranges of tokens around the positions with no white space between them."""
    tokens = place.sentence.tokens
    bounds: list[tuple[int, int]] = []
    for position in place.positions:
        if bounds and position < bounds[-1][1]:
            continue
        first, last = position, position + 1
        while first > 0 and _touch(tokens[first - 1], tokens[first]):
            first -= 1
        while last < len(tokens) and _touch(tokens[last - 1], tokens[last]):
            last += 1
        bounds.append((first, last))
    return bounds


def _touch(token: Token, following: Token) -> bool:
    return token.start + len(token.text) == following.start


def _pattern(place: Place, first: int, last: int) -> Pattern:
    tokens, put = place.sentence.tokens, place.put
    texts = tuple(put.get(i, tokens[i].text) for i in range(first, last))
    return texts, last < len(tokens) or tokens[-1].span[1] < len(place.sentence.text)
