"""Substitutions of words, as columns: the chunks of text and the windows that change.

A chunk is the text between two white spaces, where spaCy splits first. So each distinct pair of a
chunk and a word in it has to be tokenised only once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from generation.records import Sentence, Span, pairs, ranges, split, starts_of

Word = tuple[str, str | None]
"""A token's text, and its norm as in `Token.norm`."""
TokenKey = tuple[str, str | None, bool]
"""Inputs of a token's embedding: text, norm if special, whether a space follows."""
Pattern = tuple[tuple[str | int, ...], bool]
"""A chunk's tokens, with the number of a new word in its place, and whether a space follows."""


@dataclass(frozen=True, slots=True)
class Place:
    """The tokens of a sentence that a word replaces: all occurrences (D2)."""

    sentence: Sentence
    positions: tuple[int, ...]
    """Indices of the tokens, in order."""
    several: bool = False
    """Whether each position gets a word of its own, instead of the same word."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """Half-open character spans of the original."""
        return tuple(self.sentence.tokens[position].span for position in self.positions)


@dataclass(frozen=True, slots=True)
class Substitutions:
    """n substitutions, each of one word at a place, or of one word per position of the place."""

    places: Sequence[Place]
    forms: Sequence[str | tuple[str, ...]]
    """Words in the form for a text; a tuple in order for places that take several words."""
    place: NDArray[np.int64]
    """[n] Number of the place."""
    form: NDArray[np.int64]
    """[n] Number of the form put in that place."""

    def take(self, which: NDArray[np.int64] | NDArray[np.bool_]) -> Substitutions:
        """Select substitutions, by number or by mask."""
        return Substitutions(self.places, self.forms, self.place[which], self.form[which])

    def compact(self) -> Substitutions:
        """Drop the places without a substitution."""
        used, place = np.unique(self.place, return_inverse=True)
        places = [self.places[number] for number in used.tolist()]
        return Substitutions(places, self.forms, place, self.form)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """[n] Number of each substitution's positions."""
        return np.array([len(place.positions) for place in self.places], np.int64)[self.place]


@dataclass(frozen=True, slots=True)
class Filled:
    """Chunks around the positions of substitutions, tokenised with the new words in them."""

    bounds: list[list[tuple[int, int]]]
    """[places] Half-open ranges of the tokens of each chunk, in order."""
    starts: NDArray[np.int64]
    """[n + 1] Index of each substitution's first chunk in `outcome`."""
    outcome: NDArray[np.int64]
    """[starts[-1]] Number of each chunk's outcome."""
    words: list[tuple[Word, ...] | None]
    """[outcomes] The tokens; None if the tokeniser splits the chunk otherwise."""
    space_after: list[bool]
    """[outcomes] Whether a space follows the last token."""

    @classmethod
    def of(
        cls, substitutions: Substitutions, retokenise: Callable[[str], tuple[Word, ...]]
    ) -> Filled:
        """Tokenise each distinct pair of a chunk and a word in it."""
        numbers: dict[Pattern, int] = {}
        bounds, pattern_of = [], []
        for place in substitutions.places:
            tokens = place.sentence.tokens
            # Ranges of tokens around the positions with no white space between them.
            chunks: list[tuple[int, int]] = []
            for position in place.positions:
                if chunks and position < chunks[-1][1]:
                    continue
                first, last = position, position + 1
                while first > 0 and tokens[first - 1].span[1] == tokens[first].start:
                    first -= 1
                while last < len(tokens) and tokens[last - 1].span[1] == tokens[last].start:
                    last += 1
                chunks.append((first, last))
            bounds.append(chunks)
            # Position → number of the word put there.
            put = {at: n * place.several for n, at in enumerate(place.positions)}
            for first, last in chunks:
                texts = tuple(put.get(i, tokens[i].text) for i in range(first, last))
                space = last < len(tokens) or tokens[-1].span[1] < len(place.sentence.text)
                pattern_of.append(numbers.setdefault((texts, space), len(numbers)))
        starts = starts_of(np.array([len(chunks) for chunks in bounds], np.int64))
        sizes = np.diff(starts)[substitutions.place]
        pattern = np.array(pattern_of, np.int64)[ranges(starts[substitutions.place], sizes)]
        keys = pairs(pattern, np.repeat(substitutions.form, sizes))
        distinct, outcome = np.unique(keys, return_inverse=True)
        patterns, words, space_after = list(numbers), [], []
        for number, form in zip(*(column.tolist() for column in split(distinct)), strict=True):
            (parts, space), words_put = patterns[number], substitutions.forms[form]
            several = (words_put,) if isinstance(words_put, str) else words_put
            wanted = [several[part] if isinstance(part, int) else part for part in parts]
            tokens_put = retokenise("".join(wanted))
            words.append(tokens_put if [text for text, _ in tokens_put] == wanted else None)
            space_after.append(space)
        return cls(bounds, starts_of(sizes), outcome, words, space_after)

    def take(self, which: NDArray[np.bool_]) -> Filled:
        """Select the chunks of some of the substitutions."""
        sizes = np.diff(self.starts)[which]
        outcome = self.outcome[ranges(self.starts[:-1][which], sizes)]
        return Filled(self.bounds, starts_of(sizes), outcome, self.words, self.space_after)

    @property
    def sound(self) -> NDArray[np.bool_]:
        """[n] Whether the tokeniser splits all chunks into the expected tokens."""
        is_sound = np.array([words is not None for words in self.words], np.bool_)
        all_sound: NDArray[np.bool_] = np.logical_and.reduceat(
            is_sound[self.outcome], self.starts[:-1]
        )
        return all_sound


def spaces_after(sentence: Sentence) -> tuple[bool, ...]:
    """Return for each token whether a space follows."""
    starts = [token.start for token in sentence.tokens[1:]] + [len(sentence.text)]
    return tuple(t.span[1] < start for t, start in zip(sentence.tokens, starts, strict=True))


def windows_after(
    substitutions: Substitutions,
    filled: Filled,
    *,
    sentence_ids: Callable[[Place], NDArray[np.int32]],
    token_id: Callable[[TokenKey], int],
    half_width: int,
) -> NDArray[np.int32]:
    """Return [Σ positions, width] ids of the tokens around the positions of sound substitutions.

    `sentence_ids` returns the ids of a place's sentence, with `half_width` ids on each side. A
    *cell* is a token of a chunk within a window, which a word put in the chunk changes.
    """
    width = 2 * half_width + 1
    ids_before, n_cells, cells = [], [], []
    for place, bounds in zip(substitutions.places, filled.bounds, strict=True):
        sentence = sentence_ids(place)
        for position in place.positions:
            ids_before.append(sentence[position : position + width])
            first_token = position - half_width
            # Column of the window, number of the chunk in the place, token in the chunk.
            changed = [
                (i - first_token, chunk, i - first)
                for chunk, (first, last) in enumerate(bounds)
                for i in range(max(first, first_token), min(last, first_token + width))
            ]
            n_cells.append(len(changed))
            cells += changed
    new_ids: list[int] = []
    first_id: list[int] = []
    for words, space in zip(filled.words, filled.space_after, strict=True):
        first_id.append(len(new_ids))
        last = len(words or ()) - 1
        new_ids += [token_id((*word, space and i == last)) for i, word in enumerate(words or ())]
    sizes = substitutions.sizes
    starts = starts_of(np.array([len(place.positions) for place in substitutions.places], np.int64))
    position_of = ranges(starts[substitutions.place], sizes)
    windows = np.array(ids_before, np.int32).reshape(-1, width)[position_of]
    cell_starts = starts_of(np.array(n_cells, np.int64))
    counts = np.diff(cell_starts)[position_of]
    cell_of = ranges(cell_starts[position_of], counts)
    column, chunk, token = np.array(cells, np.int64).reshape(-1, 3)[cell_of].T
    outcome = filled.outcome[np.repeat(np.repeat(filled.starts[:-1], sizes), counts) + chunk]
    new = np.array(new_ids, np.int32)[np.array(first_id, np.int64)[outcome] + token]
    windows[np.repeat(np.arange(len(windows)), counts), column] = new
    return windows
