"""Shares of good variants: groups, combined annotators, weights and intervals by hand."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.judged import BAD, MLMS, answers_table, make_item, write_dataset, write_session
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from merge_dataset.annotation.sample import Item
from merge_metric.agreement.judgements import Cell, Judgements, read_judgements
from merge_metric.agreement.shares import (
    DROP,
    KEEP,
    UNKNOWN,
    drop_table,
    item_weights,
    newcombe,
    score_shares_table,
    share_table,
    wilson,
)
from merge_metric.seed_variant_accuracy.options import Settings

NUMBERS = count()


def item(
    word_class: str, *mlms: str, chance: float | None = 1.0, seed_id: str | None = None
) -> Item:
    """An item with a separate seed, unless one is given."""
    seed_id = seed_id or f"snli:{next(NUMBERS)}"
    return make_item(word_class, *mlms, seed_id=seed_id, chance=chance)


def judged(
    scores: dict[str, tuple[int, int]], items: dict[str, Item], seeds: dict[Cell, int] | None = None
) -> Judgements:
    rows = [("ann", variant, f, r) for variant, (f, r) in scores.items()]
    return Judgements.from_answers(answers_table(rows), items, seeds or {})


def shares(
    judgements: Judgements, seeds: dict[Cell, int] | None = None, n_bootstrap: int = 0
) -> dict[tuple[str, str], dict[str, Any]]:
    settings = Settings(n_bootstrap=n_bootstrap, rng_seed=0)
    table = share_table(replace(judgements, seeds=seeds or {}), settings)
    return {(row["by"], row["group"]): dict(row) for row in table.rows}


NO_INTERVALS = Settings(n_bootstrap=0, rng_seed=0)

NOUNS_AND_VERBS = judged(
    {"a": (5, 5), "b": (5, 4), "c": (1, 5), "d": (4, 4), "e": (5, 4), "f": (2, 2)},
    {
        "a": item("noun", "x/one"), "b": item("noun", "x/one", "x/two"),
        "c": item("noun", "x/two"), "d": item("noun", "x/one", "x/two"),
        "e": item("verb", "x/two"), "f": item("verb", "x/one"),
    },
)  # fmt: skip
"""Good are a, b and e: two of four nouns, one of two verbs."""


def test_groups_by_hand() -> None:
    found = shares(NOUNS_AND_VERBS)
    counts = {key: (row["n_good"], row["n"]) for key, row in found.items()}
    assert counts == {
        ("all", ""): (3, 6), ("class", "noun"): (2, 4), ("class", "verb"): (1, 2),
        ("source", "snli"): (3, 6), ("MLM", "x/one"): (2, 4), ("MLM", "x/two"): (2, 4),
        ("number of MLMs", "1"): (2, 4), ("number of MLMs", "2"): (1, 2),
    }  # fmt: skip
    nouns = found["class", "noun"]
    assert (nouns["fluency"], nouns["reasoning"]) == (15 / 4, 18 / 4)


def test_weighted_shares_by_hand() -> None:
    """Nouns have 30 seeds, verbs 10; half are good. F: 0.75 · 15/4 + 0.25 · 7/2; R likewise."""
    found = shares(NOUNS_AND_VERBS, {("snli", "noun"): 30, ("snli", "verb"): 10})
    every = found["all", ""]
    assert every["good_weighted"] == pytest.approx(0.5)
    assert every["fluency_weighted"] == pytest.approx(0.75 * 15 / 4 + 0.25 * 7 / 2)
    assert every["reasoning_weighted"] == pytest.approx(0.75 * 18 / 4 + 0.25 * 6 / 2)
    # x/one validated a, b and d, each a quarter of the nouns, and f, half of the verbs.
    weights = {"noun": 30 / 4, "verb": 10 / 2}
    expected = 2 * weights["noun"] / (3 * weights["noun"] + weights["verb"])
    assert found["MLM", "x/one"]["good_weighted"] == pytest.approx(expected)


def test_unknown_chances_are_not_made_up() -> None:
    items = {"a": item("noun", chance=None), "b": item("noun", chance=0.25)}
    items |= {"c": item("verb"), "d": item("verb", chance=0.25)}
    seeds = {("snli", "noun"): 6, ("snli", "verb"): 5}
    judgements = judged(dict.fromkeys(items, (5, 5)), items, seeds)
    assert item_weights(judgements, np.ones(4)).tolist() == [3, 3, 1, 4]
    weighted, unknown = share_table(judgements, NO_INTERVALS).notes[1:]
    assert "snli noun 6, snli verb 5; within them the less likely a variant was" in weighted
    assert unknown.startswith("How likely variants were to be drawn is not known of snli noun: ")
    nouns = judged({"a": (5, 5)}, {"a": items["a"]}, seeds)
    weighted, unknown = share_table(nouns, NO_INTERVALS).notes[1:3]
    assert weighted == "Weighted: each source and class by its seeds in the dataset, snli noun 6."
    assert unknown.endswith("--session says how they were drawn.")


def test_annotators_are_averaged_before_it_is_decided() -> None:
    """5+5 and 4+4 average 9: good. 5+5, 5+5 and 3+3 average 26 / 3: not. 27 / 3 is exactly 9."""
    rows = [("ann", "a", 5, 5), ("ben", "a", 4, 4)]
    rows += [("ann", "b", 5, 5), ("ben", "b", 5, 5), ("eve", "b", 3, 3)]
    rows += [("ann", "c", 5, 5), ("ben", "c", 5, 5), ("eve", "c", 4, 3)]
    found = Judgements.from_answers(answers_table(rows), {}, {})
    assert found.good.tolist() == [True, False, True]
    rows_of = shares(found)
    assert rows_of["all", ""]["n_good"] == 2
    assert rows_of["all", ""]["fluency"] == pytest.approx((9 / 2 + 13 / 3 + 14 / 3) / 3)
    by_one = {name: rows_of["annotator", name]["good"] for name in ("ann", "ben", "eve")}
    assert by_one == {"ann": 1, "ben": pytest.approx(2 / 3), "eve": 0}
    assert rows_of["annotator", "eve"]["n"] == 2
    assert "annotator" not in {by for by, _ in shares(NOUNS_AND_VERBS)}


@pytest.mark.parametrize(("n_good", "n"), [(0, 5), (3, 10), (10, 10), (91, 100)])
def test_wilson_against_statsmodels(n_good: int, n: int) -> None:
    library = proportion_confint(n_good, n, alpha=0.05, method="wilson")
    assert wilson(n_good, n) == pytest.approx(library, rel=1e-12, abs=1e-15)


def test_classes_weigh_the_same_in_every_resampling() -> None:
    items = {f"n{i}": item("noun", seed_id=f"s{i % 3 and i}") for i in range(20)}
    items |= {f"v{i}": item("verb", seed_id=f"t{i % 4 and i}", chance=0.3) for i in range(9)}
    scores = {name: (5, 5) if name[0] == "n" else (1, 1) for name in items}
    row = shares(judged(scores, items), {("snli", "noun"): 1808, ("snli", "verb"): 506}, 200)
    every = row["all", ""]
    share = 1808 / 2314
    assert every["good_weighted"] == pytest.approx(share)
    assert every["good_weighted_ci"] == pytest.approx([share, share])
    assert every["fluency_weighted_ci"] == pytest.approx([5 * share + 1 - share] * 2)


def test_resamplings_within_classes_by_hand() -> None:
    """Three good nouns of one seed and a bad one of another, of 6 seeds; a bad verb, of 4.

    Resamples with both seeds: 3/4 of the nouns are good; with one seed twice: all or none.
    """
    items = {"a": item("noun", seed_id="s"), "b": item("noun", seed_id="s")}
    items |= {"c": item("noun", seed_id="s"), "d": item("noun"), "e": item("verb")}
    scores = {name: (5, 5) if name in "abc" else (1, 1) for name in items}
    seeds = {("snli", "noun"): 6, ("snli", "verb"): 4}
    row = shares(judged(scores, items), seeds, 300)["all", ""]
    assert row["good_weighted"] == pytest.approx(0.6 * 3 / 4)
    assert row["good_weighted_ci"] == pytest.approx([0, 0.6])


def test_what_was_not_judged_is_said() -> None:
    """A class with seeds but without answers cannot be weighted."""
    seeds = {("snli", "noun"): 30, ("snli", "verb"): 10, ("snli", "adjective"): 5}
    table = share_table(replace(NOUNS_AND_VERBS, seeds=seeds), NO_INTERVALS)
    assert "snli noun 30, snli verb 10;" in table.notes[1]
    told = "Not judged, and so not counted in what is weighted: snli adjective 5."
    assert table.notes[2] == told


def test_without_items_or_weights_there_is_less() -> None:
    """Nothing is made up."""
    table = share_table(judged({"a": (5, 5)}, {}), NO_INTERVALS)
    assert [(row["by"], row["n"]) for row in table.rows] == [("all", 1)]
    assert not any("weighted" in column.key for column in table.columns)


def test_scores_are_shared_among_the_annotators_of_a_variant() -> None:
    """F of a: half 5, half 4; of b: 1. Nouns and verbs weigh 3 to 1."""
    rows = [("ann", "a", 5, 5), ("ben", "a", 4, 5), ("ann", "b", 1, 2)]
    items = {"a": item("noun"), "b": item("verb", "x/one")}
    seeds = {("snli", "noun"): 3, ("snli", "verb"): 1}
    table = score_shares_table(Judgements.from_answers(answers_table(rows), items, seeds))
    rows_of = {(r["score"], r["by"], r["group"]): r for r in table.rows}

    def f(by: str, group: str) -> list[float]:
        return [rows_of["F", by, group][str(n)] for n in range(1, 6)]

    assert f("all", "") == [0.5, 0, 0, 0.25, 0.25]
    assert f("all", "weighted") == [0.25, 0, 0, 0.375, 0.375]
    assert f("class", "noun") == [0, 0, 0, 0.5, 0.5]
    assert f("MLM", "x/one") == [1, 0, 0, 0, 0]
    assert rows_of["R", "all", ""]["5"] == 0.5


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("made") / "merge-nli")


@pytest.fixture(scope="module")
def study(dataset: Path) -> Path:
    return write_session(dataset.parent / "study", dataset).folder


def item_by(*validated: str) -> Item:
    """An item with one-letter masked LMs, by text."""
    texts = {str(n): [*mlms] for n, mlms in enumerate(validated)}
    mlms = sorted({*"".join(validated)})
    return make_item("noun", *mlms, seed_id="snli:1", mlms_by_field=texts)


def verdicts(*variants: tuple[Item, bool]) -> Judgements:
    rows = [("ann", str(i), 5, 5 if good else 1) for i, (_, good) in enumerate(variants)]
    items = {str(i): variant for i, (variant, _) in enumerate(variants)}
    return Judgements.from_answers(answers_table(rows), items, {})


def of(judgements: Judgements, mlm: str) -> dict[str, Any]:
    (row,) = [row for row in drop_table(judgements).rows if row["mlm"] == mlm]
    return dict(row)


def test_what_goes_with_a_masked_lm() -> None:
    found = verdicts(
        (item_by("a", "ab"), False),  # needs a
        (item_by("ab", "ab"), True),  # needs none
        (item_by("a", "b"), False),  # needs both
        (item_by("b", "b"), True),  # needs b
    )
    a, b = of(found, "a"), of(found, "b")
    assert (a["n_validated"], a["n_goes"], a["n_stays"]) == (3, 2, 2)
    assert (a["goes"], a["stays"], a["difference"]) == (0, 1, -1)
    assert (b["n_validated"], b["n_goes"], b["goes"], b["stays"]) == (4, 2, 0.5, 0.5)


@pytest.mark.parametrize("counts", [(0, 3, 9, 10), (5, 10, 5, 10), (7, 7, 1, 40)])
def test_newcombe_against_statsmodels(counts: tuple[int, int, int, int]) -> None:
    library = confint_proportions_2indep(*counts, method="newcomb", compare="diff", alpha=0.05)
    assert newcombe(*counts) == pytest.approx(library, rel=1e-12)


@pytest.mark.parametrize(
    ("n_bad", "n_good", "verdict"),
    [(1, 4, UNKNOWN), (9, 50, UNKNOWN), (10, 9, UNKNOWN), (10, 50, DROP), (0, 50, KEEP)],
)
def test_few_bad_variants_are_no_verdict(n_bad: int, n_good: int, verdict: str) -> None:
    """By Newcombe's interval, one bad variant against four good ones would already be worse."""
    bad, good = (item_by("a", "a"), False), (item_by("b", "b"), True)
    if not n_bad:
        bad, n_bad = (item_by("a", "a"), True), 12
    row = of(verdicts(*n_bad * [bad], *n_good * [good]), "a")
    assert row["verdict"] == verdict
    assert (row["difference_ci"][1] < 0) == (row["difference"] < 0)


def test_nothing_to_judge_by() -> None:
    found = verdicts((item_by("ab", "ab"), True), (item_by("b", "b"), True))
    assert of(found, "a")["verdict"] == UNKNOWN
    assert (of(found, "a")["goes"], of(found, "a")["goes_ci"]) == (None, None)
    alone = verdicts((item_by("a", "a"), True))
    assert (of(alone, "a")["verdict"], of(alone, "a")["difference"]) == (UNKNOWN, None)
    assert "nan" not in drop_table(alone).to_text()


def test_the_bad_one_is_dropped(study: Path, dataset: Path) -> None:
    table = drop_table(read_judgements([study]))
    assert [row["mlm"] for row in table.rows] == sorted(MLMS)
    assert [row["mlm"] for row in table.rows if row["verdict"] == DROP] == [BAD]
    assert {row["verdict"] for row in table.rows if row["mlm"] != BAD} == {KEEP}


def test_what_a_session_knows_is_what_the_dataset_knows(study: Path, dataset: Path) -> None:
    """Items are equal except for their chances of being drawn; so are weights."""
    files = sorted(study.glob("answers/*.csv"))
    from_session, from_dataset = read_judgements([study]), read_judgements(files, dataset=dataset)
    assert from_session.seeds == from_dataset.seeds
    for one, other in zip(from_session.items, from_dataset.items, strict=True):
        assert replace(one, chance=None, stratum={}) == replace(other, stratum={})
    assert read_judgements(files, [study]).items == from_session.items
