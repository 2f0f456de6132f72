"""Lists of records, each a file that grows by a line of JSON with its checksum."""

import json
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

log = logging.getLogger(__name__)


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
