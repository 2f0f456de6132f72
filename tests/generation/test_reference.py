"""The pipeline against the slow reference of eq. 1 in `helpers.reference`."""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.dataset_files import write_plain
from helpers.paraphrasing import write_problems
from helpers.reference import Expected, Key, cased_like, keeps_class, reference, slow_mlm, tag
from helpers.tiny_models import KINDS, tiny_model

from generation import build, suggest
from generation.config import Config
from generation.problems.on_disk import read_block
from generation.problems.sources import ProblemReader
from generation.problems.tagging import Tagger
from generation.records import Seed
from merge_dataset.schema import WORD_CLASSES, ProblemFormat, format_of

K = 60
"""Suggestions per occurrence; the tiny vocabularies hold 300 to 700 tokens."""
THREE = ("bert-uncased", "roberta", "albert")
"""Kinds used together, so that one may validate in p and another in h."""

PROBLEMS = {
    "two occurrences": ("A girl and another girl play near the small dog.",
        "The girl sees a small dog near the girl."),
    "title case": ("Children play near the café.", "Children sing in a café outside."),
    "upper case": ("The DOG and the DOG run, said a SMALL man.",
        "A SMALL man said the DOG is good."),
    "quotation marks": ('The man said "girl" and "dog".', 'A man likes the "girl" and the "dog".'),
    "hyphen": ("The man-to-man game runs here.", "A man-to-man game runs today."),
    "curly apostrophe": ("The boys don’t walk here.", "The boys walk but they don’t run here."),
    "double space": ("A woman  holds a  red  book.", "The woman holds  the red book ."),
    "noun and verb": ("The walk is good.", "The women walk a good walk."),
    "pieces": ("The accordion player cannot see the horse.",
        "The horse cannot run, the accordion player cannot run."),
}  # fmt: skip
"""Subject of each problem → premise, hypothesis."""


@pytest.fixture(scope="module")
def seeds() -> list[Seed]:
    return [
        Seed(seed_id=f"tiny:{name}", source="tiny", texts=(p, h), label="neutral")
        for name, (p, h) in PROBLEMS.items()
    ]


def config_of(run: Path, seeds: Sequence[Seed], models: Sequence[Path], **settings: Any) -> Config:
    """Settings by which every seed with a replacement is eligible."""
    problems = [(s.seed_id.partition(":")[2], *s.texts, s.label) for s in seeds]
    values = {
        "source": seeds[0].source,
        "data": str(write_problems(run.with_suffix(".jsonl"), problems)),
        "mlms": tuple(map(str, models)),
        "suggestions_per_occurrence": K,
        "word_classes": WORD_CLASSES,
        "min_replacements": 1,
        "subsamples": 1,
        "device": "cpu",
        "run": str(run),
    }
    return Config(**{**values, **settings})


def run_pipeline(
    run: Path, seeds: Sequence[Seed], models: Mapping[str, Path], **settings: Any
) -> dict[Key, Expected]:
    """Run the pipeline on the seeds; `build` would raise without any replacement."""
    suggest(config_of(run, seeds, list(models.values()), **settings))
    return found_in(build(run).replacements)


def rebuild(run: Path, folder: Path, **settings: Any) -> dict[Key, Expected]:
    """Build again on a copy of the same suggestions."""
    shutil.copytree(run, folder / "run")
    return found_in(build(folder / "run", **settings).replacements)


def expected_of_three(seeds: Sequence[Seed], **options: Any) -> dict[Key, Expected]:
    models = {kind: tiny_model(kind) for kind in THREE}
    return reference(seeds, models, **{"k": K, "word_classes": WORD_CLASSES, **options})


def real_seeds(path: Path, source: str, count: int) -> list[Seed]:
    """Labelled problems at equal distances in a file of SNLI or MultiNLI."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["gold_label"] != "-"]
    return [
        Seed(
            seed_id=f"{source}:{row['pairID']}", source=source,
            texts=(row["sentence1"], row["sentence2"]), label=row["gold_label"],
        )
        for row in rows[:: len(rows) // count][:count]
    ]  # fmt: skip


def found_in(path: Path) -> dict[Key, Expected]:
    rows = pq.read_table(path).to_pylist()
    result = {
        (row["seed_id"], row["word"], row["word_class"], row["replacement"]): Expected(
            tuple(tuple(row[name]) for name in row if name.endswith("_mlms")), row["log_odds"]
        )
        for row in rows
    }
    assert len(result) == len(rows)
    return result


def assert_equal(found: Mapping[Key, Expected], expected: Mapping[Key, Expected]) -> None:
    assert {
        "too many": sorted(found.keys() - expected.keys()),
        "missing": sorted(expected.keys() - found.keys()),
    } == {"too many": [], "missing": []}
    for key, there in expected.items():
        here = found[key]
        assert here.mlms == there.mlms, key
        assert here.log_odds == pytest.approx(there.log_odds, abs=1e-3), key


def test_every_problem_is_about_what_it_says(seeds: list[Seed]) -> None:
    """Problems have the difficulties in their names; casing is as in D6, tokenisation as in D8."""
    tags = {
        (name, side, word): [token.tag for token in tag(text) if token.text == word]
        for name, pair in PROBLEMS.items()
        for side, text in enumerate(pair)
        for word in {token.text for token in tag(text)}
    }
    assert tags["two occurrences", 0, "girl"] == tags["two occurrences", 1, "girl"] == ["NN", "NN"]
    assert tags["title case", 0, "Children"] == tags["title case", 1, "Children"] == ["NNS"]
    assert tags["upper case", 0, "DOG"] == ["NN", "NNP"]
    assert tags["upper case", 1, "DOG"] == ["NN"]
    assert tags["quotation marks", 0, "girl"] == ["NN"]
    assert tags["hyphen", 0, "man"] == tags["hyphen", 1, "man"] == ["NN", "NN"]
    assert tags["double space", 0, " "] == ["_SP"] * 3
    assert tags["noun and verb", 0, "walk"] == ["NN"]
    assert tags["noun and verb", 1, "walk"] == ["VBP", "NN"]
    assert tags["pieces", 0, "not"] == ["RB"]
    assert [cased_like("girl", word) for word in ("boy", "Boy", "BOY", "A", "McBoy")] == [
        "girl", "Girl", "GIRL", "Girl", "girl",
    ]  # fmt: skip
    assert keeps_class("He can see a dog.", "see", "hold", "coarse")
    assert not keeps_class("He can see a dog.", "see", "cannot", "coarse")
    assert not keeps_class("He sees a dog.", "dog", "a", "coarse")
    assert not keeps_class("He is playing.", "playing", "took", "fine")


@pytest.mark.slow(but=("roberta",))
@pytest.mark.parametrize("kind", KINDS)
def test_one_mlm_of_every_kind(kind: str, seeds: list[Seed], tmp_path: Path) -> None:
    models = {kind: tiny_model(kind)}
    slow_mlm(models[kind]).closest = math.inf
    expected = reference(seeds, models, k=K, word_classes=WORD_CLASSES)
    assert len(expected) > 20
    assert len({seed_id for seed_id, *_ in expected}) > len(seeds) // 2
    assert slow_mlm(models[kind]).closest > 1e-5, "a near tie could go either way"
    assert_equal(run_pipeline(tmp_path / "run", seeds, models), expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert-cased", "modernbert"])
def test_the_whole_vocabulary(kind: str, seeds: list[Seed], tmp_path: Path) -> None:
    models, some = {kind: tiny_model(kind)}, seeds[1:4]
    expected = reference(some, models, k=10_000, word_classes=WORD_CLASSES)
    assert expected.keys() > reference(some, models, k=K, word_classes=WORD_CLASSES).keys()
    run = tmp_path / "run"
    assert_equal(run_pipeline(run, some, models, suggestions_per_occurrence=10_000), expected)


@pytest.fixture(scope="module")
def together(seeds: list[Seed], tagger: Tagger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("together") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tagger, "load", lambda model=None, **_: tagger)
        suggest(config_of(run, seeds, [tiny_model(kind) for kind in THREE], ask_all=True))
    return run


@pytest.mark.slow
def test_three_mlms_together(together: Path, seeds: list[Seed], tmp_path: Path) -> None:
    expected = expected_of_three(seeds)
    assert any(len(e.mlms[0]) == 3 for e in expected.values())
    assert any(not set(e.mlms[0]) & set(e.mlms[1]) for e in expected.values())
    alone = [reference(seeds, {kind: tiny_model(kind)}, k=K) for kind in THREE]
    assert expected.keys() > set().union(*alone)
    assert_equal(rebuild(together, tmp_path), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"combine": "union"},
        {"tag_match": "fine"},
        {"tag_match": "fine", "combine": "union"},
        {"probability_filter": False},
        {"class_filter": False},
        {"probability_filter": False, "class_filter": False},
        {"word_classes": ("adjective",)},
    ],
    ids=lambda options: "-".join(f"{k}={v}" for k, v in options.items()),
)
def test_options_of_the_filters(
    options: dict[str, Any], together: Path, seeds: list[Seed], tmp_path: Path
) -> None:
    expected = expected_of_three(seeds, **options)
    assert len(expected) > 5
    assert expected.keys() != expected_of_three(seeds).keys()
    assert_equal(rebuild(together, tmp_path, **options), expected)


@pytest.mark.slow
def test_joint_masking(seeds: list[Seed], tmp_path: Path) -> None:
    """Masking all occurrences at once is another question with other words as answers."""
    some = [seed for seed in seeds if seed.seed_id.endswith(("occurrences", "verb", "upper case"))]
    expected = expected_of_three(some, masking="joint")
    assert len(expected) > 20
    assert expected.keys() != expected_of_three(some).keys()
    models = {kind: tiny_model(kind) for kind in THREE}
    assert_equal(run_pipeline(tmp_path / "run", some, models, masking="joint"), expected)


@pytest.mark.real
@pytest.mark.parametrize(
    ("source", "file", "count"),
    [("snli", "snli_test.jsonl", 12), ("mnli-m", "mnli_dev_matched.jsonl", 6)],
)
def test_real_models_on_real_problems(
    source: str, file: str, count: int, shared_data: Path, shared_models: Path, tmp_path: Path
) -> None:
    models = {name: shared_models / name for name in ("bert-tiny-mlm", "minilm-l6-mlm")}
    some = real_seeds(shared_data / file, source, count)
    expected = reference(some, models, k=200)
    assert len(expected) > 50
    assert any(len(e.mlms[0]) == 2 for e in expected.values())
    run = tmp_path / "run"
    settings = {"suggestions_per_occurrence": 200, "word_classes": ("noun", "verb", "adjective")}
    result = run_pipeline(run, some, models, **settings)
    assert_equal(result, expected)


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


def reading_config(tmp_path: Path, **changes: Any) -> Config:
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
    run = suggest(reading_config(tmp_path, mlms=tuple(map(str, models.values()))))
    build(run.path)
    seeds = [
        Seed(
            seed_id=f"reading:{row['id']}", source="reading", label=LABEL_MAP[row["verdict"]],
            texts=(row["passage"], row["question"], row["answer"]),
        )
        for row in ROWS[:3]
    ]  # fmt: skip
    assert read_block(run.problems, 0) == seeds
    expected = reference(seeds, models, k=60, sharing=(0, 1))
    assert_equal(found_in(run.replacements), expected)
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


def load(tmp_path: Path, rows: Sequence[dict[str, Any]], **changes: Any) -> list[Seed]:
    seeds: list[Seed] = []
    data = write_plain(tmp_path / "rows.jsonl", rows)
    config = reading_config(tmp_path, data=str(data), **changes)
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
