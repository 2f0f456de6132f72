"""Figures 3, 4, 5, 8, section 5.4 against the slow oracle of the metric."""

import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from helpers import metric_oracle as oracle
from helpers.analysed import answered, close, given, run
from helpers.metric_oracle import Row, problems, random_problems
from scipy import stats

from merge_metric.analyses.curves import ablations, accuracy, curves, first_answers
from merge_metric.frame.joined import Frame

SOURCES = ("snli", "mnli-m")
MODELS = ("a", "b", "c")

Data = dict[tuple[str, str], list[Row]]


@pytest.fixture(scope="module")
def data() -> Data:
    """(model, source) → rows: three models on two sources of 25 seeds in three subsamples."""
    rng = random.Random(7)
    result = {}
    for source in SOURCES:
        rows = random_problems(rng, seeds=25, variants=(2, 7), subsamples=3)
        for model, skill in zip(MODELS, (0.4, 0.6, 0.8), strict=True):
            result[model, source] = answered(rows, rng, skill)
    return result


@pytest.fixture(scope="module")
def runs(data: Data) -> list[Frame]:
    return [run(rows, model, source) for (model, source), rows in data.items()]


def test_curves_are_the_averages_over_subsamples(data: Data, runs: list[Frame]) -> None:
    table = curves(given(*runs))
    own, means = table.rows[: len(data)], table.rows[len(data) :]
    assert [(row["model"], row["config"]) for row in own] == list(data)
    for row in own:
        rows = data[row["model"], row["config"]]
        exact = oracle.averaged(rows)
        assert close(row["curve"], exact["curve"])
        for ct in (50, 60, 70, 80, 90, 100):
            assert close(row[f"sv_at_{ct}"], exact["curve"][ct - 1])
        for key in ("seed_accuracy", "variant_accuracy", "matching_threshold", "n_variants"):
            assert close(row[key], exact[key])
        assert row["n_seeds"] == row["seeds_per_subsample"] == 25
        drawn = sum(len(r.subsamples) for r in rows)
        assert close(row["variants_per_seed"], Fraction(drawn, 25 * 3))
        assert "curve_low" not in row
    assert [(row["model"], row["config"]) for row in means] == [("(mean)", s) for s in SOURCES]
    for row in means:  # over models, as in the paper's first version
        exact_curves = [oracle.averaged(data[name, row["config"]])["curve"] for name in MODELS]
        mean = [sum(values, Fraction(0)) / 3 for values in zip(*exact_curves, strict=True)]
        assert close(row["curve"], mean)
        assert close(row["sv_at_90"], mean[89])
        assert row["n_seeds"] == 25
        assert "matching_threshold" not in row


def test_curves_of_models_on_other_problems_are_not_averaged(data: Data) -> None:
    """They would differ in seeds or variants; nor does a single model have a mean."""
    rows, others = data["a", "snli"], [r for r in data["b", "snli"] if r.seed_id != "s:3"]
    assert len(curves(given(run(rows, "a", "snli"), run(others, "b", "snli"))).rows) == 2
    elsewhere = run(data["b", "snli"], "b", "snli", dataset="union")
    assert len(curves(given(run(rows, "a", "snli"), elsewhere)).rows) == 2


def with_test(rows: Sequence[Row], right: int, wrong: int) -> dict[str, bool]:
    """The seeds' own answers, and further test problems; other sources' problems do not count."""
    answers = {str(row.seed_id): row.own == row.gold for row in rows}
    answers |= {f"s:more-{n}": n < right for n in range(right + wrong)}
    return answers | {f"t:{n}": False for n in range(50)}


def test_accuracy_on_all_test_problems() -> None:
    rows = problems(*["E E E"] * 6, *["E N E"] * 4)
    table = accuracy(
        given(run(rows, config="s")), tests={"a": with_test(rows, 19, 1)}, n_subsamples=500
    )
    (row,) = table.rows
    assert (row["n_test"], row["n_seeds"]) == (30, 10)
    assert row["test_accuracy"] == 25 / 30
    assert row["seed_accuracy"] == 0.6
    exact = stats.hypergeom(30, 25, 10).sf(6)  # more than six right of ten drawn
    assert abs(row["higher_share"] - exact) < 4 * np.sqrt(exact * (1 - exact) / 500)
    assert "500 random sets" in table.notes[0]


def test_the_same_sets_are_drawn_for_every_model() -> None:
    rows = problems(*["E E E"] * 5, *["E N E"] * 3)
    test = with_test(rows, 12, 6)
    shuffled = dict(sorted(test.items(), reverse=True))
    both = given(run(rows, "a", "s"), run(rows, "b", "s"))
    table = accuracy(both, tests={"a": test, "b": shuffled}, rng_seed=4)
    first, second = (row["higher_share"] for row in table.rows)
    assert first == second
    assert 0 < first < 1
    assert table.notes[1] == f"s: higher in {100 * first:.1f} on average."


def test_seeds_must_be_among_the_test_problems(caplog: pytest.LogCaptureFixture) -> None:
    """Unknown ids are an error; seeds with other answers than before cause a warning."""
    one = given(run(problems("E E E", "E N E"), config="s"))
    with pytest.raises(ValueError, match=r"without 1 of 2 seeds: 's:1'"):
        accuracy(one, tests={"a": {"s:0": True, "s:2": False}})
    accuracy(one, tests={"a": {"s:0": True, "s:1": True, "s:2": False}})
    assert "1 of 2 seeds are right in only one" in caplog.text


def test_variants_of_seeds_answered_right_and_wrong(data: Data, runs: list[Frame]) -> None:
    table = first_answers(given(*runs))
    for row in table.rows:
        rows = data[row["model"], row["config"]]
        for which, wanted in (("right", True), ("wrong", False)):
            half = [r for r in rows if (r.own == r.gold) == wanted]
            exact = oracle.averaged(half)
            assert row[f"n_{which}"] == exact["n_seeds"]
            assert close(row[f"variant_accuracy_{which}"], exact["variant_accuracy"])
            assert close(row[f"sv_at_50_{which}"], exact["curve"][49])
            assert close(row[f"sv_at_100_{which}"], exact["curve"][99])
            parts = [oracle.by_seed(part).values() for part in oracle.parts(half)]
            shares = [
                Fraction(sum(row.prediction == row.gold for row in seed), len(seed))
                for seeds in parts
                for seed in seeds
            ]
            for key, enough in (("any", Fraction(1, 100)), ("half", Fraction(1, 2)), ("all", 1)):
                solved = sum(share >= enough for share in shares)
                assert close(row[f"n_{key}_{which}"], Fraction(solved, 3))
    mean = np.mean([row["variant_accuracy_right"] for row in table.rows if row["config"] == "snli"])
    told = f"snli: variant accuracy over models on average {100 * mean:.1f} where right"
    assert told in table.notes[1]


@pytest.fixture(scope="module")
def filters() -> dict[tuple[str, str], list[Row]]:
    """(dataset, model) → rows: the same ten seeds, with variants from other filters."""
    rng = random.Random(9)
    result = {}
    for dataset in ("merge-nli", "merge-nli-union"):
        rows = [
            oracle.Row(row.seed_id, "neutral", "neutral", "neutral", row.subsamples)
            for row in random_problems(rng, seeds=10, variants=(2, 5), subsamples=2)
        ]
        for model in MODELS:
            result[dataset, model] = answered(rows, rng, 0.6)
    return result


def test_ablations_are_averages_over_models(filters: dict[tuple[str, str], list[Row]]) -> None:
    runs = (run(rows, model, dataset=name) for (name, model), rows in filters.items())
    table = ablations(given(*runs))
    assert [row["dataset"] for row in table.rows] == ["merge-nli", "merge-nli-union"]
    for row in table.rows:
        exact = [oracle.averaged(filters[row["dataset"], model]) for model in MODELS]
        for key in ("curve", "seed_accuracy", "variant_accuracy"):
            assert close(row[key], np.mean([np.array(e[key], float) for e in exact], axis=0))
        assert row["models"] == list(MODELS)
        assert row["n_seeds"] == 10
        assert not any("threshold" in key for key in row)


def test_ablations_are_compared_on_the_seeds_that_all_have(
    filters: dict[tuple[str, str], list[Row]], caplog: pytest.LogCaptureFixture
) -> None:
    runs = []
    for (name, model), rows in filters.items():
        some = [row for row in rows if name != "merge-nli-union" or row.seed_id != "s:3"]
        runs.append(run(some, model, dataset=name))
    table = ablations(given(*runs))
    assert [row["n_seeds"] for row in table.rows] == [9, 9]
    assert "only the 9 seeds that all have are used, out of 10" in caplog.text
    rest = [row for row in filters["merge-nli", "a"] if row.seed_id != "s:3"]
    one_model = ablations(given(run(rest, dataset="x"), run(rest, dataset="y")))
    assert close(one_model.rows[0]["curve"], oracle.averaged(rest)["curve"])
