"""The only home of files written whole, digests, JSON, locks, and Parquet by row groups.

A file is written under a temporary name beside it, synced, and renamed: readers and killed
processes see the old file or the new one, never half of one. Cheap to import: pyarrow is only
imported by the functions that read or write Parquet.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from merge_dataset.schema import only_ours

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROWS: Final = 100_000
"""Rows of a row group."""


# --- Written whole or not at all ---


def partial_path(target: Path) -> Path:
    """The temporary name, next to it, under which `target` is written."""
    return target.with_name(f".{target.name}.partial")


def old_path(target: Path) -> Path:
    """The temporary name, next to it, of the folder `target` that is being replaced."""
    return target.with_name(f".{target.name}.old")


@contextmanager
def atomic(path: Path, *, shared: bool = False) -> Iterator[Path]:
    """Yield a temporary file beside `path` to fill; without an error it takes the place of `path`.

    Args:
        path: Where the file will be; its folder is made.
        shared: Whether other processes may be writing it too. If not, the temporary name
            is always the same, so that what a killed process left is overwritten.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = partial_path(path.with_name(f"{path.name}.{uuid4().hex}") if shared else path)
    try:
        yield temporary
        with temporary.open("rb+") as file:  # else a crash could leave the name without the bytes
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, shared: bool = False) -> None:
    """Write a text file in UTF-8, line ends as they are; `shared` as in `atomic`."""
    with atomic(path, shared=shared) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def read_text(path: Path) -> str:
    """Read a text file in UTF-8, line ends as they are.

    Raises:
        ValueError: it is in another encoding, or damaged; the message names the line.
    """
    content = path.read_bytes()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        raise ValueError(
            f"{path}: line {line}: expected text in UTF-8, got the byte 0x{byte:02X}; save the "
            f"file as UTF-8"
        ) from error


def replace_folder(made: Path, target: Path) -> None:
    """Move a finished folder to where another may be, which is removed last.

    A process that is killed in between leaves the other under `old_path`.
    """
    old = old_path(target)
    if target.exists():
        target.rename(old)
    made.rename(target)
    if old.exists():
        shutil.rmtree(old)


# --- JSON ---


def to_json(value: Any, *, allow_nan: bool = True) -> str:
    """Render a value as indented JSON, without a line end.

    Args:
        value: What JSON knows.
        allow_nan: Whether NaN and infinities, which are no JSON, are written as JavaScript has
            them; if not, they are an error.

    >>> print(to_json({"word": "Élan"}))
    {
      "word": "Élan"
    }
    """
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=allow_nan)


def write_json(path: Path, value: Any, *, shared: bool = False) -> None:
    """Write indented JSON; `shared` as in `atomic`."""
    write_text(path, f"{to_json(value)}\n", shared=shared)


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        ValueError: the file is not JSON.
    """
    try:
        return json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON, {describe_json_error(error)}") from error


def describe_json_error(error: json.JSONDecodeError | RecursionError) -> str:
    """Say in plain words where a text stops being JSON, for the end of a message.

    >>> try:
    ...     json.loads('{"a": 1,}')
    ... except json.JSONDecodeError as error:
    ...     print(describe_json_error(error))
    got something else at line 1, column 9
    """
    if isinstance(error, RecursionError):
        return "got lists or objects nested too deep"
    return f"got something else at line {error.lineno}, column {error.colno}"


# --- Digests ---


def digest_of(value: Any) -> str:
    """SHA-256 of a JSON-able value, independent of the order of keys, in hexadecimal."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(paths: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 of several files by name."""
    return {name: digest_of_file(path) for name, path in paths.items()}


def draw_rank(rng_seed: int, name: str) -> bytes:
    """Make a key to sort by: as good as drawn, the same in any order and between versions."""
    return hashlib.sha256(f"{rng_seed}\0{name}".encode()).digest()


# --- Locks ---


@contextmanager
def exclusive(lock_file: Path, refusal: str, *, remove: bool = False) -> Iterator[None]:
    """Hold a lock file while the block runs.

    Args:
        lock_file: Made where it is not there.
        refusal: The message where another process holds it.
        remove: Whether the file goes when the block ends without an error.

    Raises:
        BlockingIOError: another process, or another part of this one, holds it.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(lock_file, is_singleton=False)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise BlockingIOError(refusal) from error
    try:
        yield
    finally:
        lock.release()
    if remove:
        lock_file.unlink(missing_ok=True)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Wait until no other process holds a folder, and hold it while the block runs.

    The lock is on the folder itself, so nothing is left behind, whatever happens. Windows has
    no such lock; there, write to a folder from one process after the other.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# --- Parquet ---

PARQUET_OPTIONS: Final[Mapping[str, Any]] = {"compression": "zstd", "write_page_checksum": True}
"""How every Parquet file is written. The checksums show damage; see `open_parquet`."""


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file such that reading a damaged page is an error.

    Files of other programs may have no checksums; their pages are read as they are.
    """
    import pyarrow.parquet as pq

    # Not pq.read_table: it would take a parent folder called a=b for a partition column.
    return pq.ParquetFile(path, page_checksum_verification=True)


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a Parquet file, all columns or those named, in the order of the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no Parquet file, or damaged.
    """
    with naming_damage(path), open_parquet(path) as file:
        return file.read(columns=None if columns is None else list(columns))


def read_schema(path: Path) -> pa.Schema:
    """Read the columns of a Parquet file and what its metadata say; see `read_table`."""
    import pyarrow.parquet as pq

    with naming_damage(path):
        return pq.read_schema(path)


@contextmanager
def naming_damage(path: Path) -> Iterator[None]:
    """Turn what pyarrow says of a file that it cannot read into a message that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (ValueError, OSError) as error:  # pyarrow's own errors derive from these
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path}: expected a whole Parquet file, got a damaged one or another format: {reason}"
        ) from error


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as Parquet, the same bytes for the same table."""
    import pyarrow.parquet as pq

    with atomic(path) as temporary:
        pq.write_table(table, temporary, **PARQUET_OPTIONS)


class RowGroupWriter:
    """A Parquet file written table by table, in row groups of `ROWS`, however tables are cut.

    The bytes depend on the rows alone. Without metadata of others: datasets 3 cannot read what
    later releases put under the key `huggingface`.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        """Open the file; use as a context manager, which closes it."""
        import pyarrow.parquet as pq

        self._schema = only_ours(schema)
        self._writer = pq.ParquetWriter(path, self._schema, **PARQUET_OPTIONS)
        self._held = self._schema.empty_table()
        self.rows = 0
        """How many were given."""

    def write(self, table: pa.Table) -> None:
        """Add rows."""
        import pyarrow as pa

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
    """Write tables one after the other into a Parquet file."""
    with RowGroupWriter(path, schema) as writer:
        for table in tables:
            writer.write(table)


def read_row_groups(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Read a Parquet file some rows at a time, all columns or those named."""
    with naming_damage(path):
        file = open_parquet(path)
    with file:
        for number in range(file.metadata.num_row_groups):
            with naming_damage(path):
                table = file.read_row_group(number, columns=columns)
            yield table


def distinct_rows(path: Path, columns: Sequence[str]) -> pa.Table:
    """Combinations of values in some columns of a Parquet file, each once, in no order."""
    import pyarrow as pa

    names = list(columns)
    tables = (t.group_by(names).aggregate([]) for t in read_row_groups(path, names))
    return pa.concat_tables(tables).group_by(names).aggregate([])
