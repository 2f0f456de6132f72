"""What the suggestion stores say about an occurrence, after the filters without a tagger.

What these filters leave is a tenth of a store. It is written once per build into flat files,
in the order of the run's questions, and read from there block by block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

import numpy as np

from generation.columns import ranges, starts_of
from generation.filters import CHEAP_REASONS, Survivors, cheap_filters
from generation.questions import Questions
from generation.records import MaskedQuery
from generation.suggestions import SuggestionStore
from generation.vocabulary import Vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FILES: Final = {
    "starts": np.dtype(np.int64),
    "in_vocabulary": np.dtype(np.bool_),
    "tokens": np.dtype(np.int32),
    "log_odds": np.dtype(np.float32),
    "rejected": np.dtype((np.int32, len(CHEAP_REASONS))),
}


@dataclass(frozen=True)
class Candidates:
    """One MLM's candidates at every occurrence asked about. Can be sent to other processes."""

    folder: Path
    questions: Questions
    store: SuggestionStore

    @classmethod
    def write(
        cls,
        folder: Path,
        store: SuggestionStore,
        questions: Questions,
        *,
        probability_filter: bool,
    ) -> Self:
        """Filter a store's answers to the run's questions, one shard at a time.

        Raises:
            ValueError: some have no answer in the store.
        """
        folder.mkdir(parents=True)
        vocabulary, done = store.vocabulary(), 0
        files = {name: (folder / f"{name}.bin").open("wb") for name in _FILES}
        try:
            _append(files, starts=[0])
            for shard in questions.shards:
                scores = store.answers(shard, questions.of(shard))
                left = cheap_filters(scores, vocabulary, probability_filter=probability_filter)
                _append(
                    files,
                    starts=left.starts[1:] + done,
                    in_vocabulary=left.in_vocabulary,
                    tokens=left.tokens,
                    log_odds=left.log_odds,
                    rejected=left.rejected,
                )
                done += len(left.tokens)
        finally:
            for file in files.values():
                file.close()
        return cls(folder, questions, store)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """What the tokens read as."""
        return self.store.vocabulary()

    def take(self, queries: Sequence[MaskedQuery]) -> Survivors:
        """The candidates at some occurrences, in their order.

        Raises:
            ValueError: some are none of the run's questions.
        """
        rows = self.questions.rows(queries)
        starts = self._open("starts")
        first, sizes = starts[rows], starts[rows + 1] - starts[rows]
        places = ranges(first, sizes)
        return Survivors(
            starts=starts_of(sizes),
            in_vocabulary=self._open("in_vocabulary")[rows],
            tokens=self._open("tokens")[places],
            log_odds=self._open("log_odds")[places],
            rejected=self._open("rejected")[rows],
        )

    def _open(self, name: str) -> NDArray[Any]:
        # Mapped anew each time: pages that were read do not stay in the process's memory.
        path, dtype = self.folder / f"{name}.bin", _FILES[name]
        if not path.stat().st_size:
            return np.empty(0, dtype)
        return np.asarray(np.memmap(path, dtype.base, mode="r")).reshape(-1, *dtype.shape)


def _append(files: Mapping[str, BinaryIO], **columns: Any) -> None:
    for name, values in columns.items():
        files[name].write(np.ascontiguousarray(values, _FILES[name].base).tobytes())
