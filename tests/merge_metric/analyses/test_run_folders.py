"""Tables 3 and 5 from the records of a run folder: by hand, and against counting rows."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from generation.problems.on_disk import problem_table
from generation.records import Seed
from merge_dataset.files import digest_of_file, digests, write_record
from merge_dataset.schema import LABELS, WORD_CLASSES
from merge_metric.analyses import Request, run_folders
from merge_metric.analyses.run_folders import filters, plot_filters, plot_seeds, seeds

Word = dict[str, Any]


def word(seed: str, word_class: str, form: str, premise: int = 1, **more: Any) -> Word:
    """A shared word that occurs once in the hypothesis."""
    return {
        "seed_id": seed, "word_class": word_class, "word": form, "premise_occurrences": premise,
        "hypothesis_occurrences": more.get("hypothesis", 1), "other_forms": more.get("forms", []),
    }  # fmt: skip


def write_run(
    folder: Path,
    labels: Sequence[str],
    words: Sequence[Word],
    variants: Sequence[tuple[str, str, str]] | None = None,
    counts: Sequence[dict[str, Any]] = (),
) -> Path:
    """Write a run folder with counts and, optionally, a build."""
    folder.mkdir(parents=True)
    problems = [
        Seed(seed_id=f"s:{n}", source="s", texts=("p", "h"), label=label)
        for n, label in enumerate(labels)
    ]
    pq.write_table(problem_table(problems), folder / "problems.parquet")
    path = folder / "shared_words.parquet"
    schema = pa.schema(
        [("seed_id", pa.string()), ("word_class", pa.string()), ("word", pa.string()),
         ("premise_occurrences", pa.int32()), ("hypothesis_occurrences", pa.int32()),
         ("other_forms", pa.list_(pa.string()))]
    )  # fmt: skip
    pq.write_table(pa.Table.from_pylist(list(words), schema), path)
    if variants is not None:
        names = ("seed_id", "word_class", "original")
        rows = [dict(zip(names, variant, strict=True)) for variant in variants]
        built = folder / "variants.parquet"
        pq.write_table(pa.Table.from_pylist(rows), built)
        write_record(folder / "manifest.json", {"files": digests({built.name: built})})
    write_record(folder / "suggested.json", {"mlms": []})
    record = {
        "source": "s", "filters": list(counts),
        "made_from": digest_of_file(folder / "suggested.json"), "files": digests({path.name: path}),
    }  # fmt: skip
    write_record(folder / "counts.json", record)
    return folder


def test_table_3_by_hand(tmp_path: Path) -> None:
    """Four of five problems share words, and two are seeds.

    The second noun of s:0 occurs twice but is not replaced, so the seed has no such word.
    """
    made = write_run(
        tmp_path / "run",
        ["entailment", "entailment", "neutral", "contradiction", "neutral"],
        [
            word("s:0", "noun", "man"), word("s:0", "noun", "dog", premise=2),
            word("s:0", "verb", "is", forms=["are"]), word("s:1", "noun", "girl"),
            word("s:2", "verb", "runs", hypothesis=3, forms=["running"]),
            word("s:3", "adverb", "quickly"),
        ],
        [("s:0", "noun", "man"), ("s:2", "verb", "runs"), ("s:2", "verb", "runs running")],
    )  # fmt: skip
    table = seeds(Request(), run=made)
    shown = {
        (row["which"], row["word_class"]): tuple(
            row[key] for key in ("n", "label_0", "label_1", "label_2", "stands_twice", "other_form")
        )
        for row in table.rows
    }
    assert shown == {
        ("sharing", "noun"): (2, 1.0, 0.0, 0.0, 0.5, 0.0),
        ("sharing", "verb"): (2, 0.5, 0.5, 0.0, 0.5, 1.0),
        ("sharing", "adverb"): (1, 0.0, 0.0, 1.0, 0.0, 0.0),
        ("sharing", "all"): (4, 0.5, 0.25, 0.25, 0.5, 0.5),
        ("eligible", "noun"): (1, 1.0, 0.0, 0.0, 0.0, 0.0),
        ("eligible", "verb"): (1, 0.0, 1.0, 0.0, 1.0, 1.0),
        ("eligible", "all"): (2, 0.5, 0.5, 0.0, 0.5, 0.5),
    }
    headings = [column.heading for column in table.shown]
    assert headings[4:] == ["E, %", "N, %", "C, %", "twice, %", "other form, %"]
    assert "Of 5 labelled problems" in table.notes[0]
    plot_seeds(table)


def test_random_words_against_rows(tmp_path: Path) -> None:
    rng = random.Random(6)
    labels = [rng.choice(LABELS) for _ in range(60)]
    words = []
    for n in range(60):
        for word_class in rng.sample(WORD_CLASSES, rng.randint(0, 3)):
            for k in range(rng.randint(1, 2)):
                twice, forms = rng.choice((1, 1, 2)), rng.choice(([], [], ["x"]))
                words.append(word(f"s:{n}", word_class, f"w{k}", twice, forms=forms))
    table = seeds(Request(), run=write_run(tmp_path / "a", labels, words))
    assert "no build yet" in " ".join(table.notes)
    for row in table.rows:
        mine = [item for item in words if row["word_class"] in ("all", item["word_class"])]
        ids = {item["seed_id"] for item in mine}
        twice = {item["seed_id"] for item in mine if item["premise_occurrences"] > 1}
        forms = {item["seed_id"] for item in mine if item["other_forms"]}
        assert (row["n"], row["share"]) == (len(ids), len(ids) / 60)
        assert (row["n_stands_twice"], row["n_other_form"]) == (len(twice), len(forms))
        for number, label in enumerate(LABELS):
            of_label = [item for item in ids if labels[int(item[2:])] == label]
            assert row[f"label_{number}"] == len(of_label) / len(ids)
    unknown = [{**item, "other_forms": None} for item in words]
    table = seeds(Request(), run=write_run(tmp_path / "b", labels, unknown))
    assert {row["other_form"] for row in table.rows} == {None}
    assert "lemminflect was not installed" in table.notes[-1]
    plot_seeds(table)


def counts(mlm: str, word_class: str, field: str, *numbers: int) -> dict[str, Any]:
    names = ("occurrences", "not_in_vocabulary", "suggestions", "whole_words", "same_class",
             "more_probable", "both")  # fmt: skip
    return {
        "source": "s", "mlm": mlm, "word_class": word_class, "field": field,
        **dict(zip(names, numbers, strict=True)),
    }  # fmt: skip


def test_table_5_by_hand(tmp_path: Path) -> None:
    rows = [
        counts("m", "verb", "premise", 2, 2, 0, 0, 0, 0, 0),
        counts("m", "noun", "premise", 4, 1, 600, 500, 480, 60, 50),
        counts("m", "noun", "hypothesis", 1, 0, 200, 190, 180, 40, 30),
    ]
    table = filters(Request(), run=write_run(tmp_path / "run", [], [], counts=rows))
    noun, verb = table.rows
    assert (noun["asked"], noun["not_in_vocabulary"], noun["per_occurrence"]) == (4, 1, 200)
    assert (noun["same_class_premise"], noun["same_class_hypothesis"]) == (0.8, 0.9)
    assert noun["same_class"] == 660 / 800
    assert (noun["more_probable"], noun["both"]) == (100 / 800, 80 / 800)
    assert (verb["asked"], verb["per_occurrence"], verb["same_class"]) == (0, None, None)
    plot_filters(table)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shared_words.parquet", "counts.json as its record says"),
        ("variants.parquet", "variants.parquet as its record says"),
        ("counts.json", "counts.json"),
    ],
)
def test_damage_is_told(
    tmp_path: Path, name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file changed since the run is no source of figures."""
    monkeypatch.setattr(run_folders, "MAKERS", {})
    words, variants = [word("s:0", "noun", "man")], [("s:0", "noun", "man")]
    made = write_run(tmp_path / "run", ["neutral"], words, variants)
    (made / name).write_bytes((made / name).read_bytes().replace(b'"s"', b'"t"') + b" ")
    with pytest.raises((FileNotFoundError, ValueError), match=message):
        seeds(Request(), run=made)
