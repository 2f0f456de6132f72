"""Atomic writing of files, locks, digests, JSON, and Parquet by row groups.

A file is written under a temporary name beside it, synced, and renamed: readers see the old file
or the new one, never a part, even if the process is killed.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from merge_dataset.schema import METADATA, numbered_file

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

log = logging.getLogger(__name__)

ROWS: Final = 100_000
"""Number of rows in a row group."""

FILE_ROWS: Final = 10 * ROWS
"""Most rows of a dataset file, so that processes can share a split, and the Hub shows it."""

_DIGEST: Final = "digest"
"""Key of a record's digest of itself."""

# --- Written whole or not at all ---


def partial_path(target: Path) -> Path:
    """Return a temporary path beside `target`, unique at each call and on all machines."""
    return target.with_name(f".{target.name}.{uuid4().hex}.partial")


def target_of(path: Path) -> Path | None:
    """Return the target of a temporary path; None for other paths.

    >>> target_of(partial_path(Path("run/seeds.parquet"))), target_of(Path(".snli.old"))
    (PosixPath('run/seeds.parquet'), PosixPath('snli'))
    """
    temporary = re.fullmatch(r"\.(?P<target>.+)\.([0-9a-f]{32}\.partial|old)", path.name)
    return path.with_name(temporary["target"]) if temporary else None


def remove_partials(folder: Path, names: Collection[str]) -> None:
    """Remove temporary files and folders that killed processes left."""
    for path in [path for path in folder.iterdir() if path.suffix == ".partial"]:
        if (target := target_of(path)) and target.name in names:
            remove(path)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`, which replaces `path` unless the block raises.

    It is locked, so that the next writer can tell it from those that killed processes left.
    """
    from filelock import FileLock, Timeout

    with naming(path), ExitStack() as held:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
            if target_of(left) == path and left.is_file():
                with suppress(OSError, Timeout), FileLock(left, timeout=0, fallback_to_soft=False):
                    left.unlink()
        temporary = partial_path(path)
        temporary.touch(exist_ok=False)
        held.callback(temporary.unlink, missing_ok=True)
        with suppress(OSError):  # a file system without locks
            held.enter_context(FileLock(temporary, timeout=0, fallback_to_soft=False))
        yield temporary
        sync(temporary)  # else a crash could leave the name without the bytes
        temporary.replace(path)


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target`, which replaces it unless the block raises.

    For a moment the old folder is `.NAME.old`; if the process is killed then, it stays. The caller
    holds a lock: what killed processes left is removed.
    """
    if target.parent.is_dir():
        remove_partials(target.parent, (target.name,))
    made, old = partial_path(target), target.with_name(f".{target.name}.old")
    with naming(target), ExitStack() as stack:
        stack.callback(shutil.rmtree, made, ignore_errors=True)
        made.mkdir(parents=True)
        yield made
        for path in filter(Path.is_file, made.rglob("*")):
            sync(path)
        if target.exists():
            if old.exists():
                remove(old)
            target.rename(old)
        made.rename(target)
        if old.exists():
            remove(old)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Make errors about disk space and permissions name the target, not the temporary file."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.errno in _CURES:
            parts = Path(os.fsdecode(error.filename)).parts if error.filename else ()
            if not parts or any(part.startswith(f".{path.name}.") for part in parts):
                error.filename, error.filename2 = str(path), None
                error.strerror = os.strerror(error.errno)  # pyarrow's message has more lines
        raise


_CURES: Final[Mapping[int, str]] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room there"),
    errno.EIO: "see whether the disk is in order",
    errno.EFBIG: "allow larger files (ulimit -f)",
    errno.EMFILE: "allow more open files (ulimit -n)",
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS), "name another place, or allow it there"
    ),
}
"""Error number → advice."""


def describe_os_error(error: OSError) -> str:
    """Say in one line which file could not be read or written, why, and what to do.

    >>> print(describe_os_error(OSError(errno.ENOSPC, "No space left on device", "run/a.json")))
    run/a.json: no space left on device; make room there, then give the same command again
    """
    if error.errno is None or error.strerror is None:
        return str(error)
    cure = _CURES.get(error.errno)
    where = "the output" if cure else ""  # other targets are named already: see `naming`
    if error.filename:
        where = os.fsdecode(error.filename)
    reason = f"{error.strerror[:1].lower()}{error.strerror[1:]}"
    told = f"{reason}; {cure}, then give the same command again" if cure else reason
    return f"{where}: {told}" if where else told


def require_new(path: Path, *, overwrite: bool = False) -> None:
    """Raise FileExistsError if a file would be replaced that is not to be."""
    if path.exists() and not overwrite:
        cure = "name another, or replace it with `overwrite`"
        raise FileExistsError(f"{path}: expected no file, found one; {cure}")


def sync(path: Path) -> None:
    """Wait until a file's bytes are on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, with unchanged line ends."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def read_text(path: Path) -> str:
    """Read a text file in UTF-8, with unchanged line ends."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        got = f"the byte {error.object[error.start]:#04x} at position {error.start}"
        raise ValueError(f"{path}: expected text in UTF-8, got {got}; convert the file") from error


# --- One command at a time ---

LOCK: Final = ".lock"
"""Name of the lock file in a folder that commands write to."""


@contextmanager
def exclusive(lock_file: Path, refusal: str, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock file while the block runs, which may hold it again; then remove it.

    The lock is the system's (`flock`), so it ends with the process; where a file system has none,
    the file itself is the lock. If another process or thread holds it, BlockingIOError is raised
    with the refusal; with `wait`, this is logged, and the call waits.
    """
    from filelock import FileLock, Timeout

    lock, timeout = FileLock(lock_file, is_singleton=True), 0
    while True:
        try:
            lock_file.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=timeout)
            break
        except FileNotFoundError:
            pass  # the holder has removed the folder, which stayed empty
        except Timeout as error:
            if not wait:
                raise BlockingIOError(refusal) from error
            log.info("%s: waiting for another command", lock_file.parent)
            timeout = -1
    try:
        yield
    finally:
        if lock.lock_counter == 1:
            # Removed while held: a process that opened the file before notices that it is gone.
            with suppress(PermissionError):  # Windows does not remove open files
                lock_file.unlink(missing_ok=True)
        lock.release()


@contextmanager
def working_in(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a folder so that one command at a time writes to it; the block may lock it again."""
    folder = folder.resolve()
    is_new = not folder.exists()
    refusal = (
        f"{folder}: another command is at work in this folder; wait until it has ended, or name "
        "another folder"
    )
    try:
        with naming(folder), exclusive(folder / LOCK, refusal, wait=wait):
            yield
    finally:
        if is_new:
            with suppress(OSError):  # the folder is not empty
                folder.rmdir()


@contextmanager
def writing_to(target: Path) -> Iterator[None]:
    """Hold a file or folder for writing by one command at a time; errors name it."""
    refusal = (
        f"{target}: another command is writing to this place; wait until it has ended, or name "
        "another with --out"
    )
    with naming(target), exclusive(target.with_name(f".{target.name}.lock"), refusal):
        yield


# --- JSON ---


def to_json(value: Any, *, allow_nan: bool = True) -> str:
    """Render a value as indented JSON; NaN and infinities as in JavaScript, or raise."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=allow_nan)


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON."""
    write_text(path, f"{to_json(value)}\n")


def read_json(path: Path) -> Any:
    """Read a JSON file, with or without a byte-order mark."""
    try:
        return json.loads(read_text(path).removeprefix("\ufeff"))
    except (RecursionError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: expected JSON, got something else: {error}") from error


# --- Digests ---


def write_record(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object on what was made, with a digest of itself."""
    plain = json.loads(to_json(value))
    write_json(path, {**plain, _DIGEST: digest_of(plain)})


def read_record(
    path: Path, *keys: str, verify: bool = True, remedy: str = "Restore it from a copy"
) -> dict[str, Any]:
    """Read a JSON object from `write_record`; verify its digest."""
    value: dict[str, Any] = read_json(path)
    wanted, got = (*keys, *[_DIGEST] * verify), ""
    if not isinstance(value, dict):
        got = f"a JSON {type(value).__name__}: is it another file's? {remedy}"
    elif missing := [key for key in wanted if key not in value]:
        got = f"one without {', '.join(missing)}: is it another file's? {remedy}"
    elif value.pop(_DIGEST, None) != digest_of(value) and verify:
        got = "other contents: it is damaged or was edited; restore it from a copy"
    if got:
        expected = f"a record with {', '.join(wanted)}" if wanted else "a record"
        raise ValueError(f"{path}: expected {expected}, got {got}")
    return value


def changed_files(folder: Path, recorded: Mapping[str, str]) -> list[str]:
    """List files that are missing, or whose SHA-256 differs from the record."""
    return [
        name
        for name, digest in recorded.items()
        if not (folder / name).is_file() or digest_of_file(folder / name) != digest
    ]


def digest_of(value: Any) -> str:
    """Return the SHA-256 of a JSON-able value in hexadecimal, regardless of the order of keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(paths: Mapping[str, Path]) -> dict[str, str]:
    """Map the names of files to the SHA-256 of their bytes."""
    return {name: digest_of_file(path) for name, path in paths.items()}


def state_of(path: Path) -> tuple[int, ...]:
    """Return values that change with a file; until 2 s after a change, each call differs."""
    state, now = path.stat(), time.time_ns()
    changed = state.st_mtime_ns, state.st_ctime_ns
    return (state.st_dev, state.st_ino, state.st_size, *changed, now * (now - max(changed) < 2e9))


def draw_rank(rng_seed: int | str, name: str) -> bytes:
    """Make a pseudo-random sort key of a name, the same in any order and in all versions."""
    return hashlib.sha256(f"{rng_seed}\0{name}".encode()).digest()


# --- Parquet ---

PARQUET_OPTIONS: Final[Mapping[str, Any]] = {"compression": "zstd", "write_page_checksum": True}
"""Options for writing all Parquet files; checksums detect damage, see `open_parquet`."""


def open_parquet(path: Path, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Open a Parquet file so that damaged pages raise an error, if it has checksums."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, metadata=metadata, page_checksum_verification=True)


def read_table(path: Path, columns: Sequence[str] | None = None, where: Any = None) -> pa.Table:
    """Read rows of a Parquet file in their order; `where` is a filter of pyarrow."""
    import pyarrow.parquet as pq

    with naming_damage(path):
        return pq.read_table(
            path,
            columns=None if columns is None else list(columns),
            filters=where,
            partitioning=None,  # else a parent folder called a=b would become a column
            page_checksum_verification=True,
        )


def read_schema(path: Path) -> pa.Schema:
    """Read the schema of a Parquet file, with metadata; see `read_table`."""
    import pyarrow.parquet as pq

    with naming_damage(path):
        return pq.read_schema(path)


@contextmanager
def naming_damage(
    path: Path, kind: str = "Parquet file", others: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turn errors of pyarrow or other readers on a file into messages that name the file."""
    import pyarrow as pa

    try:
        yield
    except (ValueError, OSError, pa.ArrowException, *others) as error:
        path.open("rb").close()  # what the system has against it, it says better
        if isinstance(error, ValueError) and str(error).startswith(f"{path}: "):
            raise  # of a line of text: it says all this
        cure = "restore it from a copy, or make it anew"
        if isinstance(error, UnicodeEncodeError):
            cure = "rename it, as pyarrow opens only names in UTF-8"
        is_text = isinstance(error, UnicodeError)  # whose words are of Python
        told = "text that is not UTF-8" if is_text else f"an error: {' '.join(str(error).split())}"
        raise ValueError(f"{path}: expected a whole {kind}, got {told}; {cure}") from error


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as Parquet, the same bytes for the same table."""
    import pyarrow.parquet as pq

    with atomic(path) as temporary:
        pq.write_table(table, temporary, **PARQUET_OPTIONS)


class RowGroupWriter:
    """Writer of a Parquet file from tables of any sizes, in row groups of `ROWS` rows.

    Others' metadata are dropped: datasets 3 cannot read `huggingface` metadata of later releases.
    """

    def __init__(
        self, path: Path, schema: pa.Schema, metadata: Mapping[bytes, bytes] | None = None
    ) -> None:
        """Open the file, with `metadata` instead of the schema's; close it by `with`."""
        import pyarrow.parquet as pq

        # By default without what other programs note there, such as pandas.
        if metadata is None:
            metadata = {k: v for k, v in (schema.metadata or {}).items() if k == METADATA}
        bare = schema.remove_metadata()
        self._schema = bare.with_metadata(metadata) if metadata else bare
        self._writer = pq.ParquetWriter(path, self._schema, **PARQUET_OPTIONS)
        self._held = self._schema.empty_table()
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        """Add rows."""
        import pyarrow as pa

        self.rows += len(table)
        self._held = pa.concat_tables([self._held, table.replace_schema_metadata(None)])
        while len(self._held) >= ROWS:
            self._write(self._held.slice(0, ROWS))
            self._held = self._held.slice(ROWS)

    def __enter__(self) -> Self:
        """Return the writer, whose file is already open."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write buffered rows, unless there was an error, and close the file."""
        if kind is None and len(self._held):
            self._write(self._held)
        self._writer.close()

    def _write(self, table: pa.Table) -> None:
        # Chunks would change the bytes.
        self._writer.write_table(table.combine_chunks(), row_group_size=ROWS)


def write_tables(
    path: Path, tables: Iterable[pa.Table], metadata: Mapping[bytes, bytes] | None = None
) -> int:
    """Write tables, of which there is one at least, to a Parquet file; return the rows' number."""
    first = next(tables := iter(tables))
    with RowGroupWriter(path, first.schema, metadata) as writer:
        for table in chain([first], tables):
            writer.write(table)
    return writer.rows


def write_split(path: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Write a split: one Parquet file or, for more than `FILE_ROWS` rows, numbered files."""
    files: list[Path] = []
    more = iter(tables)
    table: pa.Table | None = schema.empty_table()
    while table is not None:
        files.append(path.with_name(f"{path.name}.{len(files)}"))
        with RowGroupWriter(files[-1], schema) as writer:
            while table is not None:
                room = FILE_ROWS - writer.rows
                writer.write(table.slice(0, room))
                table = table.slice(room)
                if len(table):
                    break  # the rest goes to the next file
                table = next(more, None)
        sync(files[-1])
    for number, file in enumerate(files):
        name = numbered_file(path.name, number, len(files))
        file.rename(path if len(files) == 1 else path.with_name(name))


def read_row_groups(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield the row groups of a Parquet file, with all columns or the named ones."""
    with naming_damage(path), open_parquet(path) as file:
        for number in range(file.metadata.num_row_groups):
            yield file.read_row_group(number, columns=columns)


def distinct_rows(path: Path, columns: Sequence[str]) -> pa.Table:
    """Return the distinct combinations of values in some columns, in no particular order."""
    import pyarrow as pa

    names = list(columns)
    tables = (t.group_by(names).aggregate([]) for t in read_row_groups(path, names))
    return pa.concat_tables(tables).group_by(names).aggregate([])
