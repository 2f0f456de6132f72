"""Tables that are read from a temporary file as they are used, so that they need no memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Final
from weakref import WeakSet

import pyarrow as pa

from merge_dataset.files import ROWS, naming

_MAPPED: Final[WeakSet[mmap.mmap]] = WeakSet()
"""Files of the tables that are in use."""


def on_disk(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Put tables together in one whose columns lie in a temporary file.

    The file has no name and ends with the table, or with the process.

    Args:
        tables: With these columns; one is held at a time.
        schema: Of the whole, with its metadata.

    Raises:
        OSError: there is no room for the file.
    """
    with naming(Path(gettempdir())), TemporaryFile() as file:
        with pa.ipc.new_stream(file, schema) as writer:
            for table in tables:
                writer.write_table(table)
                forget_read()
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _MAPPED.add(mapped)
    return pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()


def pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Cut a table into slices, one at least; after each the memory that holds it is given back."""
    for start in range(0, max(len(table), 1), ROWS):
        yield table.slice(start, ROWS)
        forget_read()


def forget_read() -> None:
    """Give back the memory that holds what was read so far of tables on disk.

    The system would take it back where it needs it. Until then it would count as the process's.
    """
    if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
        for mapped in _MAPPED:
            mapped.madvise(mmap.MADV_DONTNEED)
