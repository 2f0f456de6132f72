"""A dataset's files, and how much of them a model's predictions answer."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from merge_dataset.files import ROWS, naming_damage, open_parquet
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

EXAMPLES: Final = 3
"""Ids that a message shows."""


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """How many of the dataset's problems a model answers, and how many it does not."""

    folder: Path
    sizes: Mapping[str, tuple[int, int]]
    """File of the dataset → its problems, and those of them without a prediction."""

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


def choose(tally: Tally) -> list[str]:
    """Choose the configurations that a predictions file is meant for.

    For each source that it mentions: all word classes, where every prediction is there or
    some of every class; else the classes of which it has variants, complete or not, so
    that a file cut short is noticed. Also the paraphrases, where it has some: their seeds
    alone, which replacements may share, do not mean them.
    """
    chosen = []
    for source in sources(tally.folder):
        names = (collection_name(source), collection_name(source, PARAPHRASE))
        of_source = [
            configurations(tally.folder, name)
            for name in collections(tally.folder)
            if name in names
        ]
        begun = []
        for everything, *classes in of_source:
            parts = classes or [everything]
            found = [config for config in parts if tally.has(config, "variants")]
            whole = tally.is_complete(everything) or found == parts
            begun += [everything] if whole else found
        # A file with nothing but seeds was cut short, too.
        chosen += begun or [
            everything for everything, *_ in of_source if tally.has(everything, "seeds")
        ]
    return chosen


def check_configurations(folder: Path, configs: Sequence[str]) -> list[str]:
    """Check the configurations asked for; each once.

    Raises:
        ValueError: the folder has no such configuration.
    """
    known = all_configurations(folder)
    require_configurations(folder, known, configs)
    return list(dict.fromkeys(configs))


# --- Files of the dataset ---


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


def require_columns(folder: Path, file: str, names: Sequence[str], found: Sequence[str]) -> None:
    """Raise ValueError unless a file of a dataset has all columns that are wanted."""
    for name in names:
        if name not in found:
            raise ValueError(
                f"{folder / file}: expected the columns {', '.join(names)}, got none called "
                f"{name}; `merge-nli check {folder}` says more"
            )


@contextmanager
def naming_dataset(folder: Path, file: str) -> Iterator[None]:
    """Name a file of a dataset that is damaged or gone, and say where to learn more."""
    try:
        with naming_damage(folder / file):
            yield
    except FileNotFoundError as error:
        raise ValueError(f"{folder / file}: expected a file, found none") from error
    except ValueError as error:
        raise ValueError(f"{error}; `merge-nli check {folder}` says more") from error


def read_batches_of(folder: Path, file: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read some columns of a file of a dataset folder, some rows at a time.

    Raises:
        ValueError: the file cannot be read, or lacks a column.
    """
    with naming_dataset(folder, file):
        parquet = open_parquet(folder / file)
    with parquet:
        require_columns(folder, file, names, parquet.schema_arrow.names)
        batches = parquet.iter_batches(ROWS, columns=list(names))
        while True:
            with naming_dataset(folder, file):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


def read_columns(folder: Path, files: Sequence[str], names: Sequence[str]) -> pa.Table:
    """Read some columns of some files of a dataset folder, one after the other.

    Raises:
        ValueError: a file cannot be read, or lacks a column.
    """
    tables = []
    for file in files:
        with naming_dataset(folder, file), open_parquet(folder / file) as parquet:
            table = parquet.read(columns=list(names))
        require_columns(folder, file, names, table.column_names)
        tables.append(table.select(list(names)))
    return pa.concat_tables(tables)


def preview(values: Any) -> str:
    """Show the first few values of a column, and that there are more.

    >>> preview(pa.array(["a", "b", "c", "d"]))
    "'a', 'b', 'c', …"
    """
    shown = ", ".join(repr(value.as_py()) for value in values[:EXAMPLES])
    return f"{shown}, …" if len(values) > EXAMPLES else shown


def is_about(error: BaseException, folder: Path | None) -> bool:
    """Tell whether a message begins with a dataset folder, or with a file in it."""
    return folder is not None and str(error).startswith((f"{folder}{os.sep}", f"{folder}: "))
