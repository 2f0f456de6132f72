"""Journals: a model's answers so far on disk, from which an interrupted run continues."""

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from merge_metric.models.pair_model import Share

_HEAD: Final = struct.Struct("<II")
"""Head of a batch: number of answers (0 for notes), and CRC-32 of the bytes that follow."""
_LENGTH: Final = struct.Struct("<I")
TEXTS: Final = "texts"
"""Key of notes with a model's own words: position, as text → answer."""
_POSITION: Final = np.dtype("<i8")
_NUMBER: Final = np.dtype("<f8")


class Journal:
    """Answers by position; each batch is stored whole or not at all."""

    def __init__(self, file: BinaryIO, answers: NDArray[np.float64], notes: dict[str, Any]) -> None:
        """Take an open file and its content; use `open_journal`."""
        self._file = file
        self.notes = notes
        """All notes on answers: numbers are summed, lists merged."""
        self.answers = answers
        """Answers, (n, numbers); NaN where there is no answer yet."""

    @property
    def unanswered(self) -> NDArray[np.bool_]:
        """Mask of positions without an answer, (n,)."""
        found: NDArray[np.bool_] = np.isnan(self.answers[:, 0])
        return found

    def add(
        self,
        positions: Sequence[int],
        answers: NDArray[np.float64],
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        """Store answers, (n, numbers), whose first number is not NaN, and their JSON-able notes."""
        before = b""
        if notes:
            said = json.dumps(notes).encode()
            before = _HEAD.pack(0, zlib.crc32(said)) + _LENGTH.pack(len(said)) + said
            _unite(self.notes, notes)
        where = np.asarray(positions, _POSITION)
        content = where.tobytes() + answers.astype(_NUMBER).tobytes()
        self._file.write(before + _HEAD.pack(len(where), zlib.crc32(content)) + content)
        self._file.flush()
        self.answers[where] = answers


@contextmanager
def open_journal(
    path: Path, size: int, width: int, *, share: Share | None = None
) -> Iterator[Journal]:
    """Open or make a journal, with the whole batches of all journals of the run.

    The file name identifies the run. When the block of a whole run (no share) ends without an
    error, all journals of the run are removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mine = path if share is None else path.with_name(f"{path.name}.{share.index}-{share.count}")
    answers, notes = read_journals(path, size, width, mine=mine)
    with mine.open("a+b") as file:
        file.seek(0)
        file.truncate(_replay(file, answers, notes))
        yield Journal(file, answers, notes)
    if share is None:
        remove_journals(path)


def read_journals(
    path: Path, size: int, width: int, *, mine: Path | None = None
) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """Read answers, (size, width), NaN if missing, and notes from a run's other journals."""
    answers, notes = np.full((size, width), np.nan), dict[str, Any]()
    for other in _journals_of(path):
        if other != mine:
            with other.open("rb") as file:
                _replay(file, answers, notes)
    return answers, notes


def remove_journals(path: Path) -> None:
    """Remove the journals of a run."""
    for each in _journals_of(path):
        each.unlink()


def _journals_of(path: Path) -> list[Path]:
    """List the journals of a run and of its shares."""
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    return sorted(each for each in beside if f"{each.name}.".startswith(f"{path.name}."))


def _unite(notes: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, int):
            notes[name] = notes.get(name, 0) + value
        elif name == TEXTS:
            notes.setdefault(name, {}).update(value)
        elif isinstance(value, list):
            notes[name] = sorted({*notes.get(name, ()), *value})
        else:
            notes.setdefault(name, value)


def _replay(file: BinaryIO, answers: NDArray[np.float64], notes: dict[str, Any]) -> int:
    """Fill in a journal's answers and notes; return the bytes up to its last whole batch."""
    good, width, waiting = 0, answers.shape[1], list[dict[str, Any]]()
    size = _POSITION.itemsize + width * _NUMBER.itemsize
    most = os.fstat(file.fileno()).st_size // size  # a damaged count may exceed memory
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        count, checksum = _HEAD.unpack(head)
        if not count:
            length = _LENGTH.unpack(file.read(_LENGTH.size).ljust(_LENGTH.size, b"\0"))[0]
            said = file.read(min(length, most * size))
            if zlib.crc32(said) != checksum:
                break
            waiting.append(json.loads(said))
            continue
        content = file.read(min(count, most) * size)
        if len(content) < count * size or zlib.crc32(content) != checksum:
            break
        positions = np.frombuffer(content, _POSITION, count)
        numbers = np.frombuffer(content, _NUMBER, offset=count * _POSITION.itemsize)
        answers[positions] = numbers.reshape(-1, width)
        while waiting:
            _unite(notes, waiting.pop())
        good = file.tell()
    return good
