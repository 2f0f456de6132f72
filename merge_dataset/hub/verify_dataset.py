"""Loads every configuration of a published revision and compares it with the folder, row by row.

A process of its own (see `fresh`): `python -m merge_dataset.hub.verify_dataset REPO REVISION
FOLDER`. Prints the numbers of rows as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa

from merge_dataset.files import read_row_groups
from merge_dataset.layout import all_configurations, format_in, split_files
from merge_dataset.schema import ProblemFormat, arrow_schema, features


def verify(repository: str, revision: str, folder: Path) -> dict[str, dict[str, int]]:
    """Rows by configuration and split, all of them equal to the folder's.

    Raises:
        ValueError: they are not; or anything that `load_dataset` raises.
    """
    rows: dict[str, dict[str, int]] = {}
    for config in all_configurations(folder):
        loaded = datasets.load_dataset(repository, config, revision=revision)
        expected = split_files(folder, config)
        if set(loaded) != set(expected):
            raise ValueError(
                f"{config}: expected the splits {sorted(expected)}, got {sorted(loaded)}"
            )
        rows[config] = {
            split: _compare(
                f"{config}, split {split}", loaded[split], folder, files, format_in(folder, config)
            )
            for split, files in expected.items()
        }
    return rows


def _compare(
    where: str, loaded: Any, folder: Path, files: list[str], problem_format: ProblemFormat
) -> int:
    """The number of rows, where all are as in the files."""
    if loaded.features != (expected := features(problem_format)):
        raise ValueError(f"{where}: expected the features {expected}, got {loaded.features}")
    schema = arrow_schema(problem_format)
    stored = loaded.with_format("arrow")
    start = 0
    for file in files:
        for want in read_row_groups(folder / file):
            end = start + len(want)
            if end > len(stored):
                raise ValueError(f"{where}: expected more than {len(stored):,} rows, as in {files}")
            got = stored[start:end].cast(schema)
            if not got.equals(want.cast(schema)):
                raise ValueError(
                    f"{where}: expected the rows of {file}, got others: {_first(want, got)}"
                )
            start = end
    if start != len(stored):
        raise ValueError(f"{where}: expected {start:,} rows as in {files}, got {len(stored):,}")
    return start


def _first(want: pa.Table, got: pa.Table) -> str:
    """The first difference, by column."""
    for a, b in zip(want.to_pylist(), got.to_pylist(), strict=True):
        for column in (name for name in a if a[name] != b[name]):
            return f"{column} of {a['variant_id']} is {b[column]!r} instead of {a[column]!r}"
    return "they differ in type"


def main() -> None:
    """The command."""
    repository, revision, folder = sys.argv[1:]
    try:
        rows = verify(repository, revision, Path(folder))
    except Exception as error:  # whatever loading raises: the caller shows this one line
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
    sys.stdout.write(json.dumps(rows))


if __name__ == "__main__":
    main()
