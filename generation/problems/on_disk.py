"""A run's problems on disk: sorted by id in bounded memory, and read block by block."""

import heapq
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from generation.records import Seed
from merge_dataset.files import PARQUET_OPTIONS, atomic, open_parquet, partial_path, state_of
from merge_dataset.schema import NLI, ProblemFormat, format_of, with_format

BLOCK: Final = 1024
"""Number of problems in a block, which is held in memory and processed as a whole."""
_LETTERS: Final = 2**20
"""Maximum of characters in a block of long problems."""
SORTED_AT_A_TIME: Final = 65_536
"""Number of problems held in memory while they are sorted."""
_LETTERS_SORTED: Final = 2**27
"""Maximum of characters of problems held in memory while they are sorted."""
MERGED_AT_A_TIME: Final = 256
"""Number of sorted files merged at a time; one block of each is in memory."""


def problem_schema(problem_format: ProblemFormat = NLI) -> pa.Schema:
    """Return the columns of `problems.parquet`."""
    texts = ("seed_id", "source", *problem_format.fields, "label")
    columns = [
        *((name, pa.string()) for name in texts),
        ("annotator_labels", pa.list_(pa.string())),
    ]
    return with_format(pa.schema(columns), problem_format)


def problem_table(seeds: Iterable[Seed], problem_format: ProblemFormat = NLI) -> pa.Table:
    """Return one row per problem, in the order given."""
    rows = list(seeds)
    columns = {
        name: [getattr(row, name) for row in rows]
        for name in ("seed_id", "source", "label", "annotator_labels")
    } | {field: [row.texts[n] for row in rows] for n, field in enumerate(problem_format.fields)}
    return pa.table(columns, schema=problem_schema(problem_format))


def seeds_in(problems: pa.Table) -> list[Seed]:
    """Read seeds from a table of `problem_table`."""
    fields = format_of(problems.schema).fields
    return [
        Seed(
            texts=tuple(row.pop(field) for field in fields),
            annotator_labels=tuple(row.pop("annotator_labels")),
            **row,
        )
        for row in problems.to_pylist()
    ]


class Sorter:
    """Sorter of problems by `seed_id` in bounded memory, with temporary files."""

    def __init__(self, spill: Path, problem_format: ProblemFormat) -> None:
        """Use `sorted_problems`."""
        self._spill, self._format = spill, problem_format
        self._held: list[Seed] = []
        self._runs: list[Path] = []
        self._letters = 0

    def add(self, seed: Seed) -> None:
        """Add a problem; they may come in any order."""
        self._held.append(seed)
        self._letters += sum(map(len, seed.texts))
        if len(self._held) == SORTED_AT_A_TIME or self._letters > _LETTERS_SORTED:
            self._runs.append(self._spill / f"{len(self._runs)}.parquet")
            _write(self._format, self._runs[-1], sorted(self._held, key=_BY_ID))
            self._held.clear()
            self._letters = 0

    def seeds(self) -> Iterator[Seed]:
        """Yield all problems in order."""
        while len(self._runs) > MERGED_AT_A_TIME:
            some, self._runs = self._runs[:MERGED_AT_A_TIME], self._runs[MERGED_AT_A_TIME:]
            merged = some[0].with_stem(f"{some[0].stem}-")
            _write(self._format, merged, heapq.merge(*map(_seeds_of, some), key=_BY_ID))
            for path in some:
                path.unlink()
            self._runs.append(merged)
        every = [sorted(self._held, key=_BY_ID), *map(_seeds_of, self._runs)]
        return heapq.merge(*every, key=_BY_ID)


@contextmanager
def sorted_problems(
    path: Path, problem_format: ProblemFormat = NLI
) -> Iterator[Callable[[Seed], None]]:
    """Collect problems in any order, and write them sorted by `seed_id`, whole or not at all."""
    spill = partial_path(path.with_name("sorting"))
    sorter = Sorter(spill, problem_format)
    try:
        yield sorter.add
        _write(problem_format, path, sorter.seeds())
    finally:
        shutil.rmtree(spill, ignore_errors=True)


def block_sizes(path: Path) -> list[int]:
    """List the number of problems in each block."""
    metadata = _metadata(path, *state_of(path))
    return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


def read_block(path: Path, number: int) -> list[Seed]:
    """Read the problems of a block."""
    return seeds_in(open_parquet(path, _metadata(path, *state_of(path))).read_row_group(number))


@lru_cache(maxsize=1)
def _metadata(path: Path, *state: int) -> pq.FileMetaData:
    return open_parquet(path).metadata


_BY_ID = attrgetter("seed_id")


def _write(problem_format: ProblemFormat, path: Path, seeds: Iterable[Seed]) -> None:
    block: list[Seed] = []
    letters = 0
    schema = problem_schema(problem_format)
    with atomic(path) as file, pq.ParquetWriter(file, schema, **PARQUET_OPTIONS) as writer:
        for seed in seeds:
            size = sum(map(len, seed.texts))
            if len(block) == BLOCK or (block and letters + size > _LETTERS):
                writer.write_table(problem_table(block, problem_format))
                block, letters = [], 0
            block.append(seed)
            letters += size
        if block:
            writer.write_table(problem_table(block, problem_format))


def _seeds_of(path: Path) -> Iterator[Seed]:
    # Opened once: opening takes time in proportion to the number of blocks.
    with open_parquet(path) as file:
        for number in range(file.metadata.num_row_groups):
            yield from seeds_in(file.read_row_group(number))
