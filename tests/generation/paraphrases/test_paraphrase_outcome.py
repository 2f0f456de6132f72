"""Rows of the dataset and of the run's own tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from helpers.paraphrase_run import paraphrased_row, problem_row

from generation.paraphrases.outcome import (
    PARAPHRASES,
    answer_table,
    excluded,
    kept_texts,
    paraphrase_table,
    sorted_paraphrases,
    variant_rows,
)
from generation.paraphrases.rounds import Tried
from generation.records import Seed
from merge_dataset.schema import arrow_schema


def seed(number: str, hypothesis: str, **changes: object) -> Seed:
    values = {"seed_id": f"snli:{number}", "source": "snli",
              "texts": (f"Premise {number}.", hypothesis), "label": "neutral"}  # fmt: skip
    return Seed(**{**values, **changes})  # type: ignore[arg-type]


def tried(hypothesis: str, number: int, rank: int, reason: str = "kept") -> Tried:
    text = f"{hypothesis} {number} {rank}"
    return Tried(hypothesis, number, rank, text, f"'{text}'", 0.5, -1.0, reason, 0.75, None)


def test_variants_are_as_a_dataset_has_them() -> None:
    """Every column, against rows made by hand; sorted by seed, then by id."""
    seeds = [
        seed("b", "The girl’s dog 🐕 runs.", annotator_labels=("neutral", "contradiction")),
        seed("a", "A girl jumps."),
        seed("c", "A girl jumps.", label="contradiction"),
    ]
    texts = {
        "The girl’s dog 🐕 runs.": ["A 🐕 runs."],
        "A girl jumps.": ["Somebody jumps.", "A girl leaps.", "There is a girl."],
        "Other.": ["Never."],
    }
    table = variant_rows(seeds, texts)
    expected = []
    for name, label, votes, number in (("a", "neutral", (), 1), ("b", "neutral", (1, 2), 0),
                                       ("c", "contradiction", (), 2)):  # fmt: skip
        hypothesis = seeds[number].hypothesis
        row = problem_row(f"snli:{name}", (f"Premise {name}.", hypothesis, label, votes, ()))
        rows = [paraphrased_row(row, text) for text in texts[hypothesis]]
        expected += sorted(rows, key=lambda each: each["variant_id"])
    assert table.to_pylist() == expected
    assert table.schema == arrow_schema()
    assert [len(column.chunks) for column in table.columns] == [1] * table.num_columns


def test_candidates_are_sorted() -> None:
    """By hypothesis, round and rank; the columns are the fields."""
    rows = [tried("B.", 1, 0), tried("A.", 2, 1), tried("A.", 10, 0), tried("A.", 2, 0)]
    table = sorted_paraphrases([paraphrase_table(rows[:1]), paraphrase_table(rows[1:])])
    assert table.schema == PARAPHRASES
    assert table["text"].to_pylist() == ["A. 2 0", "A. 2 1", "A. 10 0", "B. 1 0"]
    assert table.to_pylist()[0] == {
        "hypothesis": "A.", "text": "A. 2 0", "raw_text": "'A. 2 0'", "round": 2, "rank": 0,
        "temperature": 0.5, "score": -1.0, "entailed": 0.75, "entailing": None, "reason": "kept",
    }  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_kept_texts_of_each_hypothesis(size: int) -> None:
    """Against a loop, wherever row groups are cut."""
    names = [f"{letter}." for letter in "ABCD"]
    rows = [tried(name, number, rank, "kept" if (ord(name[0]) + number + rank) % 3 else "surplus")
            for name in names for number in (1, 2) for rank in (0, 1)]  # fmt: skip
    rows = [row for row in rows if row.hypothesis != "C." or row.reason != "kept"]
    table = paraphrase_table(rows)
    tables = [table.slice(i, size) for i in range(0, len(table), size)]
    expected: dict[str, list[str]] = {}
    for row in table.to_pylist():
        if row["reason"] == "kept":
            expected.setdefault(row["hypothesis"], []).append(row["text"])
    assert "C." not in expected
    assert {h: texts.to_pylist() for h, texts in kept_texts(tables).items()} == expected


def test_answers() -> None:
    """Probabilities by label and the most probable one, the first at a tie."""
    table = answer_table(["a", "b", "c"], np.array([[0.2, 0.3, 0.5], [0.4, 0.4, 0.2], [0, 1, 0]]))
    assert table.to_pylist() == [
        {"seed_id": "a", "entailment": 0.2, "neutral": 0.3, "contradiction": 0.5,
         "prediction": "contradiction"},
        {"seed_id": "b", "entailment": 0.4, "neutral": 0.4, "contradiction": 0.2,
         "prediction": "entailment"},
        {"seed_id": "c", "entailment": 0.0, "neutral": 1.0, "contradiction": 0.0,
         "prediction": "neutral"},
    ]  # fmt: skip
    assert table["prediction"].type == pa.string()


def test_exclusions_name_no_word() -> None:
    """The problem as a whole has no variants."""
    made = excluded(seed("a", "H."), "no_paraphrase", paraphrases=0)
    assert (made.seed_id, made.source, made.word, made.word_class) == ("snli:a", "snli", None, None)
    assert (made.reason, made.replacements) == ("no_paraphrase", 0)
