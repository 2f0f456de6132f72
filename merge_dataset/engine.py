"""The table engine: DuckDB connections that read files, stay offline and limit memory."""

from __future__ import annotations

import atexit
import errno
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from merge_dataset.files import ROWS, naming_damage, open_parquet

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

MEMORY_VARIABLE = "MERGE_NLI_MEMORY"
_INTERRUPTED = "Query interrupted"


def connect(*, bounded: bool = False) -> duckdb.DuckDBPyConnection:
    """Open a connection to a database in memory, which reads Parquet, CSV and JSON as they lie.

    It uses half of the memory, if `bounded` 700 MB and few threads, or `MERGE_NLI_MEMORY` (`4GB`,
    `25%`), then a folder in `$TMPDIR`. No extension is loaded or installed, so URLs are not opened.
    All connections of a process share a database, as opening one takes 20 ms: views and tables are
    TEMP, so that they belong to one connection.

    Queries run in threads: only `ORDER BY` sets the order of rows, and floats are summed in NumPy.
    Use `connection.sql(…).to_arrow_table()`: after `execute` DuckDB warns of a copy. NaN is above
    all numbers, and `WHERE isnan(x)` finds none in Parquet files, as DuckDB skips row groups by
    their bounds; `x::VARCHAR = 'nan'` finds it.
    """
    import duckdb

    # A forked process has none of the threads of its parent's database.
    wanted = os.getpid(), os.environ.get(MEMORY_VARIABLE), tempfile.gettempdir(), bounded
    connection = _database(*wanted).cursor()
    try:
        connection.execute("BEGIN; ROLLBACK")
    except duckdb.FatalException:  # an earlier query met an error that ends a database
        _database.cache_clear()
        connection = _database(*wanted).cursor()
    with suppress(duckdb.InvalidInputException):  # notebooks without ipywidgets have no bar
        connection.execute("SET enable_progress_bar = false")
    return connection


@cache
def _database(
    process: int, memory: str | None, folder: str, bounded: bool
) -> duckdb.DuckDBPyConnection:
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory or "50%",
        # DuckDB makes it when it first writes there, and removes it on closing.
        "temp_directory": str(Path(folder) / f"merge-nli-{uuid4().hex}"),
        "autoload_known_extensions": False,
        "autoinstall_known_extensions": False,
        "allow_community_extensions": False,
        "enable_external_file_cache": False,  # a file may be replaced while this process lives
        "preserve_insertion_order": not bounded,
    }
    try:
        database = duckdb.connect(config=config)
    except (duckdb.ParserException, duckdb.InvalidInputException, duckdb.OutOfMemoryException):
        raise ValueError(
            f"{MEMORY_VARIABLE}: expected an amount of memory such as 4GB or 50%, got {memory!r}"
        ) from None
    if bounded and not memory:
        (limit,) = database.execute("SELECT current_setting('memory_limit')").fetchone() or ("",)
        if not limit.endswith("MiB"):  # on machines with 2 GB or more
            database.execute("SET memory_limit = '700MB'")
            # Each thread holds buffers of its own.
            database.execute(f"SET threads = {min(4, os.cpu_count() or 1)}")
    # When the process ends that opened it, it is closed, and nothing of it is kept.
    atexit.register(lambda: _database.cache_clear() if os.getpid() == process else None)
    return database


def read_pages(path: Path, name: Path) -> None:
    """Read a whole Parquet file; raise ValueError if a page does not fit its checksum."""
    with naming_damage(name), open_parquet(path) as file:
        for batch in file.iter_batches(ROWS):
            batch.validate(full=True)


@contextmanager
def naming_damaged(files: Mapping[Path, Path]) -> Iterator[None]:
    """Name the file at fault where the engine cannot read a Parquet file: file → its name."""
    import duckdb

    others = (duckdb.OutOfMemoryException, duckdb.InterruptException, duckdb.BinderException)
    try:
        yield
    except duckdb.Error as error:
        is_full = any(os.strerror(code) in str(error) for code in (errno.ENOSPC, errno.EMFILE))
        if is_full or isinstance(error, others):
            raise
        for path, name in files.items():
            read_pages(path, name)
        raise ValueError(
            f"{', '.join(map(str, files.values()))}: expected whole Parquet files, got one that "
            f"cannot be read; restore it from a copy, or make it anew ({error})"
        ) from error


@contextmanager
def engine_errors() -> Iterator[None]:
    """Replace engine errors that are not the query's fault by Python's own exceptions.

    KeyboardInterrupt after Ctrl+C; MemoryError if memory or temporary disk space is too small;
    OSError if a file is gone, or this process may not open more files (`ulimit -n`).
    """
    try:
        yield
    except Exception as error:
        for cause in causes(error):
            if own := _own_error(cause):
                raise own from error
        raise


def _own_error(error: BaseException) -> BaseException | None:
    message, memory = str(error), os.environ.get(MEMORY_VARIABLE) or "the default"
    if "duckdb" not in type(error).__module__ and message != _INTERRUPTED:
        return None
    if message == _INTERRUPTED or "KeyboardInterrupt" in message:
        return KeyboardInterrupt()
    if message.startswith("Out of Memory"):
        return MemoryError(f"{MEMORY_VARIABLE}: expected more memory for this data, got {memory}")
    if os.strerror(errno.ENOSPC) in message:
        return MemoryError(
            f"TMPDIR: expected room in {tempfile.gettempdir()} for what exceeds memory, got a full "
            f"disk; make room there, name another folder, or set {MEMORY_VARIABLE} higher"
        )
    for number, pattern in (
        (errno.EMFILE, f'(?:file "(.+)": )?{os.strerror(errno.EMFILE)}'),
        (errno.ENOENT, 'match the pattern "(.+)"'),
    ):
        if name := re.search(pattern, message):  # with the brackets that `parquet` writes
            path = re.sub(r"\[([\[*?])\]", r"\1", name[1] or "")
            return OSError(number, os.strerror(number), path)
    return None


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause or what it arose from, the cause of that, and so on."""
    for _ in range(99):  # chains may be circular
        if error is not None:
            yield error
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def parquet(paths: Iterable[Path], *, by_name: bool = False) -> str:
    """Write the table function that reads Parquet files with any names, for `FROM`.

    `file_index` and `file_row_number`, from 0, give the place of a row. With `by_name`, columns
    that only some files have are null in the others.

    >>> parquet([Path("it's [1].parquet")])
    "read_parquet(['it''s [[]1].parquet'], hive_partitioning = false)"
    """
    listed = ", ".join(map(no_pattern, paths))
    union = ", union_by_name = true" if by_name else ""
    # Otherwise a folder `a=1` is a column.
    return f"read_parquet([{listed}], hive_partitioning = false{union})"


def no_pattern(path: Path) -> str:
    """Write a path as a literal in which brackets, stars and question marks are themselves."""
    return quoted(re.sub(r"[\[*?]", r"[\g<0>]", str(path)))


def sorted_rows(file: Path, order: str, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of a Parquet file of this schema, ordered by an expression of SQL."""
    import pyarrow as pa

    with connect(bounded=True) as database:
        rows = database.sql(f"SELECT * FROM {parquet([file])} ORDER BY {order}")
        for batch in rows.to_arrow_reader(2048):  # rows, a vector of the engine
            yield pa.Table.from_batches([batch]).cast(schema)


def quoted(text: str) -> str:
    """Write a text as a literal of SQL.

    >>> quoted("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
