"""Parquet files written and read a row group at a time: larger than memory, the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

ROWS: Final = 100_000
"""Rows of a row group."""


def write_row_groups(path: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> int:
    """Write tables one after the other, in row groups of `ROWS`, however they were cut.

    The bytes depend on the rows alone. Without metadata: datasets 3 cannot read what later
    releases put under the key `huggingface`.

    Returns:
        How many rows there were.
    """
    written = 0
    plain = schema.remove_metadata()
    with pq.ParquetWriter(path, plain, compression="zstd") as writer:
        for table in _regrouped(tables, plain):
            writer.write_table(table, row_group_size=ROWS)
            written += len(table)
    return written


def read_row_groups(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The file's rows, some at a time."""
    # Not pq.read_table: it would take a parent folder called a=b for a partition column.
    with pq.ParquetFile(path) as file:
        for number in range(file.metadata.num_row_groups):
            yield file.read_row_group(number, columns=columns)


def _regrouped(tables: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    held = schema.empty_table()
    for table in tables:
        held = pa.concat_tables([held, table.replace_schema_metadata(None)])
        while len(held) >= ROWS:
            # Chunks would show in the bytes.
            yield held.slice(0, ROWS).combine_chunks()
            held = held.slice(ROWS)
    if len(held):
        yield held.combine_chunks()
