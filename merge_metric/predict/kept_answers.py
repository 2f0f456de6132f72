"""A model's answers as rows of the store of answers, from which an interrupted run continues."""

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merge_metric.models.pair_model import Answers

ROW: Final = pa.schema(
    [
        ("label", pa.int64()),
        ("probabilities", pa.list_(pa.float64())),
        ("text", pa.string()),
        ("numbers", pa.list_(pa.float64())),
        ("notes", pa.string()),
    ]
)
"""Columns of an answer; `notes` of a batch's first row is JSON of what the whole batch has."""


def to_rows(answers: Answers) -> pa.Table:
    """Turn a batch of answers into rows."""
    size, rows, numbers = len(answers.labels), answers.probabilities, answers.numbers
    notes = json.dumps([list(numbers), dict(answers.counts), dict(answers.notes)])
    columns: list[Any] = [
        answers.labels,
        [None] * size if rows is None else list(np.asarray(rows, np.float64)),
        answers.texts or [None] * size,
        list(np.stack([*numbers.values()], axis=1)) if numbers else [None] * size,
        [notes, *[None] * (size - 1)],
    ]
    return pa.table(columns, schema=ROW)


def from_rows(rows: pa.Table) -> Answers:
    """Make answers of the rows of one or several batches; counts are summed, lists merged."""
    names, counts, notes = list[str](), dict[str, int](), dict[str, Any]()
    for text in rows["notes"].drop_null().to_pylist():
        names, more_counts, more_notes = json.loads(text)
        for name, count in more_counts.items():
            counts[name] = counts.get(name, 0) + count
        merge_notes(notes, more_notes)

    def table_of(name: str) -> NDArray[np.float64] | None:
        if not len(rows) or rows[name].null_count:  # None of one batch leaves none to the whole
            return None
        values: NDArray[np.float64] = rows[name].combine_chunks().flatten().to_numpy()
        return values.reshape(len(rows), -1)

    numbers = table_of("numbers")
    return Answers(
        positions=list(range(len(rows))),
        labels=rows["label"].to_numpy(),
        probabilities=table_of("probabilities"),
        texts=None if rows["text"].null_count else rows["text"].to_pylist(),
        numbers={} if numbers is None else dict(zip(names, numbers.T, strict=True)),
        counts=counts,
        notes=notes,
    )


def merge_notes(notes: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add notes to others: lists are merged, of other values the first stays."""
    for name, note in more.items():
        if isinstance(note, list):
            notes[name] = sorted({*notes.get(name, ()), *note})
        else:
            notes.setdefault(name, note)
