"""The funnel's own arithmetic, and how it is shown."""

from __future__ import annotations

import pytest

from generation.reasons import FUNNEL_COLUMNS, KEPT, Reason
from generation.run_summary import render_funnel
from generation.variants.funnel import (
    NOT_IN_VOCABULARY,
    OCCASIONAL_REASONS,
    SUGGESTION_REASONS,
    Funnel,
)


def test_funnel_rows_are_sorted_and_complete() -> None:
    """One row per MLM and class, every column there, suggestions the sum of the ends."""
    funnel = Funnel()
    funnel.add("b", "noun", {KEPT: 2, Reason.IN_PROBLEM: 1, "replacements": 1})
    funnel.add("a", "verb", {NOT_IN_VOCABULARY: 3})
    funnel.add("b", "noun", {KEPT: 1})
    first, second = funnel.rows()
    assert (first["mlm"], first["word_class"], first["suggestions"]) == ("a", "verb", 0)
    assert first[NOT_IN_VOCABULARY] == 3
    assert (second["suggestions"], second[KEPT], second["replacements"]) == (4, 3, 1)
    assert list(first) == [
        "mlm",
        "word_class",
        "suggestions",
        *SUGGESTION_REASONS,
        KEPT,
        "replacements",
        NOT_IN_VOCABULARY,
    ]


def test_every_column_is_explained() -> None:
    """For readers of the card, also columns of some runs only, without numbers of decisions."""
    funnel = Funnel()
    funnel.add("a", "verb", dict.fromkeys(OCCASIONAL_REASONS, 1))
    (row,) = funnel.rows()
    assert row.keys() - {"mlm", "word_class"} == FUNNEL_COLUMNS.keys()
    assert FUNNEL_COLUMNS[Reason.LESS_PROBABLE] == "not more probable than the original"


def test_the_funnel_as_text() -> None:
    """Counts with thousands separators, shares of the column's suggestions."""
    funnel = Funnel()
    funnel.add("bert", "noun", {KEPT: 1_500, Reason.IN_PROBLEM: 4_500, "replacements": 700})
    text = render_funnel(funnel.rows())
    cells = {line.split("│")[1].strip(): line.split("│")[2].strip()
             for line in text.splitlines() if line.startswith("│")}  # fmt: skip
    assert cells["suggestions"] == "6,000"
    assert cells["kept"] == "1,500 25.0%"
    assert cells["in problem"] == "4,500 75.0%"
    assert cells["replacements"] == "700"
    assert cells["other sentence"] == "0  0.0%"


@pytest.mark.parametrize("key", SUGGESTION_REASONS)
def test_every_reason_is_counted(key: str) -> None:
    """No reason falls out of the sum."""
    funnel = Funnel()
    funnel.add("m", "noun", {key: 5})
    (row,) = funnel.rows()
    assert (row["suggestions"], row[key]) == (5, 5)
