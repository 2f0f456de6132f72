"""CSV tables of other programs: read with messages that name the line."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from merge_dataset.files import require_utf8

LONGEST_CELL: Final = 2**24
"""Characters; a longer one is read as a quotation mark that is never closed."""

_SHOWN: Final = 60
"""Characters of column names that a message shows."""


def read_rows(
    path: Path, required: Sequence[str], optional: Sequence[str] = (), *, ended: bool = False
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a CSV file with a header, and the line on which each ends.

    Commas, semicolons or tabs between the cells, as spreadsheets write them; the header shows
    which. Columns of other names are left out, as are blank lines. Cells that a row lacks at its
    end are empty: some spreadsheets leave out the last ones.

    Args:
        path: The file, in UTF-8.
        required: Columns that it must have.
        optional: Columns that it may have.
        ended: Whether its last line must have an end, as every spreadsheet writes it: without,
            it was cut off.

    Raises:
        ValueError: a column is missing, or there is something else than CSV.
    """
    require_utf8(path)
    head = _head(path)
    delimiter = max(",;\t", key=head.count)
    csv.field_size_limit(LONGEST_CELL)
    file = path.open(encoding="utf-8-sig", newline="")
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_header(header, required, head)
        places = {name: header.index(name) for name in (*required, *optional) if name in header}
        for cells in reader:
            if len(cells) > len(header):
                raise ValueError(
                    f"line {reader.line_num}: expected {len(header)} cells, as in the header, got "
                    f"{len(cells)}; put cells with a {_NAMES[delimiter]} in quotation marks"
                )
            if cells:
                yield (
                    reader.line_num,
                    {
                        name: cells[place] if place < len(cells) else ""
                        for name, place in places.items()
                    },
                )
        if ended and not _is_ended(path):
            raise ValueError(
                f"line {reader.line_num}: expected a line end after the last row, got none: the "
                f"file was cut off there; or, if it is whole, end its last line"
            )
    except csv.Error as error:
        raise ValueError(f"{path}: line {reader.line_num}: {_problem(error)}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    finally:
        file.close()


def _head(path: Path) -> str:
    """Read the first line without its end."""
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        return file.readline().removesuffix("\n")


def _is_ended(path: Path) -> bool:
    """Whether the last line of a file that is not empty has an end."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() in (b"\n", b"\r")


def read_header(path: Path) -> list[str]:
    """Read the names of a CSV file's columns, as `read_rows` takes them."""
    require_utf8(path)
    head = _head(path)
    rows = csv.reader([head], delimiter=max(",;\t", key=head.count))
    return [name.strip() for name in next(rows, [])]


_NAMES: Final = {",": "comma", ";": "semicolon", "\t": "tab"}


def _check_header(header: Sequence[str], required: Sequence[str], head: str) -> None:
    if missing := describe_missing(required, header):
        raise ValueError(f"expected the columns {', '.join(required)} in its first line, {missing}")
    if twice := [name for name in required if header.count(name) > 1]:
        raise ValueError(f"expected each column once, got {twice[0]} several times in {head!r}")


def describe_missing(required: Sequence[str], there: Sequence[str]) -> str:
    """Say which columns a table lacks, for a message; empty where it has all.

    >>> describe_missing(["id", "label"], ["id", "gold"]), describe_missing(["id"], ["gold"])
    ('found no label', 'found gold alone')
    """
    missing = [name for name in required if name not in there]
    if 0 < len(missing) < len(required):
        *first, last = missing
        return f"found no {', no '.join(first)}{' and no ' if first else ''}{last}"
    shown = ", ".join(there)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return f"found {f'{shown} alone' if shown else 'none of them'}" if missing else ""


def _problem(error: csv.Error) -> str:
    """Say in plain words what is not CSV."""
    if "unexpected end" in str(error):
        return "a quotation mark is opened and never closed: the file is cut off, or lacks one"
    return (
        "a quotation mark stands inside a cell: write it twice, and put the cell in quotation marks"
    )
