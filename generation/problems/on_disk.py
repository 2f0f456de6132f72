"""A run's problems on disk: sorted by id in bounded memory, and read block by block."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from generation.records import Seed
from merge_dataset import files
from merge_dataset.engine import sorted_rows
from merge_dataset.schema import NLI, ProblemFormat, format_of, with_format

BLOCK: Final = 1024
"""Number of problems in a block, which is held in memory and processed as a whole."""
_LETTERS: Final = 2**20
"""Maximum of characters in a block of long problems."""


def problem_schema(problem_format: ProblemFormat = NLI) -> pa.Schema:
    """Return the columns of `problems.parquet`."""
    names = ("seed_id", "source", *problem_format.fields, "label")
    columns = dict.fromkeys(names, pa.string()) | {"annotator_labels": pa.list_(pa.string())}
    return with_format(pa.schema(columns), problem_format)


def problem_table(seeds: Iterable[Seed], problem_format: ProblemFormat = NLI) -> pa.Table:
    """Return one row per problem, in the order given."""
    rows = [
        {"seed_id": seed.seed_id, "source": seed.source, "label": seed.label,
         "annotator_labels": seed.annotator_labels,
         **dict(zip(problem_format.fields, seed.texts, strict=True))}
        for seed in seeds
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, problem_schema(problem_format))


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


@contextmanager
def sorted_problems(
    path: Path, problem_format: ProblemFormat = NLI
) -> Iterator[Callable[[Seed], None]]:
    """Collect problems in any order, and write them sorted by `seed_id`, whole or not at all."""
    spill = files.partial_path(path)
    try:
        with files.naming(path):
            spill.mkdir(parents=True)
            with _blocks_in(spill / "unsorted", problem_format) as add:
                yield add
        with files.atomic(path) as file, _blocks_in(file, problem_format) as add:
            for table in sorted_rows(spill / "unsorted", "seed_id", problem_schema(problem_format)):
                for seed in seeds_in(table):
                    add(seed)
    finally:
        shutil.rmtree(spill, ignore_errors=True)


@contextmanager
def _blocks_in(file: Path, problem_format: ProblemFormat) -> Iterator[Callable[[Seed], None]]:
    """Collect problems, and write them in blocks that fit into memory."""
    block: list[Seed] = []
    letters, schema = 0, problem_schema(problem_format)
    with pq.ParquetWriter(file, schema, **files.PARQUET_OPTIONS) as writer:

        def add(seed: Seed) -> None:
            nonlocal letters
            size = sum(map(len, seed.texts))
            if block and (len(block) == BLOCK or letters + size > _LETTERS):
                writer.write_table(problem_table(block, problem_format))
                block.clear()
                letters = 0
            block.append(seed)
            letters += size

        yield add
        if block:
            writer.write_table(problem_table(block, problem_format))


def block_sizes(path: Path) -> list[int]:
    """List the number of problems in each block."""
    metadata = _metadata(path, *files.state_of(path))
    return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


def read_block(path: Path, number: int) -> list[Seed]:
    """Read the problems of a block."""
    metadata = _metadata(path, *files.state_of(path))
    return seeds_in(files.open_parquet(path, metadata).read_row_group(number))


@lru_cache(maxsize=1)
def _metadata(path: Path, *state: int) -> pq.FileMetaData:
    return files.open_parquet(path).metadata
