"""Items as a table for spreadsheets, and answers from tables that were filled in there."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from merge_dataset.annotation.answers import COLUMNS, Answer, check_annotator, parse_answer
from merge_dataset.annotation.sample import Item

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First characters of a cell that a spreadsheet runs (OWASP, CSV injection)."""


def render(items: Sequence[Item], annotator: str = "") -> dict[str, str]:
    """Render a CSV table with a row per item, with room for scores and comment.

    With a byte order mark, as Excel takes it for another encoding without.

    Args:
        items: In the order they are to be annotated in.
        annotator: Who fills it in, where that is known.

    Returns:
        The text of the file, by its suffix.
    """
    fields = list(dict.fromkeys(field for item in items for field in item.variant_texts))
    texts = [f"{side}_{field}" for field in fields for side in ("original", "variant")]
    names = ["annotator", "variant_id", "label", "original", "replacement", *texts, *COLUMNS[2:]]
    written = io.StringIO()
    written.write("\ufeff")
    table = csv.DictWriter(written, names, restval="")
    table.writeheader()
    for item in items:
        row = {
            "annotator": annotator,
            "variant_id": item.variant_id,
            "label": item.label,
            "original": item.original,
            "replacement": item.replacement,
        }
        row |= {f"original_{field}": text for field, text in item.seed_texts.items()}
        row |= {f"variant_{field}": text for field, text in item.variant_texts.items()}
        table.writerow({name: plain(text) for name, text in row.items()})
    return {".csv": written.getvalue()}


def plain(text: str) -> str:
    """Mark a text so that no spreadsheet takes it for a formula.

    >>> plain("=HYPERLINK(1)"), plain("A girl runs.")
    ("'=HYPERLINK(1)", 'A girl runs.')
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


# --- Back ---


def read(path: Path, annotator: str | None = None) -> list[tuple[str, Answer]]:
    """Read annotators and answers of a table; rows with neither score are not answered yet.

    Commas, semicolons or tabs between the cells, as spreadsheets write them. Columns of
    other names are left out.

    Args:
        path: The file.
        annotator: Whose answers they are, where the table does not say so.

    Raises:
        ValueError: a column is missing, or a row is malformed or contradicts another.
    """
    found: dict[tuple[str, str], Answer] = {}
    for line, row in _csv_rows(path, annotator):
        try:
            without = [name for name in ("fluency", "reasoning") if not row[name].strip()]
            if len(without) == 2:
                continue
            if without:
                raise ValueError(
                    f"expected both scores or neither, got no {without[0]}; fill it in, or empty "
                    f"the other to leave {row['variant_id']!r} unanswered"
                )
            if not row["variant_id"]:
                raise ValueError("variant_id: expected the id of a variant, got none")
            answer = parse_answer(row)
            name = check_annotator(row["annotator"].strip() or annotator or "")
            if annotator not in (None, name):
                raise ValueError(f"expected rows of {annotator}, got one of {name}")
            if found.setdefault((name, answer.variant_id), answer) != answer:
                raise ValueError(f"expected one answer of {name} to {answer.variant_id!r}, got two")
        except ValueError as error:
            raise ValueError(f"{path}: line {line}: {error}") from error
    return [(name, answer) for (name, _), answer in found.items()]


def _csv_rows(path: Path, annotator: str | None) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield lines, from 1, and the columns `COLUMNS` of the rows."""
    defaults = {"comment": ""} if annotator is None else {"comment": "", "annotator": ""}
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            head = file.readline()
            file.seek(0)
            delimiter = max(",;\t", key=head.count)
            reader = csv.DictReader(file, delimiter=delimiter, strict=True)
            names = reader.fieldnames or ()
            if missing := [name for name in COLUMNS if name not in (*names, *defaults)]:
                raise ValueError(
                    f"expected the columns {', '.join(COLUMNS)}, got {', '.join(names) or 'none'}: "
                    f"without {', '.join(missing)}"
                )
            for row in reader:
                given = {name: row.get(name) or "" for name in COLUMNS if name in names}
                yield reader.line_num, defaults | given
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(
                f"{path}: expected a CSV file in UTF-8, got an error: {error}"
            ) from error
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
