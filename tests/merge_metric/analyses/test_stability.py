"""Draws of seeds: against draws taken one by one, worked examples and simulated intervals."""

import random
from fractions import Fraction
from statistics import fmean

import numpy as np
import pytest
from helpers import metric_oracle as oracle
from helpers.analysed import answered, given, random_dataset, run

from merge_metric.analyses.seeds_needed import (
    draw_seeds,
    influence_of,
    needed,
    plot_stability,
    stability,
)
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.resampling import bootstrap, interval


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
