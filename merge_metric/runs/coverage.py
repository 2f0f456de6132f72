"""How much of a dataset a predictions file answers, and which configurations it is meant for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.files import read_table
from merge_dataset.layout import (
    all_configurations,
    collections,
    configurations,
    require_configurations,
    require_dataset,
    sources,
    split_files,
)
from merge_dataset.schema import PARAPHRASE, SPLITS, collection_name
from merge_dataset.seed_ranges import SeedRange, seed_ranges, whole

EXAMPLES: Final = 3
"""Ids that a message shows."""

_ROW_BITS: Final = 40
"""Low bits of a problem's number, which hold its row; the others hold the number of its file."""


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """How many of the dataset's problems a predictions file answers, and how many it does not."""

    folder: Path
    sizes: Mapping[str, tuple[int, int]]
    """File of the dataset → its problems, and those of them without a prediction."""

    def __add__(self, other: Tally) -> Tally:
        """Count other seeds of the same files, too."""
        return Tally(
            self.folder,
            {
                file: (size + other.sizes[file][0], missing + other.sizes[file][1])
                for file, (size, missing) in self.sizes.items()
            },
        )

    def _sum(self, config: str, split: str) -> tuple[int, int]:
        found = [self.sizes[file] for file in split_files(self.folder, config)[split]]
        return sum(size for size, _ in found), sum(missing for _, missing in found)

    def n_missing(self, config: str, split: str) -> int:
        """Count the problems of a split that have no prediction."""
        return self._sum(config, split)[1]

    def has(self, config: str, split: str) -> bool:
        """Whether there is a prediction for some problem of a split."""
        size, missing = self._sum(config, split)
        return size > missing

    def is_complete(self, config: str) -> bool:
        """Whether every problem of a configuration has its prediction."""
        return not any(self.n_missing(config, split) for split in SPLITS)

    def describe_missing(self, config: str) -> str:
        """Say how much a configuration lacks: "3 of 10 seeds and 4 of 20 variants"."""
        return " and ".join(
            f"{missing:,} of {count:,} {split}"
            for split in SPLITS
            for count, missing in [self._sum(config, split)]
            if missing
        )


@dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """The dataset's problems, or those of some of its seeds, in a predictions table."""

    seeds: SeedRange
    """The seeds."""
    rows: Mapping[str, NDArray[np.int64]]
    """File of the dataset → for each of its rows the row of the predictions, or -1."""

    @property
    def folder(self) -> Path:
        """The dataset folder."""
        return self.seeds.folder

    @property
    def tally(self) -> Tally:
        """Counts, file by file."""
        sizes = {file: (len(rows), int((rows < 0).sum())) for file, rows in self.rows.items()}
        return Tally(self.folder, sizes)

    def of(self, config: str, split: str) -> NDArray[np.int64]:
        """Find each problem of a split: its row in the predictions, or -1."""
        files = split_files(self.folder, config)[split]
        return np.concatenate([self.rows[file] for file in files] or [np.empty(0, np.int64)])

    def places(self, config: str, split: str) -> NDArray[np.int64]:
        """Number each problem of a split; of all seeds the numbers ascend in its order."""
        files = split_files(self.folder, config)[split]
        found = [
            (number << _ROW_BITS) + np.arange(*self.seeds.rows[file])
            for number, file in enumerate(files)
        ]
        return np.concatenate(found or [np.empty(0, np.int64)])

    def unknown(self, predictions: pa.Table) -> pa.Table:
        """Find the predictions for problems that these seeds do not have."""
        unknown = np.ones(len(predictions), bool)
        for rows in self.rows.values():
            unknown[rows[rows >= 0]] = False
        return predictions.filter(pa.array(unknown))

    def read(self, files: Sequence[str], names: Sequence[str]) -> pa.Table:
        """Read some columns of these seeds' rows; see `read_columns`."""
        return read_columns(self.folder, files, names, seeds=self.seeds)


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Predictions beside a dataset: as a whole, or in parts of some consecutive seeds."""

    tally: Tally
    """Counts of all parts together."""
    rows: int
    """How many predictions there are."""
    count: int
    """How many parts there are."""
    each: Callable[[], Iterator[tuple[pa.Table, Coverage]]]
    """Reads the parts, one after the other: predictions, and the seeds that they are for."""

    @classmethod
    def whole(cls, predictions: pa.Table, coverage: Coverage) -> Parts:
        """Make a single part of what is in memory."""
        only = (predictions, coverage)
        return cls(coverage.tally, len(predictions), 1, lambda: iter([only]))


def dataset_files(folder: Path) -> list[str]:
    """List the files of all configurations of a dataset folder, each once.

    Raises:
        NotADirectoryError, ValueError: `folder` is no dataset folder.
    """
    require_dataset(folder)
    files = dict.fromkeys(
        file
        for config in all_configurations(folder)
        for split in SPLITS
        for file in split_files(folder, config)[split]
    )
    return list(files)


def cover(predictions: pa.Table, folder: Path) -> Coverage:
    """Find every problem of a dataset folder in a predictions table.

    Raises:
        NotADirectoryError, ValueError: `folder` is no dataset folder, or there are
            predictions for problems that it does not hold.
    """
    with _advising_to_check(folder):
        everything = whole(folder, dataset_files(folder))
    coverage = cover_seeds(predictions, everything)
    unknown = coverage.unknown(predictions)
    require_known(unknown["variant_id"], len(unknown), len(predictions), folder)
    return coverage


def ranges_in(folder: Path) -> list[SeedRange]:
    """Cut a dataset's seeds into ranges, each of which fits into memory many times.

    Raises:
        NotADirectoryError, ValueError: `folder` is no dataset folder, or a file is damaged.
    """
    files = dataset_files(folder)
    with _advising_to_check(folder):
        return seed_ranges(folder, files)


@contextmanager
def _advising_to_check(folder: Path) -> Iterator[None]:
    """Say with what is wrong in a file of the dataset where to learn more."""
    try:
        yield
    except ValueError as error:
        if str(error).startswith(f"{folder}{os.sep}"):
            raise ValueError(f"{error}; `merge-nli check {folder}` says more") from error
        raise


def cover_seeds(predictions: pa.Table, seeds: SeedRange) -> Coverage:
    """Find every problem of some seeds in a predictions table."""
    ids = [
        read_columns(seeds.folder, [file], ["variant_id"], seeds=seeds)["variant_id"]
        for file in seeds.rows
    ]
    every = pa.chunked_array([chunk for column in ids for chunk in column.chunks], pa.string())
    found = pc.index_in(every, value_set=predictions["variant_id"].combine_chunks())
    rows = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    ends = np.cumsum([len(column) for column in ids])
    return Coverage(seeds, dict(zip(seeds.rows, np.split(rows, ends[:-1]), strict=True)))


def choose(coverage: Tally) -> list[str]:
    """Choose the configurations that a predictions file is meant for.

    For each source that it mentions: all word classes, where every prediction is there or
    some of every class; else the classes of which it has variants, complete or not, so
    that a file cut short is noticed. Also the paraphrases, where it has some: their seeds
    alone, which replacements may share, do not mean them.
    """
    chosen = []
    for source in sources(coverage.folder):
        names = (collection_name(source), collection_name(source, PARAPHRASE))
        of_source = [
            configurations(coverage.folder, name)
            for name in collections(coverage.folder)
            if name in names
        ]
        begun = [config for configs in of_source for config in _begun(coverage, configs)]
        # A file with nothing but seeds was cut short, too.
        chosen += begun or [
            everything for everything, *_ in of_source if coverage.has(everything, "seeds")
        ]
    return chosen


def _begun(coverage: Tally, configs: Sequence[str]) -> list[str]:
    """Choose among a collection's configurations, the whole one first, those predicted."""
    everything, *classes = configs
    parts = classes or [everything]
    begun = [config for config in parts if coverage.has(config, "variants")]
    return [everything] if coverage.is_complete(everything) or begun == parts else begun


def check_configurations(folder: Path, configs: Sequence[str]) -> list[str]:
    """Check the configurations asked for; each once.

    Raises:
        ValueError: the folder has no such configuration.
    """
    known = all_configurations(folder)
    require_configurations(folder, known, configs)
    return list(dict.fromkeys(configs))


def read_columns(
    folder: Path, files: Sequence[str], names: Sequence[str], *, seeds: SeedRange | None = None
) -> pa.Table:
    """Read some columns of some files of a dataset folder, one after the other.

    Args:
        folder: The dataset folder.
        files: Relative to it.
        names: Columns.
        seeds: Those whose rows are read; by default all.

    Raises:
        ValueError: a file cannot be read, or lacks a column.
    """
    tables = []
    for file in files:
        try:
            table = seeds.read(file, names) if seeds else read_table(folder / file, names)
            tables.append(table.select(names))
        except FileNotFoundError as error:
            raise ValueError(f"{folder / file}: expected a file, found none") from error
        except KeyError as error:
            raise ValueError(
                f"{folder / file}: expected the columns {', '.join(names)}, got none called "
                f"{error.args[0]}; `merge-nli check {folder}` says more"
            ) from error
        except ValueError as error:
            raise ValueError(f"{error}; `merge-nli check {folder}` says more") from error
    return pa.concat_tables(tables)


def preview(values: Any) -> str:
    """Show the first few values of a column, and that there are more.

    >>> preview(pa.array(["a", "b", "c", "d"]))
    "'a', 'b', 'c', …"
    """
    shown = ", ".join(repr(value.as_py()) for value in values[:EXAMPLES])
    return f"{shown}, …" if len(values) > EXAMPLES else shown


def require_known(unknown: pa.ChunkedArray, count: int, total: int, folder: Path) -> None:
    """Raise where there are predictions for ids that the dataset does not have.

    Args:
        unknown: The ids, or the first of them.
        count: How many they are.
        total: How many predictions there are.
        folder: The dataset folder.
    """
    if count:
        raise ValueError(
            f"expected predictions for problems of the dataset {folder}, got {count:,} of "
            f"{total:,} for ids that none of its configurations holds: {preview(unknown)}; "
            f"give the dataset that the model was run on, or run the model on this one"
        )
