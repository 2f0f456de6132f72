"""Draws of seeds, and differences that they show: one by one, by hand and in simulations."""

import random
from fractions import Fraction
from statistics import fmean

import numpy as np
import pytest
from helpers import metric_oracle as oracle
from helpers.analysed import answered, given, random_dataset, run
from numpy.typing import NDArray
from scipy.stats import binom

from merge_metric.analyses.seeds_needed import (
    Answers,
    draw_seeds,
    influence_of,
    needed,
    plot_stability,
    power_rows,
    stability,
)
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.resampling import bootstrap, compare, interval


def some_rows(seeds: int, *, skill: float = 0.6, number: int = 3) -> list[oracle.Row]:
    rng = random.Random(number)
    return answered(random_dataset(rng, seeds=seeds), rng, skill)


def test_figures_of_draws_are_those_of_their_seeds() -> None:
    rows = some_rows(30)
    table = stability(given(run(rows)), draws=8, seeds=12, settings=Settings(60, rng_seed=5))
    ids = sorted({row.seed_id for row in rows})
    result = {row["figure"]: row for row in table.rows}
    assert list(result) == ["entailment", "neutral", "contradiction", "S", "SV@60"]
    for number, drawn in enumerate(draw_seeds(len(ids), 12, 8, 5, "")):
        mine = {seed for seed, times in zip(ids, drawn, strict=True) if times}
        assert len(mine) == 12
        part = [row for row in rows if row.seed_id in mine]
        exact = oracle.averaged(part)
        golds = [next(row.gold for row in part if row.seed_id == seed) for seed in sorted(mine)]
        expected = {
            "S": exact["seed_accuracy"],
            "SV@60": exact["curve"][59],
            **{label: Fraction(golds.count(label), 12) for label in list(result)[:3]},
        }
        for figure, value in expected.items():
            assert result[figure]["draws"][number] == pytest.approx(float(value), abs=1e-12)
    whole = oracle.averaged(rows)
    assert result["SV@60"]["value"] == pytest.approx(float(whole["curve"][59]), abs=1e-12)
    for row in result.values():
        off = [abs(value - row["value"]) for value in row["draws"]]
        assert row["mean_off"] == pytest.approx(fmean(off))
        assert row["largest_off"] == max(off)
        assert (row["n_seeds"], row["n_drawn"]) == (30, 12)


def test_models_see_the_same_draws_and_labels_are_told_once() -> None:
    rows = some_rows(30)
    others = [row for row in rows if row.seed_id != "s:3"]
    runs = [run(rows, "a"), run(answered(rows, random.Random(1), 0.6), "b"), run(others, "c")]
    table = stability(given(*runs), seeds=10)
    told = [(row["model"], row["figure"]) for row in table.rows]
    labels = ["entailment", "neutral", "contradiction"]
    expected = [(None, label) for label in labels] + [(m, f) for m in "ab" for f in ("S", "SV@90")]
    assert told == [*expected, *(("c", label) for label in labels), ("c", "S"), ("c", "SV@90")]
    alone = stability(given(runs[1]), seeds=10)
    assert alone.rows[3]["draws"] == table.rows[5]["draws"]
    plot_stability(table)


def test_seeds_that_some_subsamples_lack_count_as_in_the_metric() -> None:
    """Three seeds; the last one is only in the first of two subsamples.

    The first is solved in both, the third in its own: (2/3 + 1/2) / 2 = 7/12.
    """
    holds = np.array([[True, True], [False, False], [True, False]])
    present = np.array([[True, True], [True, True], [True, False]])
    assert influence_of(holds, present).mean() == pytest.approx(7 / 12)
    everywhere = influence_of(holds, np.ones((3, 2), bool))
    assert everywhere.tolist() == pytest.approx([1.0, 0.0, 0.5])


def test_seeds_that_an_interval_takes() -> None:
    """The formula for a share by hand, 4 z² p (1 − p) / w², and the metric's own bootstrap."""
    ninety = np.repeat([0.0, 1.0], [10, 90])
    assert needed(ninety, 0.05) == 554  # 4 * 3.8415 * 0.09 / 0.0025 = 553.2
    assert needed(np.ones(40), 0.05) is None
    counts = run(some_rows(1500, number=9)).counts
    ((replicates, _),) = bootstrap([counts], Settings(n_bootstrap=2000, rng_seed=0))
    for key, holds in (
        ("seed_accuracy", counts.right[:, None]),
        ("seed_variant_accuracy", counts.level >= 90),
    ):
        low, high = interval(replicates[key])
        # This width takes the seeds that gave it, up to the bootstrap's noise.
        result = needed(influence_of(holds, counts.present), high - low)
        assert result == pytest.approx(1500, rel=0.1)


LABELS = ("entailment", "neutral", "contradiction")


def chances(easy: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities (S, 2) that two models are right on variants, from the ease of seeds."""
    return np.clip(easy[:, None] + np.array([0.03, -0.03]), 0.01, 0.99)


def simulated(n_seeds: int, rng: np.random.Generator, *, per_seed: int = 20) -> Answers:
    """Two models that find the same seeds hard; the first is a few points better."""
    chance = chances(rng.beta(0.6, 0.25, size=n_seeds))
    seed = np.repeat(np.arange(n_seeds), per_seed)
    right, own = rng.random((len(seed), 2)) < chance[seed], rng.random((n_seeds, 2)) < chance
    return seed, right, own, np.arange(n_seeds)


def counts_of(answers: Answers, model: int) -> SeedCounts:
    seed, right, seed_right, _ = answers
    n_seeds = len(seed_right)
    tally = np.zeros((n_seeds, 1, 4), np.int64)
    np.add.at(tally, (seed, 0, np.where(right[:, model], 0, 1)), 1)
    return SeedCounts.of_tally(
        tally, labels=LABELS, seed_ids=tuple(range(n_seeds)),
        gold=np.zeros(n_seeds, np.int64), own=np.where(seed_right[:, model], 0, 1),
        n_rows=np.bincount(seed),
    )  # fmt: skip


def test_rows_by_plain_reading() -> None:
    rng = np.random.default_rng(0)
    seed, right, own, unit = simulated(60, rng)
    kept = rng.random(len(seed)) < 0.7  # seeds with different numbers of variants
    seed, right = seed[kept], right[kept]
    pair = (seed, right, own, unit)
    rows = {
        row["figure"]: row for row in power_rows(pair, difference=3.0) if row["per_seed"] != "5"
    }
    compared = compare(counts_of(pair, 0), counts_of(pair, 1), Settings(n_bootstrap=10))
    keys = {"S": "seed_accuracy", "var.acc": "variant_accuracy", "SV@90": "seed_variant_accuracy"}
    for heading, key in keys.items():
        assert rows[heading]["difference"] == pytest.approx(compared[key]["difference"])
    less = [int(a) - int(b) for a, b in own]
    mean = sum(less) / 60
    error = (sum((item - mean) ** 2 for item in less) / 59 / 60) ** 0.5
    assert rows["S"]["standard_error"] == pytest.approx(error)
    assert rows["S"]["smallest"] == pytest.approx((1.959964 + 0.841621) * error, rel=1e-5)
    assert rows["S"]["needed"] == int(np.ceil(60 * (rows["S"]["smallest"] / 0.03) ** 2))
    # Variant accuracy is a ratio: the jackknife is nearly the same.
    number, first, second = (np.bincount(seed, item) for item in (np.ones(len(seed)), *right.T))
    left_out = [
        (np.delete(first, s).sum() - np.delete(second, s).sum()) / np.delete(number, s).sum()
        for s in range(60)
    ]
    jackknife = (59 / 60 * ((np.array(left_out) - np.mean(left_out)) ** 2).sum()) ** 0.5
    assert rows["var.acc"]["standard_error"] == pytest.approx(jackknife, rel=0.03)


def test_clusters_and_nothing_that_varies() -> None:
    pair = seed, right, own, unit = simulated(50, np.random.default_rng(1))
    thrice = np.concatenate([seed + 50 * copy for copy in range(3)])
    copies = (thrice, np.tile(right, (3, 1)), np.tile(own, (3, 1)), np.tile(unit, 3))
    for row, copy in zip(power_rows(pair), power_rows(copies), strict=True):
        if row["per_seed"] in (None, "all"):
            assert copy["smallest"] == pytest.approx(row["smallest"])
            assert copy["needed"] == pytest.approx(3 * row["needed"], abs=3)
    same = (seed, right[:, [0, 0]], own[:, [0, 0]], unit)
    assert {row["needed"] for row in power_rows(same)} == {None}


@pytest.mark.slow
def test_so_many_seeds_show_the_difference_in_four_of_five() -> None:
    """A pilot gives a number of seeds; of simulated datasets of this size, 80 % have p ≤ .05."""
    rng = np.random.default_rng(2)
    chance = chances(rng.beta(0.6, 0.25, size=200_000))
    right = binom.sf(17, 20, chance)  # 18 of 20 are 90 %
    difference = float((right[:, 0] - right[:, 1]).mean())
    needed = next(
        row["needed"]
        for row in power_rows(simulated(4000, rng), difference=100 * difference)
        if row["figure"] == "SV@90" and row["per_seed"] in (None, "all")
    )
    result = []
    for number in range(300):
        pair = simulated(needed, rng)
        both = (counts_of(pair, 0), counts_of(pair, 1))
        compared = compare(*both, Settings(n_bootstrap=300, rng_seed=number))
        result.append(compared["seed_variant_accuracy"]["p_value"] <= 0.05)
    assert np.mean(result) == pytest.approx(0.8, abs=0.07)
