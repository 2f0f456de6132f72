import gzip
import json
import random
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from helpers.commands import refused
from helpers.dataset_files import write_plain

from generation.config import Config, bundled_path
from generation.problems.sources import PAIR_IDS, ProblemReader, problem_digest
from generation.records import Seed
from merge_dataset.schema import LABELS

ROWS = [
    {"premise": "A café opens, at last.", "hypothesis": 'It is "open".', "label": "entailment"},
    {"premise": "A dog runs.", "hypothesis": "The dog;cat\tsleeps.", "label": "neutral"},
]
JSON_LINES = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in ROWS)
FIRST, SECOND = map(json.dumps, ROWS)
CSV = (
    'premise,hypothesis,label\n"A café opens, at last.","It is ""open"".",entailment\n'
    "A dog runs.,The dog;cat\tsleeps.,neutral\n"
)
SEMICOLONS = (
    'premise;hypothesis;label\nA café opens, at last.;"It is ""open"".";entailment\n'
    'A dog runs.;"The dog;cat\tsleeps.";neutral\n'
)
TABS = SEMICOLONS.replace(";", "\t").replace("dog\tcat", "dog;cat")
CLASSES = ["neutral", "contradiction", "entailment"]
"""Names of classes in another order than ours."""


def table() -> datasets.Dataset:
    """The rows as a table of `datasets`: labels are numbers, with names in the features."""
    text = datasets.Value("string")
    features = datasets.Features(
        premise=text, hypothesis=text, label=datasets.ClassLabel(names=CLASSES)
    )
    rows = [{**row, "label": CLASSES.index(row["label"])} for row in ROWS]
    return datasets.Dataset.from_list(rows, features=features)


def write_arrow(path: Path, opened: Callable[..., Any]) -> None:
    stored = table().data.table
    with opened(path, stored.schema) as writer:
        writer.write_table(stored)


KINDS: dict[str, Callable[[Path], object]] = {
    "a.jsonl": lambda path: path.write_text(JSON_LINES),
    "mark.jsonl": lambda path: path.write_text(JSON_LINES, encoding="utf-8-sig"),
    "a.jsonl.gz": lambda path: path.write_bytes(gzip.compress(JSON_LINES.encode())),
    "array.json": lambda path: path.write_text(json.dumps(ROWS, indent=1), encoding="utf-8-sig"),
    "array.jsonl": lambda path: path.write_text(f"\n {json.dumps(ROWS)}\n"),
    "a.csv": lambda path: path.write_text(CSV),
    "A.CSV.GZ": lambda path: path.write_bytes(gzip.compress(CSV.encode())),
    "semicolons.csv": lambda path: path.write_text(SEMICOLONS),
    "semicolons.txt": lambda path: path.write_text(SEMICOLONS),
    "tabs.csv": lambda path: path.write_text(TABS),
    "a.parquet": lambda path: table().to_parquet(path),
    "stream.arrow": lambda path: write_arrow(path, pa.ipc.new_stream),
    "file.arrow": lambda path: write_arrow(path, pa.ipc.new_file),
    "saved": lambda path: table().save_to_disk(path),
    "splits": lambda path: datasets.DatasetDict(
        {"train": table().select([0]), "test": table()}
    ).save_to_disk(path),
    "folder": lambda path: (path.mkdir(), table().to_parquet(path / "test.parquet")),
    **{
        f"{suffix} folder": lambda path, suffix=suffix, text=text: (
            path.mkdir(), (path / f"test.{suffix}").write_text(text)
        )
        for suffix, text in (("csv", CSV), ("txt", SEMICOLONS), ("jsonl", JSON_LINES))
    },
}  # fmt: skip


def load(path: Path, **settings: Any) -> list[Seed]:
    seeds: list[Seed] = []
    config = Config(**{"source": "mine", "data": str(path), **settings})
    ProblemReader(config).read(seeds.append)
    return seeds


@pytest.mark.parametrize("name", KINDS)
def test_the_same_problems_whatever_they_lie_in(name: str, tmp_path: Path) -> None:
    KINDS[name](tmp_path / name)
    expected = [("mine:0", *ROWS[0].values()), ("mine:1", *ROWS[1].values())]
    if name == "tabs.csv":
        expected[1] = ("mine:1", "A dog runs.", "The dog;cat\tsleeps.", "neutral")
    for settings in ({}, {"data": None, "dataset": str(tmp_path / name)}):
        seeds = load(tmp_path / name, **settings)
        assert [(s.seed_id, *s.texts, s.label) for s in seeds] == expected


CARD = """---
configs:
- config_name: few
  data_files: [{split: test, path: x/*.csv}, {split: dev, path: y.csv}]
- {config_name: tabs, data_files: y.csv, sep: "\\t"}
- {config_name: odd, data_files: y.csv, names: [a, b]}
dataset_info:
- config_name: few
  features:
  - name: label
    dtype: {class_label: {names: {"0": contradiction, "1": entailment}}}
---
"""


def test_the_files_that_the_readme_of_a_folder_names(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "README.md").write_text(CARD)
    (tmp_path / "x/1.csv").write_text("premise,hypothesis,label\na,b,0\na,c,1.0\n")
    (tmp_path / "x/2.csv").write_text("premise,hypothesis,label\na,d,-1\na,e,neutral\n")
    (tmp_path / "y.csv").write_text("premise\thypothesis\tlabel\na\tf\t0\n")
    for settings, expected in (
        ({"dataset_config": "few"}, "b contradiction, c entailment, e neutral"),
        ({"dataset_config": "few", "split": "dev"}, "f contradiction"),
        ({"dataset_config": "tabs", "split": "train"}, "f entailment"),
    ):
        seeds = load(tmp_path, **settings)
        assert ", ".join(f"{s.texts[1]} {s.label}" for s in seeds) == expected
    for settings, message in (
        ({"dataset_config": "no"}, r"'no' not found. Available: \['few', 'tabs', 'odd'\]"),
        ({"dataset_config": "few", "split": "no"}, r"test.*dev"),
        (
            {"dataset_config": "odd", "split": "train"},
            r"got `names`: \['a', 'b'\], which is not fo",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            load(tmp_path, **settings)


def test_votes_go_by_the_names_of_their_classes(tmp_path: Path) -> None:
    text, label = datasets.Value("string"), datasets.ClassLabel(names=CLASSES)
    features = datasets.Features(
        premise=text, hypothesis=text, label=label, annotator_labels=datasets.List(label)
    )
    row = {"premise": "a", "hypothesis": "b", "label": -1, "annotator_labels": [0]}
    rows = [row, {**row, "label": 0, "annotator_labels": [2, -1, 0]}]
    datasets.Dataset.from_list(rows, features=features).to_parquet(tmp_path / "a.parquet")
    (seed,) = load(tmp_path / "a.parquet")
    assert (seed.seed_id, seed.label) == ("mine:1", "neutral")
    assert seed.annotator_labels == ("entailment", "neutral")


def test_a_class_without_a_name_is_no_label(tmp_path: Path) -> None:
    """The class's number must not be taken for one of our labels."""
    stored = table().data.table
    column = pa.array([2, 3], pa.int64())
    number = stored.schema.get_field_index("label")
    wrong = stored.set_column(number, stored.schema.field("label"), column)
    pq.write_table(wrong, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet: row 2: expected a label .* 'class 3 of 3'"):
        load(tmp_path / "a.parquet")


def suggest(folder: Path, name: str, *options: str) -> str:
    words = ("suggest", "--recipe", "demo", "--source", "mine", "--run", folder / "run")
    return refused(*words, "--data", folder / name, *options)


WRONG: dict[str, tuple[str | bytes, str]] = {
    "twice.csv": ("premise,label,label\n", "twice.csv:1: expected each column once, got 'label'"),
    "cut.jsonl.gz": (
        gzip.compress(JSON_LINES.encode() * 999)[:-20],
        ": expected a whole .jsonl file, got one that is damaged, cut off or in another format",
    ),
    "comma.json": (
        f"[{FIRST}\n {SECOND}]",
        "comma.json:2: expected an array of JSON objects, got ",
    ),
    "half.jsonl": (
        JSON_LINES + '{"premise": "a \\ud83d b", "hypothesis": "b", "label": "e"}\n',
        "half.jsonl:3: expected text in column 'premise', got half of a character, \\ud83d, after",
    ),
    "far.jsonl": (
        JSON_LINES + json.dumps({**ROWS[0], "hypothesis": "x " * 50_001}),
        "far.jsonl:3: expected text in column 'hypothesis', got 100,002 characters, more than "
        "100,000; shorten it",
    ),
}
"""File name → content and message."""


@pytest.mark.slow
def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for name, (content, message) in WRONG.items():
        raw = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(raw)
        text = suggest(tmp_path, name)
        assert message in text, name
        assert (text.startswith("error: "), text.count("\n")) == (True, 1), text
        assert not (tmp_path / "run" / "problems.parquet").exists(), name


def test_options_that_do_not_fit_the_data(tmp_path: Path) -> None:
    for name in ("a.csv", "saved", "splits"):
        KINDS[name](tmp_path / name)
    for name, options, message in (
        ("a.csv", "--split dev", "--split: expected it with a data set, got"),
        ("a.csv", "--revision main", "--revision: expected it with a data set, got"),
        ("a.csv", "--dataset-config x", "--dataset-config: expected it with a data set, got"),
        (
            "a.csv",
            "--dataset x",
            "--data: expected a file or folder, or a data set as --dataset",
        ),
        ("saved", "--split dev", "--split: expected one of None, got 'dev'"),
        ("splits", "--split dev", "--split: expected one of train, test, got 'dev'"),
        ("saved", "--revision main", "--revision: expected it with a data set, got"),
    ):
        assert message in suggest(tmp_path, name, *options.split())


def test_rows_that_are_skipped_are_counted_and_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [
        '{"label": 0, "label": 1}',
        '{"premise": ' * 100_000,
        '{"n": ' + "1" * 5_000 + "}",
        "\udce9",
        json.dumps({**ROWS[0], "label": "maybe"}),
    ]
    first, second = JSON_LINES.splitlines()
    text = "\n".join([bad[0], first, *bad[1:], second])
    (tmp_path / "bad.jsonl").write_text(text, errors="surrogateescape")
    (tmp_path / "late.jsonl").write_text("{\n" * 12 + first)
    assert [s.seed_id for s in load(tmp_path / "late.jsonl", skip_bad_rows=True)] == ["mine:12"]
    caplog.clear()
    seeds: list[Seed] = []
    path = tmp_path / "bad.jsonl"
    problems = ProblemReader(Config(source="mine", data=str(path), skip_bad_rows=True))
    counts = problems.read(seeds.append, tmp_path / "skipped.json")["problems"]
    assert [seed.seed_id for seed in seeds] == ["mine:1", "mine:6"]
    assert counts == {"read": 7, "unlabelled": [], "skipped": 5, "kept": 2}
    assert [(row["seed_id"], row["row"]) for row in problems.skipped] == [
        ("mine:0", "bad.jsonl:1"),
        *((f"mine:{n}", f"bad.jsonl:{n + 1}") for n in (2, 3, 4, 5)),
    ]
    message, of_file = caplog.messages
    assert of_file.endswith("skipped.json")
    assert message.startswith(
        "bad.jsonl: rows that cannot be used and are left out: 5\n  bad.jsonl:1: expected each key"
    )
    assert "bad.jsonl:5: expected UTF-8, got the byte 0xe9 at the beginning" in message
    listed = json.loads((tmp_path / "skipped.json").read_text())
    problem = "expected each key once, got 'label' twice"
    assert listed[0] == {"seed_id": "mine:0", "row": "bad.jsonl:1", "problem": problem}
    assert len(listed) == 5


FILES = {"test": ("snli_test.jsonl", 9824), "validation": ("snli_dev.jsonl", 9842)}

KNOWN = ("This church choir sings to the masses as they sing joyous songs from the book at a "
         "church.", "The church is filled with song.", "entailment")  # fmt: skip
"""A problem of SNLI's test set: 2677109430.jpg#1r1e."""


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").strip().split("\n")]


def pair_ids(files: Iterable[Path]) -> bytes:
    """Write pairID and digest of each labelled problem, sorted by pairID for compression."""
    lines_of = (file.read_text(encoding="utf-8").strip().split("\n") for file in files)
    rows = map(json.loads, chain.from_iterable(lines_of))
    lines = sorted(
        f"{row['pairID']}\t{problem_digest([row['sentence1'], row['sentence2']], label)}\n"
        for row in rows
        if (label := row["gold_label"]) in LABELS
    )
    return gzip.compress("".join(lines).encode(), mtime=0)


def hub_copy(rows: list[dict[str, Any]], path: Path) -> Path:
    """Write rows as on the Hub: texts and the label's number, −1 for no label."""
    numbers = {label: number for number, label in enumerate(LABELS)}
    names = {"premise": "sentence1", "hypothesis": "sentence2"}
    return write_plain(path, [
        {name: row[its] for name, its in names.items()}
        | {"label": numbers.get(row["gold_label"], -1)}
        for row in rows
    ])  # fmt: skip


def official(premise: str, hypothesis: str, label: str) -> dict[str, str]:
    return {"sentence1": premise, "sentence2": hypothesis, "gold_label": label}


def test_a_known_problem_has_its_id(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")
    premise, hypothesis, label = KNOWN
    rows = [
        official(premise, "The church sings.", label),
        official(f"{premise} ", hypothesis.replace(" is", "\tis"), label),
        official(premise, hypothesis, "neutral"),
        official(premise, hypothesis, label),
    ]
    path = hub_copy(rows, tmp_path / "a.jsonl")
    ids = [seed.seed_id for seed in load(path, source="snli")]
    assert ids == ["snli:0", "snli:2677109430.jpg#1r1e", "snli:2", "snli:2677109430.jpg#1r1e~2"]
    assert caplog.messages == [
        "a.jsonl: 2 of 4 problems are none of SNLI's test and development set; their ids are the "
        "numbers of their rows",
        "a.jsonl: no annotators' votes are here; the official file, snli_1.0_test.jsonl, has them",
    ]
    assert [seed.seed_id for seed in load(path)] == [f"mine:{n}" for n in range(4)]


@pytest.mark.real
def test_the_ids_that_come_with_us_are_snlis(shared_data: Path) -> None:
    made = pair_ids(shared_data / name for name, _ in FILES.values())
    packed = bundled_path(PAIR_IDS).read_bytes()
    assert gzip.decompress(packed) == gzip.decompress(made)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("split", FILES)
def test_all_problems_join(split: str, shared_data: Path, tmp_path: Path) -> None:
    name, count = FILES[split]
    rows = rows_of(shared_data / name)
    expected = {(s.seed_id, *s.texts, s.label) for s in load(shared_data / name, source="snli")}
    assert len(expected) == count
    for order in ("the Hub's", "shuffled"):
        if order == "shuffled":
            random.Random(0).shuffle(rows)
        result = load(hub_copy(rows, tmp_path / f"{order}.jsonl"), source="snli")
        assert {(s.seed_id, *s.texts, s.label) for s in result} == expected, order
        assert len(result) == count
