"""Work on blocks of a run's problems, and its candidates: suggestions that `survivors_of` keeps.

Candidates are written once per build into flat files, in the order of the run's questions.
"""

import json
import pickle
import shutil
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from generation.config import Config
from generation.problems.on_disk import block_sizes, read_block
from generation.problems.tagging import TaggedProblems, Tagger, tag_problems, tagger_for
from generation.records import MaskedQuery, ranges, starts_of
from generation.run_folder import RunFolder, versions
from generation.suggestions.questions import Questions
from generation.suggestions.store import read_scores, stored_vocabulary, stores_of
from generation.variants.equation import Lexicon, Survivors
from generation.variants.grammar import has_library
from generation.variants.validation import CHEAP_REASONS, survivors_of
from merge_dataset import files
from merge_dataset.answer_store import AnswerStore, slug
from merge_dataset.executors import Distribution, map_blocks, plan_of, run_blocks

_FILES: Final = {
    "starts": np.dtype(np.int64),
    "in_vocabulary": np.dtype(np.bool_),
    "asked": np.dtype(np.bool_),
    "tokens": np.dtype(np.int32),
    "log_odds": np.dtype(np.float32),
    "rejected": np.dtype((np.int32, len(CHEAP_REASONS))),
}


def write_candidates(
    folder: Path, store: AnswerStore, questions: Questions, config: Config
) -> None:
    """Filter a masked LM's answers to the run's questions, one block at a time."""
    folder.mkdir(parents=True)
    vocabulary, done, asked = stored_vocabulary(store), 0, questions.asked
    with ExitStack() as stack:
        written = {n: stack.enter_context((folder / f"{n}.bin").open("wb")) for n in _FILES}
        written["starts"].write(np.zeros(1, _FILES["starts"]).tobytes())
        for block in questions.blocks:
            is_asked = asked[questions.places[block]]
            left = survivors_of(read_scores(store, questions.of(block, asked)), vocabulary, config)
            # Rows of all occurrences; those that were not asked about are as if there is nothing.
            sizes = np.zeros(len(is_asked), np.int64)
            in_vocabulary = np.ones(len(is_asked), np.bool_)
            rejected = np.zeros((len(is_asked), len(CHEAP_REASONS)), np.int32)
            sizes[is_asked], in_vocabulary[is_asked] = left.sizes, left.in_vocabulary
            rejected[is_asked] = left.rejected
            columns: dict[str, NDArray[Any]] = {
                "starts": starts_of(sizes)[1:] + done,
                "in_vocabulary": in_vocabulary,
                "asked": is_asked,
                "tokens": left.tokens,
                "log_odds": left.log_odds,
                "rejected": rejected,
            }
            for name, values in columns.items():
                written[name].write(np.ascontiguousarray(values, _FILES[name].base).tobytes())
            done += len(left.tokens)


def read_candidates(folder: Path, rows: NDArray[np.int64]) -> Survivors:
    """Read the candidates at the occurrences of some rows of the run's questions."""

    def column(name: str) -> NDArray[Any]:
        # Mapped anew each time: pages that were read do not stay in the process's memory.
        path, dtype = folder / f"{name}.bin", _FILES[name]
        if not path.stat().st_size:
            return np.empty(0, dtype)
        return np.asarray(np.memmap(path, dtype.base, mode="r")).reshape(-1, *dtype.shape)

    starts = column("starts")
    first, sizes = starts[rows], starts[rows + 1] - starts[rows]
    places = ranges(first, sizes)
    of_rows = {name: column(name)[rows] for name in ("in_vocabulary", "asked", "rejected")}
    of_places = {name: column(name)[places] for name in ("tokens", "log_odds")}
    return Survivors(starts=starts_of(sizes), **of_rows, **of_places)


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
        """The stores of the masked LMs used, by name, sorted."""
        return stores_of(self.run, self.config)

    def survivors(self, queries: Sequence[MaskedQuery]) -> dict[str, Survivors]:
        """Return the candidates of each masked LM, by name, at some occurrences, in their order."""
        if self.folder is None:
            return {}
        rows = self.questions.rows(queries)
        return {name: read_candidates(self.folder / slug(name), rows) for name in self.stores}

    @cached_property
    def lexicon(self) -> Lexicon:
        """Numbers of the candidates' words."""
        stores = self.stores if self.folder else {}
        return Lexicon.of({mlm: stored_vocabulary(store) for mlm, store in stores.items()})

    @cached_property
    def tagger(self) -> Tagger:
        """The tagger of this process; one of several loads it without torch."""
        spare_torch = self.in_task or self.config.workers > 1
        return tagger_for(self.config.tagger, spare_torch=spare_torch)

    @contextmanager
    def with_candidates(self, path: Path) -> Iterator[Self]:
        """Write all masked LMs' candidates beside a path, and delete them when the context ends."""
        folder = files.partial_path(path)
        try:
            with files.naming(path):
                for name, store in self.stores.items():
                    write_candidates(folder / slug(name), store, self.questions, self.config)
            yield replace(self, folder=folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


# --- Work on all blocks: here, in several processes, or in tasks ---

BlockResult = tuple[Mapping[str, pa.Table], Mapping[str, Any]]
"""Tables by name, and further facts, JSON-able."""


def work_on_blocks(
    work: BlockWork, method: str, folder: Path, distribution: Distribution | None
) -> Iterator[BlockResult]:
    """Yield in order what a method of `work` makes of each block; tasks use the folder meanwhile.

    All machines have to have the same tagger and versions of packages.
    """
    blocks = range(len(block_sizes(work.run.problems)))
    if distribution is None:
        workers = work.config.workers
        # Other processes open a tagger of their own, as an open one cannot be sent there.
        own = work if workers == 1 else replace(work)
        yield from map_blocks(blocks, partial(getattr, own, method), workers=workers)
        return
    alone = replace(work, run=RunFolder(work.run.path.absolute()), in_task=True)
    pickled = b64encode(pickle.dumps(alone)).decode()
    plan = {"work": pickled, "method": method, "made_with": _made_with(work)}
    names, where = [f"block {number}" for number in blocks], distribution.without_gpus()
    results = run_blocks(f"{__name__}:do_block", folder, names, where, plan)
    for tables, facts in results.values():
        yield {name: files.read_table(folder / file) for name, file in tables.items()}, facts


def do_block(folder: Path, name: str) -> tuple[dict[str, str], Mapping[str, Any]]:
    """Do a block, such as "block 3": write tables; return their files, and more facts."""
    number = int(name.split()[1])
    work, method = _work_of(json.dumps(plan_of(folder)))
    tables, facts = getattr(work, method)(number)
    paths = {name: f"tables/{number:06}.{name}.parquet" for name in tables}
    for name, table in tables.items():
        files.write_table(folder / paths[name], table)
    return paths, facts


def _made_with(work: BlockWork) -> dict[str, Any]:
    """Name the tagger and the versions on which the result of a block depends."""
    packages = versions("inflect", "merge-nli", "numpy", "spacy", "wordfreq")
    return {"tagger": work.tagger.name, "lemminflect": has_library(), **packages}


@lru_cache(maxsize=1)
def _work_of(text: str) -> tuple[BlockWork, str]:
    """Read the work of a plan, once per task, so that the task has one tagger."""
    plan = json.loads(text)
    work: BlockWork = pickle.loads(b64decode(plan["work"]))
    if (here := _made_with(work)) != plan["made_with"]:
        raise ValueError(
            f"expected the command's tagger and versions, {plan['made_with']}, a task's machine "
            f"has {here}; install the same on all machines"
        )
    return work, plan["method"]
