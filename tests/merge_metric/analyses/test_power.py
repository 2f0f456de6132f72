import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from merge_metric.analyses.seeds_needed import Answers, power_rows
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.resampling import compare

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
