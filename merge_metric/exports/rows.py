"""What exports read of a dataset folder: configurations and their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from merge_dataset.files import read_row_groups
from merge_dataset.layout import all_configurations, require_dataset, split_files
from merge_dataset.schema import arrow_schema, format_of


def configurations_of(folder: Path, wanted: Sequence[str] = ()) -> list[str]:
    """The configurations asked for, each once; by default all that the folder has.

    Raises:
        NotADirectoryError: there is no such folder.
        ValueError: it is no dataset folder, or lacks one that is asked for.
    """
    require_dataset(folder)
    known = all_configurations(folder)
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(
            f"{folder}: expected configurations out of {', '.join(known)}, "
            f"got {', '.join(map(repr, unknown))}"
        )
    return list(dict.fromkeys(wanted)) or known


def split_paths(folder: Path, config: str, split: str) -> list[Path]:
    """The Parquet files of a split, whose columns are those of the contract.

    Raises:
        ValueError: there is none, or one has other columns.
    """
    paths = [folder / name for name in split_files(folder, config)[split]]
    if not paths:
        raise ValueError(f"{folder}: configuration {config!r} has no files for the split {split}")
    for path in paths:
        schema = pq.read_schema(path)
        expected = arrow_schema(format_of(schema))
        if not schema.equals(expected):
            raise ValueError(
                f"{path}: expected the columns {', '.join(expected.names)} of the dataset, "
                f"got others; `merge-nli check {folder}` says more"
            )
    return paths


def read_split(folder: Path, config: str, split: str) -> Iterator[pa.Table]:
    """The rows of a split, some at a time; at least one table.

    Raises:
        ValueError: as `split_paths`.
    """
    paths = split_paths(folder, config, split)
    yield pq.read_schema(paths[0]).empty_table()
    for path in paths:
        yield from read_row_groups(path)
