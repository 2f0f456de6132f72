"""Words put in place of others, as columns: the chunks of text and the windows that change.

A chunk lies between white space. spaCy splits there before anything else, so of a sentence
in which words are replaced only their own chunks have to be tokenised again, and each
distinct chunk with each distinct word in it only once: most are one frequent word. A tagger of
bounded sight looks at no more than windows of token ids around what was put there.
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

    from generation.problems.sparse_tagger import TokenKey

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
        """Select substitutions, by number or by mask."""
        return Substitutions(self.places, self.forms, self.place[which], self.form[which])

    def compact(self) -> Substitutions:
        """Drop the places in which nothing is put."""
        used, place = np.unique(self.place, return_inverse=True)
        places = [self.places[number] for number in used.tolist()]
        return Substitutions(places, self.forms, place, self.form)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """[n] Positions of each."""
        return np.array([len(place.positions) for place in self.places], np.int64)[self.place]


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of some places."""

    bounds: list[list[tuple[int, int]]]
    """[places] Half-open ranges of tokens, in order."""
    starts: NDArray[np.int64]
    """[places + 1] Where each place's chunks begin among all."""
    pattern: NDArray[np.int64]
    """[chunks] Number of its pattern."""
    patterns: list[Pattern]

    @classmethod
    def of(cls, places: Sequence[Place]) -> Chunks:
        """Find the chunks around the positions of places."""
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
    """Chunks with words in them, tokenised."""

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
        """Select the chunks of some of the substitutions."""
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
    """Return for each token whether a space follows."""
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
    """Return ranges of tokens around the positions with no white space between them."""
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


@dataclass(frozen=True, slots=True)
class Windows:
    """The surroundings of every position of some places, before anything is put there.

    A *cell* is a token of a chunk within a window: what is put in the chunk changes it.
    """

    ids: NDArray[np.int32]
    """[positions, width] Token ids; positions lie place by place."""
    starts: NDArray[np.int64]
    """[places + 1] Where each place's positions begin."""
    cell_starts: NDArray[np.int64]
    """[positions + 1] Where each window's cells begin."""
    cells: NDArray[np.int64]
    """[cells, 3] Column of the window, number of the chunk in the place, token in the chunk."""

    @classmethod
    def around(
        cls,
        places: Sequence[Place],
        chunks: Chunks,
        sentence_ids: Callable[[Place], NDArray[np.int32]],
        half_width: int,
    ) -> Windows:
        """Cut the windows out.

        Args:
            places: Where words are put.
            chunks: Theirs.
            sentence_ids: The ids of a place's sentence, with `half_width` ids around it.
            half_width: Tokens to each side.
        """
        width = 2 * half_width + 1
        ids, sizes, cells = [], [], []
        for place, bounds in zip(places, chunks.bounds, strict=True):
            sentence = sentence_ids(place)
            for position in place.positions:
                ids.append(sentence[position : position + width])
                mine = _cells(position - half_width, width, bounds)
                sizes.append(len(mine))
                cells += mine
        positions = np.array([len(place.positions) for place in places], np.int64)
        return cls(
            np.array(ids, np.int32).reshape(-1, width),
            starts_of(positions),
            starts_of(np.array(sizes, np.int64)),
            np.array(cells, np.int64).reshape(-1, 3),
        )

    def after(
        self,
        substitutions: Substitutions,
        filled: Filled,
        token_id: Callable[[TokenKey], int],
    ) -> NDArray[np.int32]:
        """Return the [Σ positions, width] windows with words put in.

        Args:
            substitutions: What is put where; all of them sound.
            filled: Their chunks.
            token_id: The id of a token.
        """
        first_id, ids = _ids_of(filled, token_id)
        sizes = np.diff(self.starts)[substitutions.place]
        position = ranges(self.starts[substitutions.place], sizes)
        windows = self.ids[position]
        cells = np.diff(self.cell_starts)[position]
        column, chunk, token = self.cells[ranges(self.cell_starts[position], cells)].T
        outcome = filled.outcome[np.repeat(np.repeat(filled.starts[:-1], sizes), cells) + chunk]
        windows[np.repeat(np.arange(len(windows)), cells), column] = ids[first_id[outcome] + token]
        return windows


def _cells(start: int, width: int, bounds: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return the cells of the window of tokens that begins at `start`."""
    return [
        (i - start, chunk, i - first)
        for chunk, (first, last) in enumerate(bounds)
        for i in range(max(first, start), min(last, start + width))
    ]


def _ids_of(
    filled: Filled, token_id: Callable[[TokenKey], int]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return ids of the tokens of all outcomes, laid end to end, and where each begins."""
    ids: list[int] = []
    sizes: list[int] = []
    for words, space in zip(filled.words, filled.space_after, strict=True):
        last = len(words or ()) - 1
        new = [token_id((*word, space and i == last)) for i, word in enumerate(words or ())]
        ids += new
        sizes.append(len(new))
    return starts_of(np.array(sizes, np.int64)), np.array(ids, np.int32)
