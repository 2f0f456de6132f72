"""Candidates: stored suggestions that pass (i) and the other filters without a tagger (D4–D6).

They are written once per build into flat files, in the order of the run's questions. These filters
come first, because tagging costs a thousand times more than comparing two numbers.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

import numpy as np

from generation.config import Config
from generation.problems.on_disk import read_block
from generation.problems.shared_words import TaggedProblems, tag_problems
from generation.problems.tagging import Tagger, tagger_for
from generation.records import MaskedQuery, Scores, ranges, starts_of
from generation.run_folder import RunFolder
from generation.suggestions.questions import Questions
from generation.suggestions.store import (
    asked_mlms,
    mlm_names,
    read_scores,
    stored_vocabulary,
    stores_of,
)
from generation.suggestions.vocabulary import Vocabulary
from generation.variants.equation import Lexicon, Survivors
from generation.variants.reasons import NO_REASON, Reason, first_reasons
from merge_dataset.answer_store import AnswerStore
from merge_dataset.files import partial_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHEAP_REASONS: Final = Reason.of_steps("candidates")

_FILES: Final = {
    "starts": np.dtype(np.int64),
    "in_vocabulary": np.dtype(np.bool_),
    "asked": np.dtype(np.bool_),
    "tokens": np.dtype(np.int32),
    "log_odds": np.dtype(np.float32),
    "rejected": np.dtype((np.int32, len(CHEAP_REASONS))),
}


@dataclass(frozen=True)
class Candidates:
    """One MLM's candidates at every occurrence asked about. Can be sent to other processes."""

    folder: Path
    questions: Questions
    store: AnswerStore

    @classmethod
    def write(cls, folder: Path, store: AnswerStore, questions: Questions, config: Config) -> Self:
        """Filter a store's answers to the run's questions, one block at a time."""
        folder.mkdir(parents=True)
        vocabulary, done = stored_vocabulary(store), 0
        rows = questions.asked
        with ExitStack() as stack:
            files = {n: stack.enter_context((folder / f"{n}.bin").open("wb")) for n in _FILES}
            _append(files, starts=[0])
            for block in questions.blocks:
                is_asked = rows[questions.places[block]]
                scores = read_scores(store, questions.of(block, rows))
                left = survivors_of(scores, vocabulary, config)
                sizes = _spread(left.sizes, is_asked, 0)
                _append(
                    files,
                    starts=starts_of(sizes)[1:] + done,
                    in_vocabulary=_spread(left.in_vocabulary, is_asked, True),
                    asked=is_asked,
                    tokens=left.tokens,
                    log_odds=left.log_odds,
                    rejected=_spread(left.rejected, is_asked, 0),
                )
                done += len(left.tokens)
        return cls(folder, questions, store)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the masked LM."""
        return stored_vocabulary(self.store)

    def take(self, queries: Sequence[MaskedQuery]) -> Survivors:
        """Return the candidates at some occurrences, in their order."""
        rows = self.questions.rows(queries)
        starts = self._open("starts")
        first, sizes = starts[rows], starts[rows + 1] - starts[rows]
        places = ranges(first, sizes)
        of_rows = {n: self._open(n)[rows] for n in ("in_vocabulary", "asked", "rejected")}
        of_places = {n: self._open(n)[places] for n in ("tokens", "log_odds")}
        return Survivors(starts=starts_of(sizes), **of_rows, **of_places)

    def _open(self, name: str) -> NDArray[Any]:
        # Mapped anew each time: pages that were read do not stay in the process's memory.
        path, dtype = self.folder / f"{name}.bin", _FILES[name]
        if not path.stat().st_size:
            return np.empty(0, dtype)
        return np.asarray(np.memmap(path, dtype.base, mode="r")).reshape(-1, *dtype.shape)


@dataclass(frozen=True)
class BlockWork:
    """Work on a run's problems, block by block. Can be sent to other processes."""

    run: RunFolder
    config: Config
    folder: Path | None = field(default=None, kw_only=True)
    """Folder of the candidates; None before anything was asked."""
    in_task: bool = field(default=False, kw_only=True)
    """Whether this process does a task of an executor."""

    def problems(self, block: int) -> TaggedProblems:
        """Read and tag the problems of a block."""
        seeds, config = read_block(self.run.problems, block), self.config
        return tag_problems(seeds, self.tagger, config.word_classes, config.sharing)

    @cached_property
    def questions(self) -> Questions:
        """The run's questions, and which of them were asked."""
        return Questions(self.run.questions)

    @cached_property
    def stores(self) -> dict[str, AnswerStore]:
        """The stores, by masked LM."""
        records = asked_mlms(self.run, mlm_names(self.config.mlms))
        return stores_of(self.run, self.config.store, records)

    @cached_property
    def candidates(self) -> dict[str, Candidates]:
        """The candidates of each masked LM, numbered in the folder in the order of the stores."""
        if self.folder is None:
            return {}
        return {
            mlm: Candidates(self.folder / str(number), self.questions, store)
            for number, (mlm, store) in enumerate(self.stores.items())
        }

    @cached_property
    def lexicon(self) -> Lexicon:
        """Numbers of the candidates' words."""
        return Lexicon.of({mlm: of_mlm.vocabulary for mlm, of_mlm in self.candidates.items()})

    @cached_property
    def tagger(self) -> Tagger:
        """The tagger of this process; one of several loads it without torch."""
        spare_torch = self.in_task or self.config.workers > 1
        return tagger_for(self.config.tagger, spare_torch=spare_torch)

    @contextmanager
    def with_candidates(self, path: Path) -> Iterator[Self]:
        """Write all masked LMs' candidates beside a path, and delete them when the context ends."""
        folder = partial_path(path)
        try:
            for number, store in enumerate(self.stores.values()):
                Candidates.write(folder / str(number), store, self.questions, self.config)
            yield replace(self, folder=folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def survivors_of(scores: Scores, vocabulary: Vocabulary, config: Config) -> Survivors:
    """Keep whole alphabetic words (D4), more probable than the original (D5), once each (D6)."""
    suggested = scores.answered[:, None] & (scores.tokens >= 0)
    numbers = first_reasons(suggested, ("candidates",), scores, vocabulary, config)
    kept = suggested & (numbers == NO_REASON)
    rows, columns = np.nonzero(kept)
    rejected = [(numbers == reason.number).sum(axis=1) for reason in CHEAP_REASONS]
    return Survivors(
        starts=starts_of(kept.sum(axis=1)),
        in_vocabulary=scores.answered,
        asked=np.ones(len(scores.original), np.bool_),
        tokens=scores.tokens[rows, columns],
        log_odds=scores.logits[rows, columns] - scores.original_logit[rows],
        rejected=np.stack(rejected, axis=1).astype(np.int32),
    )


def _spread(rows: NDArray[Any], asked: NDArray[np.bool_], filler: int) -> NDArray[Any]:
    """Expand rows of the occurrences asked about to all occurrences; others get the filler."""
    every = np.full((len(asked), *rows.shape[1:]), filler, rows.dtype)
    every[asked] = rows
    return every


def _append(files: Mapping[str, BinaryIO], **columns: Any) -> None:
    for name, values in columns.items():
        files[name].write(np.ascontiguousarray(values, _FILES[name].base).tobytes())
