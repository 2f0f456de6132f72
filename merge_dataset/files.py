"""Parquet files written and read a row group at a time: larger than memory, the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from merge_dataset.schema import only_ours

ROWS: Final = 100_000
"""Rows of a row group."""


class RowGroupWriter:
    """Writes tables one after the other, in row groups of `ROWS`, however they are cut.

    The bytes depend on the rows alone. Without metadata of others: datasets 3 cannot read what
    later releases put under the key `huggingface`.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        """Open the file; use as a context manager, which closes it."""
        self._schema = only_ours(schema)
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._held = self._schema.empty_table()
        self.rows = 0
        """How many were given."""

    def write(self, table: pa.Table) -> None:
        """Add rows."""
        self.rows += len(table)
        self._held = pa.concat_tables([self._held, table.replace_schema_metadata(None)])
        while len(self._held) >= ROWS:
            self._write(self._held.slice(0, ROWS))
            self._held = self._held.slice(ROWS)

    def __enter__(self) -> Self:
        """Nothing more to open."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write what is held, unless there was an error, and close."""
        if kind is None and len(self._held):
            self._write(self._held)
        self._writer.close()

    def _write(self, table: pa.Table) -> None:
        # Chunks would show in the bytes.
        self._writer.write_table(table.combine_chunks(), row_group_size=ROWS)


def write_row_groups(path: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Write tables one after the other."""
    with RowGroupWriter(path, schema) as writer:
        for table in tables:
            writer.write(table)


def read_row_groups(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The file's rows, some at a time."""
    # Not pq.read_table: it would take a parent folder called a=b for a partition column.
    with pq.ParquetFile(path) as file:
        for number in range(file.metadata.num_row_groups):
            yield file.read_row_group(number, columns=columns)


def distinct_rows(path: Path, columns: Sequence[str]) -> pa.Table:
    """What stands in some columns of a file, each combination once, in no order."""
    names = list(columns)
    tables = (t.group_by(names).aggregate([]) for t in read_row_groups(path, names))
    return pa.concat_tables(tables).group_by(names).aggregate([])
