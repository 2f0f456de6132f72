"""The items of a session as a table for spreadsheets, to be filled in there."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Final

from merge_dataset.annotation.answers import COLUMNS
from merge_dataset.annotation.sample import Item

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a cell begins with that a spreadsheet runs (OWASP, CSV injection)."""


def render(items: Sequence[Item], annotator: str = "") -> str:
    """A CSV table with a row per item, with room for scores and comment.

    With a byte order mark, as Excel takes it for another encoding without.

    Args:
        items: In the order they are to be annotated in.
        annotator: Who fills it in, where that is known.
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
    return written.getvalue()


def plain(text: str) -> str:
    """A text that no spreadsheet takes for a formula.

    >>> plain("=HYPERLINK(1)"), plain("A girl runs.")
    ("'=HYPERLINK(1)", 'A girl runs.')
    """
    return f"'{text}" if text.startswith(_FORMULA) else text
