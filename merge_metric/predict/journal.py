"""A model's answers so far, on disk: an interrupted run goes on from them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

_HEAD: Final = struct.Struct("<II")
"""Number of answers in a batch, and CRC-32 of what follows."""
_POSITION: Final = np.dtype("<i8")
_NUMBER: Final = np.dtype("<f8")


class Journal:
    """Answers by position, each batch whole or not at all."""

    def __init__(self, file: BinaryIO, answers: NDArray[np.float64]) -> None:
        """Use `open_journal`."""
        self._file = file
        self.answers = answers
        """(n, labels), NaN where there is no answer yet."""

    @property
    def missing(self) -> list[int]:
        """Positions without an answer, ascending."""
        found: list[int] = np.flatnonzero(np.isnan(self.answers[:, 0])).tolist()
        return found

    def add(self, positions: Sequence[int], answers: NDArray[np.float64]) -> None:
        """Keep a batch of answers, in memory and on disk.

        Args:
            positions: Where they belong; an answer that is there already is replaced.
            answers: (number of positions, labels), no NaN.
        """
        where = np.asarray(positions, _POSITION)
        content = where.tobytes() + answers.astype(_NUMBER).tobytes()
        self._file.write(_HEAD.pack(len(where), zlib.crc32(content)) + content)
        self._file.flush()
        self.answers[where] = answers


@contextmanager
def open_journal(path: Path, size: int, width: int = 3) -> Iterator[Journal]:
    """Open a journal, made where there is none; what a kill left half-written is dropped.

    When the block ends without an error, the journal has served and is removed.

    Args:
        path: The file, which no other process has open. Its name must stand for the run: nothing
            in it says whose it is.
        size: Number of answers that the run will have.
        width: Numbers in an answer.

    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        answers = np.full((size, width), np.nan)
        file.seek(0)
        file.truncate(_replay(file, answers))
        yield Journal(file, answers)
    path.unlink()


def _replay(file: BinaryIO, answers: NDArray[np.float64]) -> int:
    """Fill in the answers of a journal; bytes up to its last whole batch."""
    good, width = 0, answers.shape[1]
    size = _POSITION.itemsize + width * _NUMBER.itemsize
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        count, checksum = _HEAD.unpack(head)
        content = file.read(count * size)
        if len(content) < count * size or zlib.crc32(content) != checksum:
            break
        positions = np.frombuffer(content, _POSITION, count)
        numbers = np.frombuffer(content, _NUMBER, offset=count * _POSITION.itemsize)
        answers[positions] = numbers.reshape(-1, width)
        good = file.tell()
    return good
