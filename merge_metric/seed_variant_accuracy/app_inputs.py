"""A visitor's table or file → the arguments of `score`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .inputs import split_predictions
from .options import LABELS

HEADERS: Final = ("seed", "gold label", "seed prediction", "variant prediction")

TABLE: Final = "the table"
"""The name of that source."""

_E, _N, _C = LABELS
EXAMPLE: Final = (
    *(("seed 1", _E, _E, prediction) for prediction in (_E, _E, _E, _E)),
    *(("seed 2", _N, _N, prediction) for prediction in (_N, _N, _N, _C)),
    *(("seed 3", _C, _E, prediction) for prediction in (_C, _C, _E, _E)),
)
"""Three seeds of four variants each: 4, 3 and 2 right, and the third seed itself wrong."""

COLUMNS: Final = ("variant_id", "seed_id", "label", "prediction")
"""Columns that every row of a predictions file has."""
PROBABILITIES: Final = "probabilities"

ROWS_AT_MOST: Final = 1_000_000
REPLICATES_AT_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class PageInput:
    """Predictions as arguments of `score`, and the name of their origin."""

    name: str
    arguments: dict[str, Any]


def read_table(rows: Sequence[Sequence[Any]]) -> PageInput:
    """Read the table of the page; rows without any entry do not count.

    Raises:
        ValueError: a cell is empty or holds no label, or there are no rows.
    """
    filled = [
        (number, cells)
        for number, row in enumerate(rows, 1)
        if any(cells := ["" if cell is None else str(cell).strip() for cell in row])
    ]
    if not filled:
        raise ValueError("expected at least one variant, got an empty table: fill in a row")
    for number, cells in filled:
        if len(cells) != len(HEADERS):
            raise ValueError(
                f"expected the columns {', '.join(HEADERS)}, got {len(cells)}: "
                "delete those that you added, or load the page again"
            )
        for header, cell in zip(HEADERS, cells, strict=True):
            if not cell:
                raise ValueError(
                    f"row {number}: expected a {header}, got an empty cell: "
                    "fill it in, or empty the whole row"
                )
    return PageInput(
        name=TABLE,
        arguments={
            "seed_ids": [cells[0] for _, cells in filled],
            "references": [_label(number, 1, cells) for number, cells in filled],
            "seed_predictions": [_label(number, 2, cells) for number, cells in filled],
            "predictions": [_label(number, 3, cells) for number, cells in filled],
        },
    )


def _label(number: int, column: int, cells: Sequence[str]) -> str:
    """Read the label in a cell: a name in any case, or its number."""
    cell = cells[column].lower()
    if cell in LABELS:
        return cell
    if cell in {str(position) for position in range(len(LABELS))}:
        return LABELS[int(cell)]
    raise ValueError(
        f"row {number}, {HEADERS[column]}: expected {', '.join(LABELS)} or 0, 1, 2; "
        f"got {cells[column]!r}"
    )


def read_file(path: Path) -> PageInput:
    """Read a predictions file, Parquet or JSON Lines.

    Raises:
        ValueError: another kind of file, a damaged one, a column that lacks, or rows that
            contradict each other.
    """
    readers = {".parquet": _read_parquet, ".jsonl": _read_jsonl}
    if path.suffix.lower() not in readers:
        raise ValueError(f"expected a .parquet or .jsonl file, got {path.name!r}")
    columns = readers[path.suffix.lower()](path)
    _require_rows(len(columns[COLUMNS[0]]))
    without = columns.get(PROBABILITIES, []).count(None)
    if without == len(columns[COLUMNS[0]]):
        del columns[PROBABILITIES]  # as good as no such column
    elif without:
        raise ValueError(
            f"expected {PROBABILITIES} in every row or in none, got {without:,} rows without"
        )
    return PageInput(name=path.name, arguments=split_predictions(**columns))


def _read_parquet(path: Path) -> dict[str, list[Any]]:
    from pyarrow import ArrowException
    from pyarrow import parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            _require_columns(names, path.name)
            _require_rows(file.metadata.num_rows)
            wanted = [name for name in (*COLUMNS, PROBABILITIES) if name in names]
            columns: dict[str, list[Any]] = file.read(columns=wanted).to_pydict()
    except (ArrowException, OSError) as error:
        raise ValueError(
            f"expected a Parquet file, got one that cannot be read ({error}): write it again"
        ) from error
    return columns


def _read_jsonl(path: Path) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in (*COLUMNS, PROBABILITIES)}
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                said = f"line {number}: expected a JSON object, got {line.strip()[:40]!r}"
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise ValueError(f"{said} ({error})") from error
                if not isinstance(row, dict):
                    raise ValueError(said)
                _require_columns(row, f"line {number}")
                for name, values in columns.items():
                    values.append(row.get(name))
                _require_rows(len(values))
    except UnicodeDecodeError as error:
        raise ValueError(f"expected text in UTF-8, got bytes that are none ({error})") from error
    return columns


def _require_columns(names: Sequence[str] | dict[str, Any], where: str) -> None:
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise ValueError(
            f"{where}: expected {', '.join(COLUMNS)} and optionally {PROBABILITIES}, "
            f"got {', '.join(names) or 'nothing'}: {', '.join(missing)} missing"
        )


def _require_rows(n_rows: int) -> None:
    if not n_rows:
        raise ValueError("expected one row per seed and per variant, got an empty file")
    if n_rows > ROWS_AT_MOST:
        raise ValueError(
            f"expected at most {ROWS_AT_MOST:,} rows, got {n_rows:,} or more: "
            "compute larger files on your own machine"
        )


def whole(name: str, value: float | None, *, least: int = 0, most: int) -> int:
    """Read the value of a number field as an int.

    Raises:
        ValueError: it is empty, not whole, or out of range.
    """
    if value is None or value != value // 1 or not least <= value <= most:
        shown = "an empty field" if value is None else f"{value:g}"
        raise ValueError(f"{name}: expected a whole number from {least:,} to {most:,}, got {shown}")
    return int(value)
