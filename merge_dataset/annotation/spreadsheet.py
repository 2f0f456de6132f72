"""Items as a table for spreadsheets, and answers from tables that were filled in there."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from merge_dataset.annotation.answers import (
    ASKED,
    COLUMNS,
    EQUIVALENCE,
    SCORES,
    Judgement,
    JudgementKind,
    check_annotator,
    parse_answer,
)
from merge_dataset.annotation.sample import Item
from merge_dataset.csv_tables import read_header, read_rows

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First characters of a cell that a spreadsheet runs (OWASP, CSV injection)."""


def render(
    items: Sequence[Item], annotator: str = "", kind: JudgementKind = SCORES
) -> dict[str, str]:
    """Render a CSV table with a row per item, with room for what is asked and a comment.

    With a byte order mark, as Excel takes it for another encoding without.

    Args:
        items: In the order they are to be annotated in.
        annotator: Who fills it in, where that is known.
        kind: What is asked. About equivalence tables have neither labels nor single words.

    Returns:
        The text of the file, by its suffix.
    """
    fields = list(dict.fromkeys(field for item in items for field in item.variant_texts))
    texts = [f"{side}_{field}" for field in fields for side in ("original", "variant")]
    told = ("label", "original", "replacement") if kind == SCORES else ()
    names = ["annotator", "variant_id", *told, *texts, *COLUMNS[kind][2:]]
    written = io.StringIO()
    written.write("\ufeff")
    table = csv.DictWriter(written, names, restval="", extrasaction="ignore")
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


def read(path: Path, annotator: str | None = None) -> list[tuple[str, Judgement]]:
    """Read annotators and answers of a table; rows without any are not answered yet.

    One with a column `equivalent` has those about paraphrases, another scores.

    Commas, semicolons or tabs between the cells, as spreadsheets write them. Columns of
    other names are left out.

    Args:
        path: The file.
        annotator: Whose answers they are, where the table does not say so.

    Raises:
        ValueError: a column is missing, a row is malformed or contradicts another, or the file
            was cut off.
    """
    found: dict[tuple[str, str], Judgement] = {}
    own = () if annotator is not None else ("annotator",)
    kind: JudgementKind = (
        EQUIVALENCE if set(ASKED[EQUIVALENCE]) & set(read_header(path)) else SCORES
    )
    asked = ASKED[kind]
    required = (*own, "variant_id", *asked)
    for line, cells in read_rows(path, required, ("annotator", "comment"), ended=True):
        row = {"annotator": "", "comment": ""} | cells
        try:
            without = [name for name in asked if not row[name].strip()]
            if len(without) == len(asked):
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
