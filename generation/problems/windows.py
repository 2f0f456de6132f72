"""What a tagger of bounded sight sees of words put in places: windows of token ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from generation.problems.substitutions import Chunks, Filled, Place, Substitutions
from generation.ragged import ranges, starts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from generation.problems.sparse_tagger import TokenKey


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
        """Cut them out.

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
        """[Σ positions, width] The windows with words put in.

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
    """The cells of the window of tokens that begins at `start`."""
    return [
        (i - start, chunk, i - first)
        for chunk, (first, last) in enumerate(bounds)
        for i in range(max(first, start), min(last, start + width))
    ]


def _ids_of(
    filled: Filled, token_id: Callable[[TokenKey], int]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Ids of the tokens of all outcomes, laid end to end, and where each begins."""
    ids: list[int] = []
    sizes: list[int] = []
    for words, space in zip(filled.words, filled.space_after, strict=True):
        last = len(words or ()) - 1
        new = [token_id((*word, space and i == last)) for i, word in enumerate(words or ())]
        ids += new
        sizes.append(len(new))
    return starts_of(np.array(sizes, np.int64)), np.array(ids, np.int32)
