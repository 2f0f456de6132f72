import hashlib
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merge_dataset.annotation.sample import chances, choose, draw, spread
from merge_dataset.export import export_dataset
from merge_dataset.files import write_record
from merge_dataset.schema import ProblemFormat, arrow_schema


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


def test_what_cannot_be_sampled_is_said(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected configurations out of snli, .*got 'snli_adv"):
        choose(dataset, ["snli_adverbs"])
    with pytest.raises(NotADirectoryError, match="expected a dataset folder"):
        draw(tmp_path / "none")


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
