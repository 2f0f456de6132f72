"""The table engine: DuckDB connections that read files, stay offline and limit memory."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    import duckdb

MEMORY_VARIABLE = "MERGE_NLI_MEMORY"
_INTERRUPTED = "Query interrupted"
_STREAMED = "400MB"
"""Memory limit for streamed rows, however many they are."""
_THREADS = 4
"""Number of threads for streamed rows, as each holds its own buffers."""


def connect(*, streamed: bool = False) -> duckdb.DuckDBPyConnection:
    """Open an empty database in memory, whose queries read Parquet, CSV and JSON files as they lie.

    It uses half of the memory or `MERGE_NLI_MEMORY` (`4GB`, `25%`), then a folder in `$TMPDIR`.
    For rows `streamed` from Python it uses 400 MB and few threads, as more would wait for Python.
    No extension is loaded or installed, so URLs are not opened.

    Queries run in threads: only `ORDER BY` sets the order of rows, and floats are summed in NumPy.
    Use `connection.sql(…).to_arrow_table()`: after `execute` DuckDB warns of a copy. NaN is above
    all numbers, and `WHERE isnan(x)` finds none in Parquet files, as DuckDB skips row groups by
    their bounds; `x::VARCHAR = 'nan'` finds it.
    """
    import duckdb

    memory = os.environ.get(MEMORY_VARIABLE) or "50%"
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory,
        # DuckDB makes it when it first writes there, and removes it on closing.
        "temp_directory": str(Path(tempfile.gettempdir()) / f"merge-nli-{uuid4().hex}"),
        "autoload_known_extensions": False,
        "autoinstall_known_extensions": False,
        "allow_community_extensions": False,
    }
    try:
        connection = duckdb.connect(config=config)
    except (duckdb.ParserException, duckdb.InvalidInputException, duckdb.OutOfMemoryException):
        raise ValueError(
            f"{MEMORY_VARIABLE}: expected an amount of memory such as 4GB or 50%, got {memory!r}"
        ) from None
    with suppress(duckdb.InvalidInputException):  # notebooks without ipywidgets have no bar
        connection.execute("SET enable_progress_bar = false")
    if streamed and not os.environ.get(MEMORY_VARIABLE):
        (limit,) = connection.execute("SELECT current_setting('memory_limit')").fetchone() or ("",)
        if not limit.endswith("MiB"):  # on machines with 2 GB or more
            connection.execute(f"SET memory_limit = '{_STREAMED}'")
            connection.execute(f"SET threads = {min(_THREADS, os.cpu_count() or 1)}")
    return connection


@contextmanager
def engine_errors() -> Iterator[None]:
    """Replace engine errors that are not the query's fault by Python's own exceptions.

    KeyboardInterrupt after Ctrl+C; MemoryError if memory or temporary disk space is too small;
    OSError if a file is gone, or this process may not open more files (`ulimit -n`).
    """
    try:
        yield
    except Exception as error:
        origin: BaseException | None = error
        while origin is not None:
            said = str(origin)
            if "duckdb" in type(origin).__module__ or said == _INTERRUPTED:
                if said == _INTERRUPTED or "KeyboardInterrupt" in said:
                    raise KeyboardInterrupt from error
                if said.startswith("Out of Memory"):
                    raise MemoryError(
                        f"{MEMORY_VARIABLE}: expected more memory for this data, got "
                        f"{os.environ.get(MEMORY_VARIABLE) or 'the default'}"
                    ) from error
                if os.strerror(errno.ENOSPC) in said:
                    raise MemoryError(
                        f"TMPDIR: expected room in {tempfile.gettempdir()} for what exceeds "
                        f"memory, got a full disk; make room there, name another folder, or allow "
                        f"more memory by {MEMORY_VARIABLE}"
                    ) from error
                if gone := re.search('No files found that match the pattern "(.+)"', said):
                    path = re.sub(r"\[([\[*?])\]", r"\1", gone[1])  # as written by `parquet`
                    raise FileNotFoundError(
                        errno.ENOENT, os.strerror(errno.ENOENT), path
                    ) from error
                if os.strerror(errno.EMFILE) in said:
                    name = re.search('file "(.+)"', said)
                    raise OSError(
                        errno.EMFILE, os.strerror(errno.EMFILE), name and name[1]
                    ) from error
            context = None if origin.__suppress_context__ else origin.__context__
            origin = origin.__cause__ or context
        raise


def parquet(paths: Iterable[Path], *, by_name: bool = False) -> str:
    """Write the table function that reads Parquet files with any names, for `FROM`.

    `file_index` and `file_row_number`, from 0, give the place of a row. With `by_name`, columns
    that only some files have are null in the others.

    >>> parquet([Path("it's [1].parquet")])
    "read_parquet(['it''s [[]1].parquet'], hive_partitioning = false)"
    """
    # Otherwise brackets, stars and question marks are patterns, and a folder `a=1` is a column.
    names = (re.sub(r"[\[*?]", r"[\g<0>]", str(path)).replace("'", "''") for path in paths)
    listed = ", ".join(f"'{name}'" for name in names)
    union = ", union_by_name = true" if by_name else ""
    return f"read_parquet([{listed}], hive_partitioning = false{union})"
