"""JSON lines ↔ tables: read quickly, with messages that name the line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.json as pj

from merge_dataset.files import atomic

NUMBERS: Final = pa.list_(pa.float64())

_NAMES: Final = {pa.string(): "a string", pa.int64(): "an integer", NUMBERS: "a list of numbers"}

_BLOCK: Final = 2**24
"""Bytes parsed at a time; no line may be longer."""

_SHOWN: Final = 60
"""Characters of a malformed line that a message shows."""


def read(path: Path, columns: Mapping[str, Sequence[pa.DataType]]) -> pa.Table:
    """Read some columns of a file of JSON objects, one per line.

    Args:
        path: The file; gzip where its name ends in .gz. Blank lines are skipped.
        columns: Name → types the column may have: string, int64, `NUMBERS`. Of several,
            the first line decides. Other columns are left out.

    Returns:
        Those columns that have a value in any line, in the order of `columns`.

    Raises:
        ValueError: a line is no JSON object, or a value of another type; the file is cut off.
    """
    # pyarrow reads quickly, but its messages name no line: where it fails, Python looks again.
    types: dict[str, pa.DataType] = {}
    try:
        types = _types(path, columns)
        options = pj.ParseOptions(pa.schema(types.items()), unexpected_field_behavior="ignore")
        table = pj.read_json(path, pj.ReadOptions(block_size=_BLOCK), options)
        table.validate(full=True)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path}: {_first_problem(path, types) or error}") from error
    return table.select([name for name in types if table[name].null_count < len(table)])


def write(path: Path, table: pa.Table, *, compress: bool) -> None:
    """Write a table, whole or not at all, the same bytes for the same table.

    Args:
        path: The file.
        table: Of columns that JSON knows.
        compress: Whether by gzip.
    """
    with atomic(path) as partial, partial.open("wb") as raw:
        # Without the time and the name of the file in its head, which would change the bytes.
        file = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if compress else nullcontext(raw)
        with file as lines:
            for batch in table.to_batches(max_chunksize=10_000):
                rows = (json.dumps(row, ensure_ascii=False) for row in batch.to_pylist())
                lines.write("".join(f"{row}\n" for row in rows).encode())


def line_number(path: Path, row: int) -> int:
    """Find the line, from 1, of a row, from 0: blank lines are no rows."""
    number, _ = next(islice(_lines(path), row, None))
    return number


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield lines that are not blank, with their numbers from 1."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line


def _types(path: Path, columns: Mapping[str, Sequence[pa.DataType]]) -> dict[str, pa.DataType]:
    """Guess the type of each column from the first line."""
    for _, line in _lines(path):
        first = json.loads(line)
        row = first if isinstance(first, dict) else {}
        return {
            name: next((kind for kind in kinds if _fits(row.get(name), kind)), kinds[0])
            for name, kinds in columns.items()
        }
    raise EOFError("expected a JSON object per line, got an empty file")


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Tell whether a JSON value is of a type, or null."""
    if value is None:
        return True
    if isinstance(value, bool):
        return False
    if kind == NUMBERS:
        return isinstance(value, list) and all(
            isinstance(each, int | float | None) and not isinstance(each, bool) for each in value
        )
    return isinstance(value, str if kind == pa.string() else int)


def _first_problem(path: Path, types: Mapping[str, pa.DataType]) -> str | None:
    """Find the first line that is wrong, and say what is."""
    number = 0
    try:
        for number, line in _lines(path):
            if problem := _problem(line, types):
                return f"line {number}: {problem}"
    except (OSError, EOFError) as error:
        return f"after line {number}: expected more lines, got an error: {error}"
    return None


def _problem(line: bytes, types: Mapping[str, pa.DataType]) -> str | None:
    shown = line[:_SHOWN].decode(errors="replace").strip()
    try:
        row = json.loads(line)
    except ValueError as error:
        return (
            f"expected a JSON object, got {shown!r}: {error}; "
            f"if the writing was interrupted there, remove the line"
        )
    if not isinstance(row, dict):
        return f"expected a JSON object, got {shown!r}"
    for name, kind in types.items():
        if not _fits(row.get(name), kind):
            return f"{name}: expected {_NAMES[kind]} in every line, got {row[name]!r}"
    return None
