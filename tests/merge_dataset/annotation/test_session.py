import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.judged import write_dataset

from merge_dataset.annotation import Session, open_session, read_session
from merge_dataset.annotation.sample import draw
from merge_dataset.files import digest_of_file, read_record, write_record


def test_what_is_drawn_is_read_again(dataset: Path, session: Session) -> None:
    items, population = draw(dataset)
    assert list(session.items.values()) == items
    assert list(session.items) == [item.variant_id for item in items]
    files = session.description.pop("files")
    assert session.description == {
        "format": 1,
        "kind": "scores",
        "dataset": "merge-nli",
        "configurations": ["snli_nouns", "snli_verbs", "snli_adjectives"],
        "per_class": 100,
        "rng_seed": 0,
        "items": 11,
        "population": population,
        "sample_sha256": digest_of_file(session.folder / "sample.jsonl"),
    }
    assert {name: len(digest) for name, digest in files.items()} == {
        "snli/nouns/variants.parquet": 64,
        "snli/verbs/variants.parquet": 64,
        "snli/adjectives/variants.parquet": 64,
    }
    lines = (session.folder / "sample.jsonl").read_text(encoding="utf-8").splitlines()
    row = next(row for row in map(json.loads, lines) if row["variant_id"].endswith("dog/cat"))
    assert row == {
        "variant_id": "snli:1/noun/dog/cat",
        "seed_id": "snli:1",
        "source": "snli",
        "word_class": "noun",
        "label": "neutral",
        "mlms": ["a/bert", "b/roberta"],
        "mlms_by_field": {"premise": ["b/roberta"], "hypothesis": ["a/bert", "b/roberta"]},
        "chance": 1.0,
        "stratum": {"class": "noun", "source": "snli", "mlm": row["stratum"]["mlm"]},
        "original": "dog",
        "replacement": "cat",
        "seed_texts": {"premise": "A girl and a small dog run.",
            "hypothesis": "A girl has a small dog."},
        "variant_texts": {"premise": "A girl and a small cat run.",
            "hypothesis": "A girl has a small cat."},
        "seed_spans": {"premise": [[19, 22]], "hypothesis": [[19, 22]]},
        "variant_spans": {"premise": [[19, 22]], "hypothesis": [[19, 22]]},
    }  # fmt: skip


def test_the_same_command_goes_on(
    dataset: Path, session: Session, edit_dataset: Callable[..., None]
) -> None:
    for options in ({}, {"per_class": 100}, {"rng_seed": 0}, {"per_class": 100, "rng_seed": 0}):
        assert open_session(session.folder, dataset, **options) == session
        assert open_session(session.folder, **options) == session
    assert open_session(session.folder, dataset, ["snli"]) == session
    edit_dataset("snli/verbs/variants.parquet", list.pop)
    with pytest.raises(ValueError, match=r"expected the files that its sample .*, got others"):
        open_session(session.folder, dataset)
    assert open_session(session.folder) == session


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rng_seed": 1},
         r"expected the rng_seed .* \(0\), got others; go on without that option, or"),
        ({"configs": ["snli_nouns"]}, "the configurations that its sample .*got others"),
    ],
)  # fmt: skip
def test_another_sample_is_refused(
    dataset: Path, session: Session, options: dict[str, Any], message: str
) -> None:
    """Answers would remain for variants that are not in the sample."""
    with pytest.raises(ValueError, match=message):
        open_session(session.folder, dataset, **options)


def test_a_sample_over_classes(tmp_path: Path) -> None:
    """The sample is the first of all the source's variants by rank, irrespective of class."""
    dataset = write_dataset(tmp_path / "data")
    session = open_session(tmp_path / "all", dataset, per_source=30)
    assert session.description["per_class"] is None
    drawn = Counter(item.word_class for item in session.items.values())
    assert {row["class"]: row["sampled"] for row in session.description["population"]} == drawn
    assert drawn.total() == 30
    # Nouns have 40 of 70 seeds, verbs 20 and adjectives 10, with twelve variants each.
    assert 10 <= drawn["noun"] <= 25
    assert drawn["adjective"] < drawn["noun"]
    mlms = Counter(item.stratum["mlm"] for item in session.items.values())
    assert max(mlms.values()) - min(mlms.values()) <= 1
    shares = {name: 1 / item.chance for name, item in session.items.items()}
    assert 500 < sum(shares.values()) < 1200  # of 840
    again = open_session(tmp_path / "all", dataset, per_source=30)
    assert again.items == session.items
    with pytest.raises(ValueError, match=r"expected the per_source .* \(30\), got"):
        open_session(tmp_path / "all", dataset, per_source=5)
    with pytest.raises(ValueError, match=r"expected the per_class .* \(None\), got"):
        open_session(tmp_path / "all", dataset, per_class=5)


def test_folders_that_are_no_session(dataset: Path, tmp_path: Path, session: Session) -> None:
    with pytest.raises(FileExistsError, match="expected an annotation session, an empty folder"):
        open_session(dataset, dataset)
    with pytest.raises(ValueError, match="expected the configurations that its sample was"):
        open_session(session.folder, configs=["snli_nouns"])
    with pytest.raises(FileNotFoundError, match=r"a session folder with session\.json, found none"):
        read_session(tmp_path)


def seal(folder: Path) -> None:
    """Write the digest of a sample that was changed."""
    description = read_record(folder / "session.json")
    description["sample_sha256"] = digest_of_file(folder / "sample.jsonl")
    write_record(folder / "session.json", description)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "session.json",
            "{}",
            r"session\.json: expected a record with configurations, .*, got one without",
        ),
        ("session.json", "{", r"session\.json: expected JSON, got something else: .*: line 1"),
        ("sample.jsonl", "{}\n", "expected the items that were drawn, got something else"),
    ],
)
def test_malformed_sessions_are_named(session: Session, file: str, text: str, message: str) -> None:
    (session.folder / file).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_session(session.folder)


def test_separators_in_texts_end_no_line(session: Session) -> None:
    """JSON does not escape these separators, and `str.splitlines` would split lines at them."""
    path = session.folder / "sample.jsonl"
    text = path.read_text("utf-8").replace("A girl", "A\u2028gi\u0085r\u2029l")
    path.write_text(text, "utf-8")
    seal(session.folder)
    items = read_session(session.folder).items
    assert list(items) == list(session.items)
    assert "A\u2028gi\u0085r\u2029l has a small cat." in {
        text for item in items.values() for text in item.variant_texts.values()
    }
