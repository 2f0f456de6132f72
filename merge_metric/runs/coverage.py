"""Which problems of a dataset folder a predictions file answers, and what that suffices for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from merge_dataset.layout import (
    all_configurations,
    collections,
    configurations,
    require_dataset,
    sources,
    split_files,
)
from merge_dataset.schema import PARAPHRASE, SPLITS, collection_name

_EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """The dataset's problems in a predictions file."""

    folder: Path
    rows: Mapping[str, NDArray[np.int64]]
    """File of the dataset → for each of its rows the row of the predictions, or -1."""

    def of(self, config: str, split: str) -> NDArray[np.int64]:
        """For each problem of a split the row of the predictions, or -1."""
        files = split_files(self.folder, config)[split]
        return np.concatenate([self.rows[file] for file in files] or [np.empty(0, np.int64)])

    def n_missing(self, config: str, split: str) -> int:
        """How many problems of a split have no prediction."""
        return int((self.of(config, split) < 0).sum())

    def is_complete(self, config: str) -> bool:
        """Whether every problem of a configuration has its prediction."""
        return not any(self.n_missing(config, split) for split in SPLITS)

    def describe_missing(self, config: str) -> str:
        """How many predictions a configuration lacks: "3 of 10 seeds and 4 of 20 variants"."""
        return " and ".join(
            f"{self.n_missing(config, split):,} of {len(self.of(config, split)):,} {split}"
            for split in SPLITS
        )


def cover(predictions: pa.Table, folder: Path) -> Coverage:
    """Find every problem of a dataset folder in a predictions table.

    Raises:
        NotADirectoryError, ValueError: `folder` is no dataset folder, or there are
            predictions for problems that it does not hold.
    """
    require_dataset(folder)
    files = dict.fromkeys(
        file
        for config in all_configurations(folder)
        for split in SPLITS
        for file in split_files(folder, config)[split]
    )
    ids = [read_columns(folder, [file], ["variant_id"])["variant_id"] for file in files]
    every = pa.chunked_array([chunk for column in ids for chunk in column.chunks], pa.string())
    found = pc.index_in(every, value_set=predictions["variant_id"].combine_chunks())
    rows = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    _require_known(predictions, rows, folder)
    ends = np.cumsum([len(column) for column in ids])
    return Coverage(folder, dict(zip(files, np.split(rows, ends[:-1]), strict=True)))


def choose(coverage: Coverage) -> list[str]:
    """The configurations that a predictions file is meant for.

    Of each source that it mentions: all word classes, where every prediction is there or
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
            everything
            for everything, *_ in of_source
            if (coverage.of(everything, "seeds") >= 0).any()
        ]
    return chosen


def _begun(coverage: Coverage, configs: Sequence[str]) -> list[str]:
    """Of a collection's configurations, the whole one first, those that are predicted."""
    everything, *classes = configs
    parts = classes or [everything]
    begun = [config for config in parts if (coverage.of(config, "variants") >= 0).any()]
    return [everything] if coverage.is_complete(everything) or begun == parts else begun


def check_configurations(folder: Path, configs: Sequence[str]) -> list[str]:
    """The configurations asked for, each once.

    Raises:
        ValueError: the folder has no such configuration.
    """
    known = all_configurations(folder)
    if unknown := [config for config in configs if config not in known]:
        raise ValueError(
            f"{folder}: expected configurations out of {', '.join(known)}, "
            f"got {', '.join(map(repr, unknown))}"
        )
    return list(dict.fromkeys(configs))


def read_columns(folder: Path, files: Sequence[str], names: Sequence[str]) -> pa.Table:
    """Some columns of some files of a dataset folder, one after the other.

    Raises:
        ValueError: a file cannot be read, or lacks a column.
    """
    tables = []
    for file in files:
        try:
            # Not pq.read_table: it would take a parent folder called a=b for a partition column.
            with pq.ParquetFile(folder / file) as parquet:
                tables.append(parquet.read(columns=list(names)).select(names))
        except (pa.ArrowException, KeyError, OSError) as error:
            raise ValueError(
                f"{folder / file}: expected Parquet with the columns {', '.join(names)}, got an "
                f"error: {error}; `merge-nli check {folder}` says more"
            ) from error
    return pa.concat_tables(tables)


def some(values: Any) -> str:
    """The first few values of a column, and that there are more.

    >>> some(pa.array(["a", "b", "c", "d"]))
    "'a', 'b', 'c', …"
    """
    shown = ", ".join(repr(value.as_py()) for value in values[:_EXAMPLES])
    return f"{shown}, …" if len(values) > _EXAMPLES else shown


def _require_known(predictions: pa.Table, rows: NDArray[np.int64], folder: Path) -> None:
    unknown = np.ones(len(predictions), bool)
    unknown[rows[rows >= 0]] = False
    if not unknown.any():
        return
    ids = predictions["variant_id"].filter(pa.array(unknown))
    raise ValueError(
        f"expected predictions for problems of the dataset {folder}, got {len(ids):,} of "
        f"{len(predictions):,} for ids that none of its configurations holds: {some(ids)}; "
        f"give the dataset that the model was run on"
    )
