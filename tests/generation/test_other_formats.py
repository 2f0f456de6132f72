import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.dataset_files import write_plain
from helpers.reference import Expected, reference
from helpers.tiny_models import tiny_model

from generation import build, suggest
from generation.config import Config
from generation.problems.on_disk import read_block
from generation.problems.sources import ProblemReader
from generation.records import Seed
from merge_dataset.schema import ProblemFormat, format_of

READING = ProblemFormat(("context", "question", "answer"), ("wrong", "right"))


ROWS = [
    {"id": 1, "passage": "A girl and her dog play near the small house.",
     "question": "Where does the dog play?", "answer": "The dog plays near the house.",
     "verdict": "TRUE"},
    {"id": 2, "passage": "A girl and her dog play near the small house.",
     "question": "Where does the dog play?", "answer": "In the red car.", "verdict": "no"},
    {"id": 3, "passage": "The man reads a good book. The book is red.",
     "question": "Is the book of the man good?", "answer": "The man sleeps.", "verdict": "no"},
    {"id": 4, "passage": "It rains.", "question": "Does it?", "answer": "Yes.", "verdict": "-"},
]  # fmt: skip
LABEL_MAP = {"TRUE": "right", "no": "wrong"}


def config_of(tmp_path: Path, **changes: Any) -> Config:
    values = {
        "source": "reading",
        "data": str(write_plain(tmp_path / "reading.jsonl", ROWS)),
        "fields": READING.fields,
        "labels": READING.labels,
        "shared_fields": ("question", "context"),
        "field_columns": {"context": "passage"},
        "label_column": "verdict",
        "label_map": LABEL_MAP,
        "min_replacements": 1,
        "subsamples": 1,
        "suggestions_per_occurrence": 60,
        "device": "cpu",
        "run": str(tmp_path / "run"),
    }
    return Config(**{**values, **changes})


@pytest.mark.slow
def test_three_texts_against_the_reference(tmp_path: Path) -> None:
    models = {kind: tiny_model(kind) for kind in ("bert-uncased", "roberta")}
    run = suggest(config_of(tmp_path, mlms=tuple(map(str, models.values()))))
    build(run.path)
    seeds = [
        Seed(
            seed_id=f"reading:{row['id']}",
            source="reading",
            texts=(row["passage"], row["question"], row["answer"]),
            label=LABEL_MAP[row["verdict"]],
        )
        for row in ROWS[:3]
    ]
    assert read_block(run.problems, 0) == seeds
    expected = reference(seeds, models, k=60, sharing=(0, 1))
    result = {
        (row["seed_id"], row["word"], row["word_class"], row["replacement"]): Expected(
            tuple(tuple(row[name]) for name in READING.mlms),
            pytest.approx(row["log_odds"], abs=1e-3),
        )
        for row in pq.read_table(run.replacements).to_pylist()
    }
    assert result == expected
    assert len(expected) > 10
    answered = [value.mlms[2] for value in expected.values()]
    assert any(answered)
    assert not all(answered)
    manifest = json.loads(run.manifest.read_text())
    assert manifest["config"]["fields"] == list(READING.fields)
    assert manifest["problems"] == {"read": 4, "unlabelled": 1, "kept": 3}
    variants = pq.read_table(run.variants)
    assert format_of(variants.schema) == READING
    for row in variants.to_pylist():
        whole = " ".join(row[name] for name in READING.fields)
        assert row["original"] not in whole.replace(".", "").replace("?", "").split()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fields": ("a", "B")}, "fields: expected lower-case .*, got 'B'"),
        ({"fields": ("a", "a")}, "fields: expected names that differ .*, got 'a', 'a'"),
        ({"fields": ("a", "mlm_count")}, "from the dataset's columns, got 'mlm_count', 'mlm_c"),
        ({"labels": ("one",)}, r"labels: expected two or more different ones, got 'one'"),
        ({"shared_fields": ("premise", "h")}, "shared_fields: expected one of .*, got 'h'"),
        ({"field_columns": {"hypotheses": "x"}}, "field_columns: .*did you mean 'hypothesis'"),
        ({"fields": ("a", "b"), "premise_column": "x"},
         "premise_column, hypothesis_column: expected field_columns"),
        ({"labels": ("a", "b"), "label_map": {"x": "c"}}, "label_map: expected one of"),
    ],
)  # fmt: skip
def test_what_a_format_can_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(**changes)


def load(tmp_path: Path, rows: Sequence[dict[str, Any]], **changes: Any) -> list[Seed]:
    seeds: list[Seed] = []
    data = write_plain(tmp_path / "rows.jsonl", rows)
    config = config_of(tmp_path, data=str(data), **changes)
    ProblemReader(config).read(seeds.append)
    return seeds


PAIR: dict[str, Any] = {"fields": ("first", "second"), "shared_fields": (), "field_columns": None,
                        "label_column": None, "label_map": {}}  # fmt: skip


def pair(label: Any) -> dict[str, Any]:
    return {"first": "A dog.", "second": "The dog.", "label": label, "annotator_labels": ["same"]}


def test_labels_go_by_their_names(tmp_path: Path) -> None:
    options = PAIR | {"labels": ("same", "True")}
    rows = [pair(label) for label in ("same", "SAME", " same ", True, None, "-", "")]
    seeds = load(tmp_path, rows, **options)
    assert [seed.label for seed in seeds] == ["same", "same", "same", "True"]
    assert (seeds[0].texts, seeds[0].annotator_labels) == (("A dog.", "The dog."), ("same",))


def test_labels_that_are_not_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="labels: expected those of problems with the fields"):
        load(tmp_path, [pair("b")], **PAIR | {"labels": ()})


def test_columns_of_fields(tmp_path: Path) -> None:
    row = {"sentence1": "A dog.", "premise": "A dog.", "label": "same"}
    options: dict[str, Any] = PAIR | {"labels": ("same", "other")}
    with pytest.raises(ValueError, match=r"for the second a column second, found .*field_columns"):
        load(tmp_path, [row | {"first": "x"}], **options)
    with pytest.raises(ValueError, match="for the first a column nowhere"):
        load(tmp_path, [pair("same")], **options | {"field_columns": {"first": "nowhere"}})
    with pytest.raises(ValueError, match="expected text in column 'second', got ''"):
        load(tmp_path, [pair("same") | {"second": ""}], **options)
