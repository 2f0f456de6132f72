"""Replacements and paraphrases on the same seeds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from helpers import metric_oracle as oracle
from helpers.analysed import answered, run
from helpers.metric_oracle import Row, problems, random_problems

from merge_metric.analyses.variant_groups import kinds, merge_rows
from merge_metric.runs.run import Run
from merge_metric.seed_variant_accuracy.options import Settings

STRICT, RELAXED = "strict_fooling_rate", "relaxed_fooling_rate"


def both(
    replacements: Sequence[Row], paraphrases: Sequence[Row], model: str = "m", **options: bool
) -> list[Run]:
    """A model's runs on both of a source."""
    return [
        run(replacements, model, "snli", **options),
        run(paraphrases, model, "snli_paraphrases", subsamples=False),
    ]


# --- By hand and against the oracle ---


@pytest.mark.parametrize("n_subsamples", [1, 3])
def test_against_the_oracle(n_subsamples: int) -> None:
    """Replacements averaged over subsamples; paraphrases are the same in each."""
    rng = random.Random(n_subsamples)
    replacements = answered(
        random_problems(rng, seeds=30, variants=(2, 6), subsamples=n_subsamples), rng, 0.7
    )
    own = {row.seed_id: (row.gold, row.own) for row in replacements}
    paraphrases = [
        Row(seed, gold, first, rng.choice((first, first, *oracle.LABELS)))
        for seed, (gold, first) in own.items()
        if gold == first and rng.random() < 0.8
        for _ in range(rng.randint(1, 4))
    ]
    shared = {row.seed_id for row in paraphrases}
    assert 5 < len(shared) < len(own)
    table = kinds(both(replacements, paraphrases), Settings(n_bootstrap=0))
    of_shared = [row for row in replacements if row.seed_id in shared]
    for row, rows in zip(table.rows, (of_shared, paraphrases), strict=True):
        exact = oracle.averaged(rows)
        assert row["n_seeds"] == row["n_right"] == len(shared)
        for key in ("variant_accuracy", "seed_accuracy", STRICT, RELAXED):
            assert row[key] == pytest.approx(float(exact[key]), abs=1e-12), key
        assert row["curve"] == pytest.approx([float(value) for value in exact["curve"]], abs=1e-12)
    for key in ("n_variants", "variants_per_seed"):
        drawn = len(paraphrases)
        assert table.rows[1][key] == pytest.approx(
            drawn if key == "n_variants" else drawn / len(shared)
        )


def test_equally_many_of_both() -> None:
    """A seed with 20 replacements, one of which fools, and one paraphrase: seldom fooled then."""
    replacements = problems(*["E E " + "E" * 19 + "C"] * 200)
    paraphrases = problems(*["E E C"] * 200)
    runs = both(replacements, paraphrases, subsamples=False)
    plain, matched = (
        kinds(runs, Settings(n_bootstrap=0, rng_seed=1), matched=chosen).rows
        for chosen in (False, True)
    )
    assert (plain[0][STRICT], plain[1][STRICT]) == (1, 1)
    assert matched[0]["variants_per_seed"] == 1
    assert matched[0][STRICT] == pytest.approx(0.05, abs=0.05)
    assert matched[1][STRICT] == 1


def test_every_model_and_source_with_both_is_contrasted() -> None:
    """Word classes too; what has only one of them is left out."""
    lines = ("E E EC", "N N NN")
    runs = [
        *both(problems(*lines), problems(*lines), "a", subsamples=False),
        run(problems(*lines), "a", "snli_nouns", subsamples=False),
        run(problems(*lines), "a", "mnli-m", subsamples=False),
        run(problems(*lines), "b", "snli", subsamples=False),
        run(problems(*lines), "b", "mnli-m_paraphrases", subsamples=False),
    ]
    table = kinds(runs, Settings(n_bootstrap=5))
    assert [(row["model"], row["config"], row["group"]) for row in table.rows] == [
        ("a", "snli", "replacement"),
        ("a", "snli", "paraphrase"),
        ("a", "snli", "noun"),
        ("a", "snli", "paraphrase"),
    ]
    assert {row["contrast"] for row in table.rows} == {
        "replacement & paraphrase",
        "noun & paraphrase",
    }
    assert table.rows[1]["difference_ci"] == [0, 0]


# --- Rows of two data sets ---


def test_rows_are_merged_on_shared_seeds() -> None:
    """In the order of seeds; a single subsample is repeated in each of the others."""
    a = [
        Row("s:2", "entailment", "entailment", "neutral", (0, 1)),
        Row("s:1", "neutral", "neutral", "neutral", (1,)),
        Row("s:1", "neutral", "neutral", "entailment", (0,)),
        Row("s:3", "neutral", "neutral", "neutral", (0, 1)),
    ]
    b = [Row("s:1", "neutral", "neutral", "contradiction"),
         Row("s:2", "entailment", "entailment", "entailment"),
         Row("s:0", "entailment", "neutral", "entailment")]  # fmt: skip
    first, second = run(a).rows, run(b, subsamples=False).rows
    rows, of_second = merge_rows(first, second, "here")
    assert rows.seed_ids == ("s:1", "s:2")
    assert rows.gold.tolist() == rows.own.tolist() == [1, 0]
    assert rows.seed.tolist() == [1, 0, 0, 0, 1]
    assert rows.prediction.tolist() == [1, 1, 0, 2, 0]
    assert of_second.tolist() == [False, False, False, True, True]
    draws = list(zip(rows.draw_row.tolist(), rows.draw_subsample.tolist(), strict=True))
    assert draws == [(0, 0), (0, 1), (1, 1), (2, 0), (3, 0), (3, 1), (4, 0), (4, 1)]
    assert rows.n_subsamples == 2
    other, is_first = merge_rows(second, first, "here")
    assert sorted(other.prediction[is_first].tolist()) == [0, 1, 1]
    assert (np.diff(other.draw_row) >= 0).all()


def test_other_answers_to_the_seeds_are_an_error() -> None:
    """Another model's file, or another precision; other gold labels too."""
    rows = problems("E E E", "N N N", "C N C")
    changed = [replace(row, own="entailment") for row in rows]
    with pytest.raises(
        ValueError,
        match=r"m, snli and snli_paraphrases: expected the same predictions of the seeds that "
        r"both have, got others for 2 of 3 seeds: 's:1', 's:2'; are both files of the same model",
    ):
        kinds(both(rows, changed, subsamples=False))
    gold = [replace(row, gold="entailment") for row in rows]
    with pytest.raises(ValueError, match=r"expected the same gold labels .* for 2 of 3 seeds"):
        kinds(both(rows, gold, subsamples=False))


def test_other_numbers_of_subsamples_are_an_error() -> None:
    """Two and three cannot be put side by side."""
    rng = random.Random(0)
    two, three = (random_problems(rng, seeds=3, subsamples=n) for n in (2, 3))
    own = {row.seed_id: (row.gold, row.own) for row in two}
    three = [replace(r, gold=own[r.seed_id][0], own=own[r.seed_id][1]) for r in three]
    with pytest.raises(ValueError, match=r"here: expected as many subsamples .*, got 2 and 3"):
        merge_rows(run(two).rows, run(three).rows, "here")


def test_both_kinds_are_needed(caplog: pytest.LogCaptureFixture) -> None:
    """Runs are of one model, and of the same seeds."""
    rows = problems("E E E")
    runs = [run(rows, "a", "snli"), run(rows, "b", "snli_paraphrases")]
    with pytest.raises(
        ValueError, match=r"such as the configurations snli and snli_paraphrases, got a on snli, b "
    ):
        kinds(runs)
    elsewhere = [replace(row, seed_id="s:other") for row in rows]
    with pytest.raises(
        ValueError, match="expected seeds with replacements and paraphrases, got no"
    ):
        kinds(both(rows, elsewhere, subsamples=False))
    assert "m, snli and snli_paraphrases: no seed has variants of both" in caplog.text
