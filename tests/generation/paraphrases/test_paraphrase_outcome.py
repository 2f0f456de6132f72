import pytest
from helpers.paraphrase_run import paraphrased_row, problem_row

from generation.paraphrases.rounds import Tried, kept_texts, paraphrase_table, variant_rows
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


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_kept_texts_of_each_hypothesis(size: int) -> None:
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
