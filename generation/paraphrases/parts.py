"""Pieces of a run's work on disk: made once, and made again where a file is damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from merge_dataset.files import write_table


def read_or_make(path: Path, make: Callable[[], pa.Table]) -> pa.Table:
    """The table in a file; where there is none that can be read, it is made and written."""
    if path.is_file():
        try:
            return pq.ParquetFile(path).read()
        except (pa.ArrowException, OSError):
            pass  # A machine that lost its power may leave an empty file.
    table = make()
    write_table(path, table)
    return table
