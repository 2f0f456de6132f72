"""Journals: a model's answers so far on disk, from which an interrupted run continues."""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from merge_dataset.part_store import append_record, open_records, read_records
from merge_metric.models.pair_model import Answers, Share

_NUMBER: Final = np.dtype("<f8")
_UNANSWERED: Final = -2


class Journal:
    """Answers by position, in memory and in a list of records, a record for each batch."""

    def __init__(
        self, path: Path, size: int, n_labels: int, *, file: BinaryIO | None = None
    ) -> None:
        """Read the answers to `size` questions, with `n_labels` labels, of a run and its shares.

        `file`, from `open_records`, is the list to add answers to.
        """
        self.labels = np.full(size, _UNANSWERED)
        """Positions of the labels answered, (n,)."""
        self.probabilities = np.full((size, n_labels), np.nan)
        """Probabilities of the labels, (n, labels); NaN where there are none."""
        self.texts: dict[int, str] = {}
        """Position → the model's own words, if it answers in words."""
        self.numbers: dict[str, NDArray[np.float64]] = {}
        """Further numbers by name, (n,)."""
        self.counts: dict[str, int] = {}
        """Sums of all counts."""
        self.notes: dict[str, Any] = {}
        """All notes on answers; lists are merged."""
        self._file = file
        for each in _lists_of(path):
            for record in read_records(each):
                self._take(record)

    @property
    def unanswered(self) -> NDArray[np.bool_]:
        """Mask of positions without an answer, (n,)."""
        return np.asarray(self.labels == _UNANSWERED)

    def add(self, answers: Answers) -> None:
        """Store answers."""
        assert self._file is not None
        rows = answers.probabilities
        record = {
            "positions": np.asarray(answers.positions).tolist(),
            "labels": answers.labels.tolist(),
            "probabilities": None if rows is None else _encoded(rows),
            "texts": answers.texts or [],
            "numbers": {name: _encoded(values) for name, values in answers.numbers.items()},
            "counts": {**answers.counts},
            "notes": {**answers.notes},
        }
        self._take(record)  # first, as a record that cannot be taken must not stay
        append_record(self._file, record)

    def _take(self, record: Mapping[str, Any]) -> None:
        positions = record["positions"]
        self.labels[positions] = record["labels"]
        if record["probabilities"] is not None:
            rows = _decoded(record["probabilities"])
            self.probabilities[positions] = rows.reshape(len(positions), -1)
        if record["texts"]:
            self.texts.update(zip(positions, record["texts"], strict=True))
        for name, values in record["numbers"].items():
            empty = np.full(len(self.labels), np.nan)
            self.numbers.setdefault(name, empty)[positions] = _decoded(values)
        for name, count in record["counts"].items():
            self.counts[name] = self.counts.get(name, 0) + count
        for name, note in record["notes"].items():
            if isinstance(note, list):
                self.notes[name] = sorted({*self.notes.get(name, ()), *note})
            else:
                self.notes.setdefault(name, note)


def _encoded(values: NDArray[np.float64]) -> str:
    return b64encode(values.astype(_NUMBER).tobytes()).decode()


def _decoded(text: str) -> NDArray[np.float64]:
    return np.frombuffer(b64decode(text), _NUMBER)


@contextmanager
def open_journal(
    path: Path, size: int, n_labels: int, *, share: Share | None = None
) -> Iterator[Journal]:
    """Open or make a journal, with the answers of all shares of the run.

    The file name identifies the run; a share has its own file beside it. When the block of a whole
    run (no share) ends without an error, all journals of the run are removed.
    """
    mine = path if share is None else path.with_name(f"{path.name}.{share.index}-{share.count}")
    with open_records(mine) as file:
        yield Journal(path, size, n_labels, file=file)
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
