import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.judged import write_dataset

from merge_dataset.annotation import Session, open_session, read_session
from merge_dataset.annotation.sample import chances, choose, draw, spread
from merge_dataset.export import export_dataset
from merge_dataset.files import digest_of_file, read_record, write_record
from merge_dataset.schema import ProblemFormat, arrow_schema


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
    # Otherwise, answers would remain for variants that are not in the sample.
    message = r"expected the rng_seed .* \(0\), got others; go on without that option, or"
    with pytest.raises(ValueError, match=message):
        open_session(session.folder, dataset, rng_seed=1)
    with pytest.raises(ValueError, match=r"the configurations that its sample .*got others"):
        open_session(session.folder, dataset, ["snli_nouns"])
    edit_dataset("snli/verbs/variants.parquet", list.pop)
    with pytest.raises(ValueError, match=r"expected the files that its sample .*, got others"):
        open_session(session.folder, dataset)
    assert open_session(session.folder) == session


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


def most_even(candidates: Mapping[str, Sequence[str]], quota: int) -> list[int]:
    """Ascending counts of the best division, by trying all divisions."""
    variants = sorted({variant for own in candidates.values() for variant in own})
    owners = [[None, *(mlm for mlm in candidates if v in candidates[mlm])] for v in variants]
    best: list[int] = []
    size = min(quota, len(variants))
    for division in product(*owners):
        counts = Counter(mlm for mlm in division if mlm is not None)
        if counts.total() == size:
            best = max(best, sorted(counts[mlm] for mlm in candidates))
    return best


@pytest.mark.parametrize("case", range(60))
def test_no_division_is_more_even(case: int) -> None:
    rng = random.Random(case)
    names = [f"mlm{i}" for i in range(rng.randint(1, 4))]
    candidates: dict[str, list[str]] = {name: [] for name in names}
    for variant in map(str, range(rng.randint(1, 6))):
        for name in rng.sample(names, rng.randint(1, len(names))):
            candidates[name].append(variant)
    for own in candidates.values():
        rng.shuffle(own)
    quota = rng.randint(1, 7)
    given = spread(candidates, quota)
    assert all(variant in candidates[mlm] for variant, mlm in given.items())
    assert sorted(Counter(given.values())[name] for name in names) == most_even(candidates, quota)


def test_figures_weighted_by_chances_are_of_all_variants() -> None:
    rng_seeds = range(60)
    both = ["both:0", "both:1"]
    every = {"a": [f"a:{n}" for n in range(180)] + both, "b": [f"b:{n}" for n in range(10)] + both}
    estimates, shares = [], []
    for rng_seed in rng_seeds:
        ranks = {
            v: hashlib.sha256(f"{rng_seed}\0{v}".encode()).digest()
            for own in every.values()
            for v in own
        }
        ranked = {mlm: sorted(own, key=ranks.__getitem__)[:13] for mlm, own in every.items()}
        drawn = spread(ranked, 12)
        weights = {v: 1 / chance for v, chance in chances(drawn, ranked, rng_seed).items()}
        of_b = [v for v in drawn if not v.startswith("a")]
        shares.append(len(of_b) / len(drawn))
        estimates.append(sum(weights[v] for v in of_b) / sum(weights.values()))
    assert sum(shares) / len(shares) > 0.45
    assert sum(estimates) / len(estimates) == pytest.approx(12 / 192, abs=0.015)


def test_the_population_is_counted(dataset: Path) -> None:
    nouns, verbs, adjectives = draw(dataset, per_class=2)[1]
    assert nouns == {
        "source": "snli",
        "class": "noun",
        "seeds": 2,
        "variants": 6,
        "variants_by_mlm": {"a/bert": 6, "b/roberta": 6},
        "variants_by_number_of_mlms": {"2": 6},
        "sampled": 2,
    }
    assert (verbs["seeds"], verbs["variants"], verbs["sampled"]) == (2, 3, 2)
    assert (adjectives["class"], adjectives["seeds"], adjectives["sampled"]) == ("adjective", 1, 2)


def test_a_sample_depends_on_nothing_but_its_settings(
    dataset: Path, make_run: Callable[..., Path], edit_dataset: Callable[..., None]
) -> None:
    sample = draw(dataset, per_class=3)
    assert draw(dataset, per_class=3) == sample
    others = [draw(dataset, per_class=3, rng_seed=seed)[0] for seed in range(1, 5)]
    assert any(items != sample[0] for items in others)
    edit_dataset("snli/nouns/variants.parquet", list.reverse)
    assert draw(dataset, per_class=3) == sample
    export_dataset(make_run("more", "mnli-m"), dataset)
    snli = [item for item in draw(dataset, per_class=3)[0] if item.source == "snli"]
    assert snli == sample[0]


def test_paraphrases_alone_have_to_be_named(paraphrases: Path) -> None:
    with pytest.raises(
        ValueError, match=r"expected replacements .* with --config: snli_paraphrases"
    ):
        choose(paraphrases)


@pytest.mark.parametrize(
    "change",
    [
        {"premise": "A woman and a big dog run."},
        {"replacement": "man x"},
        {"seed_id": "snli:9"},
    ],
)
def test_a_broken_dataset_is_an_error(
    dataset: Path, edit_dataset: Callable[..., None], change: dict[str, Any]
) -> None:
    def spoil(rows: list[dict[str, Any]]) -> None:
        next(row for row in rows if row["variant_id"] == "snli:1/noun/girl/woman").update(change)

    edit_dataset("snli/nouns/variants.parquet", spoil)
    with pytest.raises(ValueError, match=r"is its seed once .*, got 'snli:1/noun/girl/wom"):
        draw(dataset)


def test_other_problems_than_nli(tmp_path: Path) -> None:
    quiz = ProblemFormat(("context", "question", "answer"), ("wrong", "right"))
    texts = {"context": "A cat sat.", "question": "Who sat?", "answer": "The cat."}
    seed = {"variant_id": "quiz:1", "seed_id": "quiz:1", "source": "quiz", "label": 1, **texts}
    variant = seed | {
        "variant_id": "quiz:1/noun/cat/owl", "context": "A owl sat.", "answer": "The owl.",
        "word_class": "noun", "original": "cat", "replacement": "owl", "context_spans": [[2, 5]],
        "question_spans": [], "answer_spans": [[4, 7]], "mlms": ["a/bert"],
        "context_mlms": ["a/bert"], "question_mlms": [], "answer_mlms": ["a/bert"],
    }  # fmt: skip
    folder = tmp_path / "merge-quiz/quiz"
    for path, row in (
        (folder / "seeds.parquet", seed),
        (folder / "nouns/seeds.parquet", seed),
        (folder / "nouns/variants.parquet", variant),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist([row], schema=arrow_schema(quiz)), path)
    write_record(folder / "provenance.json", {"files": {}})
    (item,) = draw(folder.parent)[0]
    assert (item.label, item.seed_texts) == ("right", texts)
    assert item.variant_texts["answer"] == "The owl."
    assert item.variant_spans == {"context": [[2, 5]], "question": [], "answer": [[4, 7]]}
    assert item.seed_spans == item.variant_spans
    assert item.mlms_by_field == {"context": ["a/bert"], "question": [], "answer": ["a/bert"]}
