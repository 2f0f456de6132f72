"""Journals: a model's answers so far on disk, from which an interrupted run continues."""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from merge_dataset.part_store import append_record, open_records, read_records
from merge_metric.models.pair_model import Share

_NUMBER: Final = np.dtype("<f8")


class Journal:
    """Answers by position, in memory and in a list of records, a record for each batch."""

    def __init__(self, path: Path, size: int, width: int, *, file: BinaryIO | None = None) -> None:
        """Read the answers to `size` questions, `width` numbers each, of a run and its shares.

        `file`, from `open_records`, is the list to add answers to.
        """
        self.answers = np.full((size, width), np.nan)
        """Answers, (n, numbers); NaN where there is no answer yet."""
        self.texts: dict[int, str] = {}
        """Position → the model's own words, if it answers in words."""
        self.notes: dict[str, Any] = {}
        """All notes on answers: numbers are summed, lists merged."""
        self._file = file
        for each in _lists_of(path):
            for record in read_records(each):
                self._take(record)

    @property
    def unanswered(self) -> NDArray[np.bool_]:
        """Mask of positions without an answer, (n,)."""
        found: NDArray[np.bool_] = np.isnan(self.answers[:, 0])
        return found

    def add(
        self,
        positions: Sequence[int],
        answers: NDArray[np.float64],
        *,
        texts: Sequence[str] | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        """Store answers, (n, numbers), whose first number is not NaN, and their JSON-able notes."""
        assert self._file is not None
        record = {
            "positions": np.asarray(positions).tolist(),
            "answers": b64encode(answers.astype(_NUMBER).tobytes()).decode(),
            "texts": texts or [],
            "notes": notes or {},
        }
        self._take(record)  # first, as a record that cannot be taken must not stay
        append_record(self._file, record)

    def _take(self, record: Mapping[str, Any]) -> None:
        numbers = np.frombuffer(b64decode(record["answers"]), _NUMBER)
        self.answers[record["positions"]] = numbers.reshape(-1, self.answers.shape[1])
        if record["texts"]:
            self.texts.update(zip(record["positions"], record["texts"], strict=True))
        for name, value in record["notes"].items():
            if isinstance(value, int):
                self.notes[name] = self.notes.get(name, 0) + value
            elif isinstance(value, list):
                self.notes[name] = sorted({*self.notes.get(name, ()), *value})
            else:
                self.notes.setdefault(name, value)


@contextmanager
def open_journal(
    path: Path, size: int, width: int, *, share: Share | None = None
) -> Iterator[Journal]:
    """Open or make a journal, with the answers of all shares of the run.

    The file name identifies the run; a share has its own file beside it. When the block of a whole
    run (no share) ends without an error, all journals of the run are removed.
    """
    mine = path if share is None else path.with_name(f"{path.name}.{share.index}-{share.count}")
    with open_records(mine) as file:
        yield Journal(path, size, width, file=file)
    if share is None:
        remove_journals(path)


def remove_journals(path: Path) -> None:
    """Remove the journals of a run."""
    for each in _lists_of(path):
        each.unlink()


def _lists_of(path: Path) -> list[Path]:
    """List the journals of a run and of its shares."""
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    return sorted(each for each in beside if f"{each.name}.".startswith(f"{path.name}."))
