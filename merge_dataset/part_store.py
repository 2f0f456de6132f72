"""Parts of a run's work on disk, so that an interrupted run can go on.

All unfinished work is here: suggestions, likelihoods, paraphrases, blocks of a build, results of
tasks, and answers of `predict`. It is kept as tables, each a Parquet file `NAME.DIGEST.parquet`
that is written whole or not at all, and as lists of records, each a file that grows by a line of
JSON with its checksum. A table or a record that does not fit its digest or checksum counts as
missing. Several processes may write to the same folder, but not to the same list.
"""

import fnmatch
import json
import logging
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from merge_dataset.files import atomic, digest_of_file, read_json, write_json

Item = TypeVar("Item")

log = logging.getLogger(__name__)

_DIGEST_LENGTH = 16


def require_header(folder: Path, identity: Mapping[str, Any], *, contents: str, redo: str) -> None:
    """Write the identity of a folder's parts, or check that the folder has this identity."""
    header = folder / "store.json"
    if not header.exists():
        write_json(header, identity)
    if (there := read_json(header)) != identity:
        raise ValueError(
            f"{header}: expected the {contents} of {identity}, got those of {there}; "
            f"move the folder away and run: {redo}"
        )


# --- Tables ---


def is_sound(path: Path) -> bool:
    """Tell whether a part matches the digest in its name."""
    return path.name.split(".")[-2] == digest_of_file(path)[:_DIGEST_LENGTH]


def write_part(folder: Path, name: str, table: pa.Table) -> Path:
    """Write a part, whole or not at all, and return its path; equal tables give equal bytes."""
    with atomic(folder / name) as temporary:
        pq.write_table(table, temporary, compression="zstd")
        digest = digest_of_file(temporary)[:_DIGEST_LENGTH]
    return (folder / name).replace(folder / f"{name}.{digest}.parquet")


def sound_parts(folder: Path, pattern: str = "*") -> Iterator[Path]:
    """Yield the sound parts of a folder, in the order of their file names."""
    yield from filter(is_sound, part_paths(folder, pattern))


def part_paths(
    folder: Path, pattern: str = "*", *, wanted: Callable[[str], bool] = lambda name: True
) -> list[Path]:
    """List the parts of a folder that have wanted names, sorted by file name, intact or not."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = fnmatch.filter((entry.name for entry in entries), f"{pattern}.parquet")
    return [folder / name for name in sorted(names) if wanted(name)]


def discard_corrupt(paths: Sequence[Path], *, store: Path) -> list[str]:
    """Remove parts that do not match their digest, warn of each, and return their names."""
    corrupt = [path for path in paths if not is_sound(path)]
    for path in corrupt:
        path.unlink()
        log.warning("%s: damaged, made again: %s", store, path.name)
    return [path.name for path in corrupt]


def read_or_make(folder: Path, name: str, make: Callable[[], pa.Table]) -> pa.Table:
    """Read a part by its name; if it is missing or damaged, make it and write it."""
    discard_corrupt(part_paths(folder, f"{name}.*"), store=folder)
    if there := part_paths(folder, f"{name}.*"):
        return pq.ParquetFile(there[0]).read()
    table = make()
    write_part(folder, name, table)
    return table


def missing_parts(
    items: Sequence[Item],
    is_known: Callable[[Item], bool],
    *,
    size: int,
    wanted: Callable[[int], bool] = lambda number: True,
) -> list[list[Item]]:
    """Cut items into the parts of an uninterrupted run, and leave out the known items.

    >>> missing_parts("abcdef", {"a", "b", "e"}.__contains__, size=2)
    [['c', 'd'], ['f']]
    """
    pieces = (items[i : i + size] for i in range(0, len(items), size))
    unknown = (
        [item for item in piece if not is_known(item)]
        for number, piece in enumerate(pieces)
        if wanted(number)
    )
    return [piece for piece in unknown if piece]


# --- Records ---


def append_record(file: BinaryIO, record: Any) -> None:
    """Append a JSON-able record to a list; it stays even if the process is killed right after."""
    line = json.dumps(record).encode()
    file.write(b"%08x %b\n" % (zlib.crc32(line), line))
    file.flush()


def open_records(path: Path) -> BinaryIO:
    """Open a list of records, or make one, to append to; cut off a line that was not ended."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+b")
    file.seek(0)
    file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))
    return file


def read_records(path: Path) -> Iterator[Any]:
    """Yield the records of a list, if it exists, and warn at its end of damaged ones, left out."""
    if not path.is_file():
        return
    damaged = 0
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break  # of a process that was killed
            checksum, _, record = line[:-1].partition(b" ")
            if record and checksum == b"%08x" % zlib.crc32(record):
                yield json.loads(record)
            else:
                damaged += 1
    if damaged:
        log.warning("%s: damaged, made again: %d records", path, damaged)
