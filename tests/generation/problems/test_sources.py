"""Problems from files and from the Hub: columns, labels, ids and errors (D15)."""

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.config import Config
from generation.problems.sources import ProblemReader, UniqueIds
from generation.records import Seed

Row = Mapping[str, Any]

SNLI = {
    "annotator_labels": ["neutral", "entailment", "neutral", "neutral", "neutral"],
    "captionID": "3416050480.jpg#4",
    "gold_label": "neutral",
    "pairID": "3416050480.jpg#4r1n",
    "sentence1": "A person on a horse jumps over a broken down airplane.",
    "sentence1_binary_parse": "( ( ( A person ) ( on ( a horse ) ) ) )",
    "sentence1_parse": "(ROOT (S (NP (NP (DT A) (NN person)))))",
    "sentence2": "A person is training his horse for a competition.",
    "sentence2_binary_parse": "( ( A person ) )",
    "sentence2_parse": "(ROOT (S))",
}
"""A row of snli_1.0_test.jsonl, with shortened parses."""

MNLI = {
    "annotator_labels": ["contradiction", "contradiction", "neutral"],
    "genre": "slate",
    "gold_label": "contradiction",
    "pairID": "91383c",
    "promptID": "91383",
    "sentence1": "This site includes a list of all award winners.",
    "sentence1_binary_parse": "( )",
    "sentence2": "The site has no list.",
}
"""A row of multinli_1.0_dev_matched.jsonl."""

PLAIN = {"pairID": "1", "sentence1": "A boy runs.", "sentence2": "The boy runs.",
         "gold_label": "entailment"}  # fmt: skip


def jsonl(path: Path, rows: Iterable[Row | str]) -> str:
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def written(path: Path, rows: Sequence[Row]) -> str:
    """Write rows in the format of the suffix; only .csv is quoted; return the path as text."""
    if path.suffix == ".jsonl":
        return jsonl(path, rows)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([*rows]), path)
        return str(path)
    cells = [[*rows[0]], *([*row.values()] for row in rows)]
    encoding = "utf-8-sig" if path.suffix == ".csv" else "utf-8"  # as in Excel's files
    with path.open("w", encoding=encoding, newline="") as file:
        if path.suffix == ".csv":
            csv.writer(file).writerows(cells)
        else:
            file.writelines("\t".join(row) + "\n" for row in cells)
    return str(path)


@dataclass(frozen=True, slots=True)
class Loaded:
    seeds: list[Seed]
    unlabelled: list[str]
    description: str
    sha256: str


def loaded(config: Config) -> Loaded:
    seeds: list[Seed] = []
    read = ProblemReader(config).read(seeds.append)
    counts, data = read["problems"], read["source_data"]
    assert counts["kept"] == len(seeds)
    return Loaded(seeds, counts["unlabelled"], data["description"], data["sha256"])


def load(data: str, **settings: Any) -> Loaded:
    return loaded(Config(data=data, **{"source": "snli", **settings}))


TEXTS = {"premise": "p", "hypothesis": "h"}
SNLI_TXT = {
    "gold_label": "neutral", "sentence1_parse": "(ROOT)", "sentence1": 'A "boy" runs.',
    "sentence2": "Boys' day", "captionID": "c", "pairID": "7", "label1": "neutral",
    "label2": "entailment", "label3": "contradiction", "label4": "", "label5": "",
}  # fmt: skip
SICK = {
    "pair_ID": "14", "sentence_A": "A boy", "sentence_B": "Boys", "entailment_label": "ENTAILMENT",
    "relatedness_score": "4.5",
}  # fmt: skip
VOTES = {**PLAIN, "annotator_labels": ["entailment", "-", "neutral"]}
MINE = {**PLAIN, "tekst": "P!", "hyp": "H!", "oordeel": "n", "nr": 5}

FILES: dict[str, tuple[str, list[Row], dict[str, Any], list[tuple[str, ...]]]] = {
    "SNLI in its official columns": (
        "snli_1.0_test.jsonl", [SNLI], {},
        [("snli:3416050480.jpg#4r1n", SNLI["sentence1"], SNLI["sentence2"], "neutral",
          *SNLI["annotator_labels"])],
    ),
    "MultiNLI's pairID is the id, not the promptID": (
        "d.jsonl", [MNLI], {"source": "mnli-m"},
        [("mnli-m:91383c", MNLI["sentence1"], MNLI["sentence2"], "contradiction",
          *MNLI["annotator_labels"])],
    ),
    "ANLI's context is the premise, and its uid the id": (
        "test.jsonl",
        [{"uid": "8a91-e1", "context": "Ernest Jones is a jeweller.", "hypothesis": "He is old.",
          "label": label, "model_label": "n"} for label in "ec"], {"source": "anli-r1"},
        [("anli-r1:8a91-e1", "Ernest Jones is a jeweller.", "He is old.", "entailment"),
         ("anli-r1:8a91-e1~2", "Ernest Jones is a jeweller.", "He is old.", "contradiction")],
    ),
    "SNLI's text release has votes in five columns": (
        "d.txt", [SNLI_TXT], {},
        [("snli:7", 'A "boy" runs.', "Boys' day", "neutral", "neutral", "entailment",
          "contradiction")],
    ),
    "a lone quotation mark in a .tsv is one": (
        "d.tsv", [{**TEXTS, "premise": '"He said', "label": "n"}, {**TEXTS, "label": "e"}], {},
        [("snli:0", '"He said', "h", "neutral"), ("snli:1", "p", "h", "entailment")],
    ),
    "a cell of a .csv may hold anything, after a byte-order mark": (
        "d.csv",
        [{"premise": 'One, two "three"', "hypothesis": "a\nb", "label": "2"},
         {**TEXTS, "label": "0"}], {},
        [("snli:0", 'One, two "three"', "a\nb", "contradiction"),
         ("snli:1", "p", "h", "entailment")],
    ),
    "Parquet as the Hub has it: no label is -1 or null": (
        "d.parquet", [{**TEXTS, "label": n, "idx": 10 + i} for i, n in enumerate([0, 1, 2, -1,
                                                                                  None])],
        {"source": "mnli-mm"},
        [("mnli-mm:10", "p", "h", "entailment"), ("mnli-mm:11", "p", "h", "neutral"),
         ("mnli-mm:12", "p", "h", "contradiction"), ("mnli-mm:13",), ("mnli-mm:14",)],
    ),
    "votes in a list column": (
        "d.parquet", [VOTES], {},
        [("snli:1", "A boy runs.", "The boy runs.", "entailment", "entailment", "neutral")],
    ),
    "votes in numbers": (
        "d.jsonl", [{**PLAIN, "annotator_labels": [0, 1, 2, 0, -1]}], {},
        [("snli:1", "A boy runs.", "The boy runs.", "entailment", "entailment", "neutral",
          "contradiction", "entailment")],
    ),
    "votes in one string": (
        "d.jsonl", [{**PLAIN, "annotator_labels": "neutral entailment"}], {},
        [("snli:1", "A boy runs.", "The boy runs.", "entailment", "neutral", "entailment")],
    ),
    "RTE keeps its two classes": (
        "dev.tsv", [{"index": str(n), "sentence1": "p", "sentence2": "h", "label": label}
                    for n, label in enumerate(["not_entailment", "entailment"])],
        {"source": "rte", "labels": ("entailment", "not_entailment")},
        [("rte:0", "p", "h", "not_entailment"), ("rte:1", "p", "h", "entailment")],
    ),
    "SICK's own columns, and labels in any case": (
        "SICK.txt", [SICK, {**SICK, "pair_ID": "6", "entailment_label": "NEUTRAL"},
                     {**SICK, "pair_ID": "9", "entailment_label": "CONTRADICTION"}],
        {"source": "sick"},
        [("sick:14", "A boy", "Boys", "entailment"), ("sick:6", "A boy", "Boys", "neutral"),
         ("sick:9", "A boy", "Boys", "contradiction")],
    ),
    "columns that are named go before the usual ones": (
        "d.jsonl", [MINE],
        {"source": "nl", "premise_column": "tekst", "hypothesis_column": "hyp",
         "label_column": "oordeel", "id_column": "nr"},
        [("nl:5", "P!", "H!", "neutral")],
    ),
    "a map goes before the usual spellings, and may say that there is no label": (
        "d.jsonl", [{**TEXTS, "pairID": n, "label": n} for n in (0, 1, 2)],
        {"label_map": {"0": "contradiction", "1": "entailment", "2": ""}},
        [("snli:0", "p", "h", "contradiction"), ("snli:1", "p", "h", "entailment"), ("snli:2",)],
    ),
    "without a column of ids rows are numbered, dropped ones too": (
        "d.jsonl", [{**TEXTS, "label": label} for label in ("e", "-", "c")], {},
        [("snli:0", "p", "h", "entailment"), ("snli:2", "p", "h", "contradiction"), ("snli:1",)],
    ),
    "an empty id is the row's number, which meets no number that is an id": (
        "d.jsonl", [{**TEXTS, "label": "e", "pairID": i} for i in (None, "a", "", "3", "3")], {},
        [(f"snli:{i}", "p", "h", "entailment") for i in ("0", "a", "2", "3", "3~2")],
    ),
    "a row without a label counts for the numbering, and may lack its text": (
        "d.jsonl", [{**TEXTS, "pairID": "x", "label": "-", "hypothesis": None},
                    {**TEXTS, "pairID": "x", "label": "e"}], {},
        [("snli:x~2", "p", "h", "entailment"), ("snli:x",)],
    ),
}  # fmt: skip
"""Case → file, rows, settings, problems (id, texts, label, votes); only an id: no problems."""


@pytest.mark.parametrize("case", FILES)
def test_columns_labels_and_ids(tmp_path: Path, case: str) -> None:
    name, rows, settings, expected = FILES[case]
    problems = load(written(tmp_path / name, rows), **settings)
    assert problems.description == name
    assert {s.source for s in problems.seeds} <= {settings.get("source", "snli")}
    result = [(s.seed_id, *s.texts, s.label, *s.annotator_labels) for s in problems.seeds]
    assert result + [(name,) for name in problems.unlabelled] == expected


@pytest.mark.parametrize("spelling", ["-", "-1", -1, "", "  ", None, "hidden", "None"])
def test_unlabelled_rows_are_left_out_and_listed(tmp_path: Path, spelling: object) -> None:
    rows = [{**PLAIN, "pairID": "a", "gold_label": spelling}, PLAIN]
    problems = load(jsonl(tmp_path / "d.jsonl", rows))
    assert problems.unlabelled == ["snli:a"]
    assert [s.seed_id for s in problems.seeds] == ["snli:1"]


@given(st.lists(st.sampled_from(["x", "y", "x~2", "x~3", "x~2~2", "y~2"]), max_size=12))
def test_repeated_ids_get_a_number(names: list[str]) -> None:
    """The second x is x~2, or has the next free number if that is taken."""
    expected: list[str] = []
    for name in names:
        numbered = (f"{name}~{number}" for number in range(2, 99))
        expected.append(next(new for new in (name, *numbered) if new not in expected))
    assert list(map(UniqueIds(), names)) == expected


def test_an_id_of_another_problems_variant_is_found() -> None:
    unique = UniqueIds()
    for n, name in enumerate(["x", "x/noun/a", "é#?/noun/a"]):
        unique(name, f"row {n}")
    assert unique.of_variant() == ("x/noun/a", "x", "row 1")
    assert unique.of_variant(["x"]) is None


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 9])
def test_limit_takes_the_first_labelled_ones_with_the_same_ids(tmp_path: Path, limit: int) -> None:
    names = ["x", "-", "x", "y", "x"]
    rows = [{**PLAIN, "pairID": n, "gold_label": "-" if n == "-" else "n"} for n in names]
    path = jsonl(tmp_path / "d.jsonl", rows)
    everything = ["snli:x", "snli:x~2", "snli:y", "snli:x~3"]
    assert [s.seed_id for s in load(path).seeds] == everything
    path = jsonl(tmp_path / "d.jsonl", [*rows, *["{"] * (limit < 5)])  # reading stops before it
    assert [s.seed_id for s in load(path, limit=min(limit, 4)).seeds] == everything[:limit]


def test_sha256_tells_other_problems_apart(tmp_path: Path) -> None:
    one = load(jsonl(tmp_path / "a.jsonl", [PLAIN, {**PLAIN, "pairID": "2"}]))
    same = load(jsonl(tmp_path / "b.jsonl", [PLAIN, "", {**PLAIN, "pairID": "2"}]))
    fewer = load(jsonl(tmp_path / "a.jsonl", [PLAIN]))
    other = load(jsonl(tmp_path / "c.jsonl", [{**PLAIN, "sentence2": "The boy runs!"}]))
    assert one.sha256 == same.sha256
    assert len({one.sha256, fewer.sha256, other.sha256}) == 3


def test_malformed_rows_are_reported_together(tmp_path: Path) -> None:
    rows: list[Row | str] = [
        PLAIN,
        {**PLAIN, "gold_label": "maybe"},
        "",
        {**PLAIN, "sentence1": "  "},
        {**PLAIN, "sentence2": 7},
        *[{**PLAIN, "annotator_labels": ["neutral", "perhaps"]}] * 9,
    ]
    with pytest.raises(ValueError, match=r"^12 rows cannot be used:") as caught:
        load(jsonl(tmp_path / "bad.jsonl", rows))
    lines = str(caught.value).splitlines()
    got = ("2: .* got 'maybe'", "4: .* 'sentence1', got '  '", "5: .* got 7", "6: .* got 'perhaps'")
    for line, told in zip(lines[1:], got, strict=False):
        assert re.match(f" *bad.jsonl:{told}", line), line
    assert len(lines) == 13
    assert lines[-2].strip() == "… and 2 more"
    assert "`skip_bad_rows`" in lines[-1]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("e.jsonl", "\n\n", "^e.jsonl: expected problems, found no rows$"),
        ("e.csv", "premise,hypothesis,label\n", "^e.csv: expected problems, found no rows$"),
        ("h.jsonl", json.dumps({**PLAIN, "gold_label": "hidden"}),
         r"^h.jsonl: expected labelled problems, found none; 1 without"),
    ],
)  # fmt: skip
def test_files_without_problems(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load(str(tmp_path / name))


CLASSES = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])


def hub_table(labels: Sequence[Any], feature: Any = CLASSES, **more: Any) -> datasets.Dataset:
    n = len(labels)
    columns = {"premise": [f"P{i}" for i in range(n)], "hypothesis": [f"H{i}" for i in range(n)]}
    text = datasets.Value("string")
    named = {"premise": text, "hypothesis": text, "label": feature, **dict.fromkeys(more, text)}
    features = datasets.Features(named)
    return datasets.Dataset.from_dict({**columns, "label": labels, **more}, features=features)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A Hub that answers with `table` and records queries under `asked`."""
    box: dict[str, Any] = {}

    def load_dataset(name: str, subset: str | None, *, split: str, revision: str | None) -> Any:
        box["asked"] = (name, subset, split, revision)
        if isinstance(box["table"], Exception):
            raise box["table"]
        return box["table"]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return box


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("snli", ("stanfordnlp/snli", None, "test", None)),
        ("mnli-m", ("nyu-mll/multi_nli", None, "validation_matched", None)),
        ("mnli-mm", ("nyu-mll/multi_nli", None, "validation_mismatched", None)),
        ("anli-r1", ("facebook/anli", None, "test_r1", None)),
        ("anli-r2", ("facebook/anli", None, "test_r2", None)),
        ("anli-r3", ("facebook/anli", None, "test_r3", None)),
    ],
)
def test_the_papers_sources_have_their_hub_datasets(
    hub: dict[str, Any], source: str, asked: tuple[str, ...]
) -> None:
    hub["table"] = hub_table([2, -1, 0, 1, None])
    problems = loaded(Config(source=source))
    assert hub["asked"] == asked
    assert [(s.seed_id, s.premise, s.label) for s in problems.seeds] == [
        (f"{source}:0", "P0", "contradiction"),
        (f"{source}:2", "P2", "entailment"),
        (f"{source}:3", "P3", "neutral"),
    ]
    assert problems.unlabelled == [f"{source}:1", f"{source}:4"]
    assert problems.description == f"{asked[0]} [{asked[2]}]"


def test_a_hub_dataset_of_ones_own(hub: dict[str, Any]) -> None:
    rte = datasets.ClassLabel(names=["entailment", "not_entailment"])
    hub["table"] = hub_table([1, 0], rte, pairID=["b", "b"])
    settings = {"dataset": "nyu-mll/glue", "dataset_config": "rte", "split": "validation"}
    label_map = {"not_entailment": "neutral"}
    problems = loaded(Config(source="rte", revision="abc", label_map=label_map, **settings))
    assert hub["asked"] == ("nyu-mll/glue", "rte", "validation", "abc")
    assert problems.description == "nyu-mll/glue@abc [rte/validation]"
    result = [(s.seed_id, s.label) for s in problems.seeds]
    assert result == [("rte:b", "neutral"), ("rte:b~2", "entailment")]
    hub["table"] = hub_table([0, 1, 2], datasets.ClassLabel(names=["c", "E", "neutral"]))
    assert [s.label for s in loaded(Config()).seeds] == ["contradiction", "entailment", "neutral"]
    hub["table"] = ConnectionError("no route to host")
    with pytest.raises(
        ValueError,
        match=r"split 'test' of 'stanfordnlp/snli' .*\(no route to host\).*official file",
    ) as caught:
        loaded(Config())
    assert isinstance(caught.value.__cause__, ConnectionError)


def test_data_of_two_classes_are_found(
    hub: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Names are unknown; numbers would be read as two of NLI's labels."""
    hub["table"] = hub_table(
        [0, 1] * 10, datasets.ClassLabel(names=["entailment", "not_entailment"])
    )
    with pytest.raises(ValueError, match="got 'not_entailment'") as caught:
        loaded(Config(source="rte", dataset="a/rte"))
    assert "data of two classes keep them with `labels`" in str(caught.value)
    hub["table"] = hub_table([0, 1] * 10, datasets.ClassLabel(names=["maybe", "not_entailment"]))
    with pytest.raises(ValueError, match="got 'maybe'") as caught:
        loaded(Config(source="rte", dataset="a/rte"))
    assert str(caught.value).count("`label_map` says") == 1
    caplog.set_level("WARNING")
    hub["table"] = hub_table([0, 1] * 10)
    loaded(Config(source="hans", dataset="a/hans"))
    (told,) = caplog.messages
    assert "of 20 problems none is labelled contradiction; data of two classes keep them" in told
    hub["table"] = hub_table([0, 1, 2] * 10)
    loaded(Config(source="hans", dataset="a/hans"))
    assert len(caplog.messages) == 1
