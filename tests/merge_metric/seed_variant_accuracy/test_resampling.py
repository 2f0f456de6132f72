"""Bootstrap over seeds against its exact distribution, coverage, and paired comparison."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers import metric_oracle as oracle
from helpers.analysed import answered
from helpers.metric_oracle import LABELS, Row, columns, problems, random_problems
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar

from merge_metric.seed_variant_accuracy import resampling
from merge_metric.seed_variant_accuracy.inputs import read_rows
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.resampling import compare, mcnemar
from merge_metric.seed_variant_accuracy.scoring import SeedCounts, count, score

REPLICATES = 10_000
CHANCE = 4 * math.sqrt(0.025 * 0.975 / REPLICATES)
"""Most by which the share of replicates below a percentile may differ from 2.5 %."""


def counts_of(rows: Sequence[Row], *, subsamples: bool = False) -> SeedCounts:
    return count(read_rows(**columns(rows, subsamples=subsamples)))


Outcomes = list[tuple[dict[str, Any], float]]


def outcomes(rows: Sequence[Row], figures: Callable[[list[Row]], dict[str, Any]]) -> Outcomes:
    """Figures of every possible resample of the seeds, with their probabilities."""
    return [
        (figures(oracle.resampled(rows, times)), float(probability))
        for times, probability in oracle.every_resample(list(oracle.by_seed(rows)))
    ]


def assert_exact(bounds: Any, key: str, of: Outcomes) -> None:
    """Require that an interval is that of all possible resamples, up to chance."""
    values = [(float(item[key]), p) for item, p in of if item[key] is not None]
    for bound, at in zip(bounds, (0.025, 0.975), strict=True):
        least, most = (oracle.quantile(values, at + side) for side in (-CHANCE, CHANCE))
        assert least - 1e-9 <= bound <= most + 1e-9, (key, at, least, bound, most)


def test_intervals_are_those_of_all_resamples() -> None:
    """Five seeds have 126 resamples; their exact percentiles are the intervals."""
    rows = problems("E E EEEEN", "E N EEENN", "C C CCCCC", "N N NNEEE", "N N NNNNE")
    result = score(**columns(rows), n_bootstrap=REPLICATES, correctness_threshold=60)
    exact = outcomes(rows, lambda drawn: oracle.averaged(drawn, 60))
    for key in oracle.FIGURES:
        assert_exact(result[f"{key}_ci"], key, exact)
        assert result[f"{key}_ci"][0] < result[f"{key}_ci"][1]
    curve = result["sv_curve"]
    assert len(curve["low"]) == len(curve["high"]) == 100
    for at in (20, 41, 61, 100):
        at_one = [({"sv": item["curve"][at - 1]}, p) for item, p in exact]
        assert_exact([curve[end][at - 1] for end in ("low", "high")], "sv", at_one)


@pytest.mark.slow
def test_intervals_in_subsamples_are_those_of_all_resamples() -> None:
    rows = random_problems(random.Random(8), seeds=4, variants=(3, 4), subsamples=2, skill=0.5)
    result = score(**columns(rows, subsamples=True), n_bootstrap=REPLICATES)
    assert 0 < result["seed_accuracy"] < 1
    exact = outcomes(rows, oracle.averaged)
    keys = [key for key in exact[0][0] if f"{key}_ci" in result]
    assert len(keys) == len(oracle.FIGURES) + 1
    for key in keys:
        assert_exact(result[f"{key}_ci"], key, exact)


def test_intervals_come_out_alike_however_replicates_are_batched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kwargs = columns(random_problems(random.Random(3), seeds=13, subsamples=2), subsamples=True)
    expected = score(**kwargs, n_bootstrap=50)
    for draws in (1, 13, 100):
        monkeypatch.setattr(resampling, "_CHUNK", draws)
        assert score(**kwargs, n_bootstrap=50) == expected


VARIANTS = 20
BETA = stats.beta(4, 1)
"""Distribution of the probability that a seed, and each of its variants, is answered right."""


def expectation(function: Callable[[float], float]) -> float:
    value, _ = integrate.quad(lambda p: function(p) * BETA.pdf(p), 0, 1)
    return float(value)


def simulated(rng: np.random.Generator, p: np.ndarray) -> dict[str, Any]:
    """Answers to seeds and variants; half of the wrong ones are the opposite."""

    def answers(p: np.ndarray) -> np.ndarray:
        wrong = np.where(rng.random(p.shape) < 0.5, 1, 2)
        return np.where(rng.random(p.shape) < p, 0, wrong)

    own, seed = answers(p), np.repeat(np.arange(len(p)), VARIANTS)
    return {
        "predictions": answers(p[seed]), "references": np.zeros(len(seed), int), "seed_ids": seed,
        "seed_predictions": own[seed],
    }  # fmt: skip


@pytest.mark.slow
def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """They do in about 95 % of simulations; intervals over rows would do so far less often."""
    mean = expectation(lambda p: p)
    at_90 = expectation(lambda p: float(stats.binom.sf(17, VARIANTS, p)))
    truth = {
        "seed_accuracy": mean, "variant_accuracy": mean, "seed_variant_accuracy": at_90,
        "qt_gap": mean - at_90,
        "relaxed_fooling_rate": 1 - expectation(lambda p: p * p**VARIANTS) / mean,
        "strict_fooling_rate": 1 - expectation(lambda p: p * ((1 + p) / 2) ** VARIANTS) / mean,
    }  # fmt: skip
    curve = [  # at CT k %, which needs a whole number of variants
        expectation(lambda p, k=k: float(stats.binom.sf(-(-k * VARIANTS // 100) - 1, VARIANTS, p)))
        for k in range(1, 101)
    ]
    truth["matching_threshold"] = 1.0 + int(np.argmin(np.abs(np.array(curve) - mean)))
    simulations, covered, by_rows = 200, dict.fromkeys(truth, 0), 0
    rng = np.random.default_rng(11)
    for number in range(simulations):
        data = simulated(rng, rng.beta(*BETA.args, 200))
        result = score(**data, n_bootstrap=300, rng_seed=number)
        for key, value in truth.items():
            low, high = result[f"{key}_ci"]
            covered[key] += low <= value <= high
        share = result["variant_accuracy"]
        half = 1.96 * math.sqrt(share * (1 - share) / result["n_variants"])
        by_rows += abs(share - mean) <= half
    # MC moves in steps, and its intervals cover more than nominally, as the card notes.
    assert covered.pop("matching_threshold") / simulations > 0.97
    for key, times in covered.items():
        assert 0.92 <= times / simulations <= 0.98, (key, times)
    assert by_rows / simulations < 0.8


Models = tuple[SeedCounts, SeedCounts, list[Row], list[Row]]


@pytest.fixture
def two_models() -> Models:
    rng = random.Random(0)
    first = answered(random_problems(rng, seeds=25), rng, 0.8)
    second = answered(first, rng, 0.5)
    rng.shuffle(second)
    return counts_of(first), counts_of(second), first, second


def test_comparison_says_both_figures_and_their_difference(two_models: Models) -> None:
    a, b, first, second = two_models
    result = compare(a, b, Settings(correctness_threshold=60, n_bootstrap=50))
    of_a, of_b = oracle.figures(first, 60), oracle.figures(second, 60)
    assert set(oracle.FIGURES) | {"mcnemar"} == set(result)
    for key in oracle.FIGURES:
        x, y = of_a[key], of_b[key]
        assert x is not None
        assert y is not None
        assert result[key]["a"] == pytest.approx(float(x)), key
        assert result[key]["b"] == pytest.approx(float(y)), key
        assert result[key]["difference"] == pytest.approx(float(x - y), abs=1e-12), key
        assert set(result[key]) == {"a", "b", "difference", "ci", "p_value"}
        low, high = result[key]["ci"]
        assert low <= high
        assert 0 < result[key]["p_value"] <= 1


def test_comparison_is_antisymmetric(two_models: Models) -> None:
    a, b, *_ = two_models
    settings = Settings(n_bootstrap=101, rng_seed=3)
    forth, back = compare(a, b, settings), compare(b, a, settings)
    for key in oracle.FIGURES:
        assert forth[key]["a"] == back[key]["b"]
        assert forth[key]["difference"] == -back[key]["difference"]
        low, high = back[key]["ci"]
        assert forth[key]["ci"] == pytest.approx([-high, -low], abs=1e-12)
        assert forth[key]["p_value"] == back[key]["p_value"]
    assert forth["mcnemar"]["only_a"] == back["mcnemar"]["only_b"]
    assert forth["mcnemar"]["p_value"] == back["mcnemar"]["p_value"]
    alike = compare(a, a, Settings(n_bootstrap=100))
    for key in oracle.FIGURES:
        assert alike[key].items() >= {"difference": 0, "ci": [0.0, 0.0], "p_value": 1.0}.items()
    assert alike["mcnemar"] == {"only_a": 0, "only_b": 0, "p_value": 1.0}


def test_rounding_is_no_difference() -> None:
    """Equal answers in other subsamples have equal mean figures, up to rounding."""
    rng = random.Random(2)
    first, second = [], []
    for seed in range(30):
        answers = [[rng.choice("EEEN") for _ in range(7)] for _ in range(3)]
        for subsample, predictions in enumerate(answers):
            for model, item in ((first, predictions), (second, answers[(subsample + 1) % 3])):
                rows = problems(f"E {'EN'[seed % 2]} {''.join(item)}")
                model += [replace(row, seed_id=seed, subsamples=(subsample,)) for row in rows]
    both = (counts_of(rows, subsamples=True) for rows in (first, second))
    result = compare(*both, Settings(n_bootstrap=50))
    for key in oracle.FIGURES:
        assert result[key]["ci"] == pytest.approx([0, 0], abs=1e-9), key
        assert result[key]["p_value"] == 1.0, key


def test_both_models_see_the_same_resamples() -> None:
    """If models differ on 8 of 60 seeds, the paired difference is binomial."""
    n, differing = 60, 8
    lines = ["E E EE", "E N EN"] * 30
    better = problems(*lines)
    lost = {f"s:{2 * i}" for i in range(differing)}
    worse = [replace(row, own="neutral") if row.seed_id in lost else row for row in better]
    result = compare(counts_of(better), counts_of(worse), Settings(n_bootstrap=REPLICATES))
    binomial = stats.binom(n, differing / n)
    expected = [binomial.ppf(at) / n for at in (0.025, 0.975)]
    assert result["seed_accuracy"]["difference"] == pytest.approx(differing / n)
    assert result["seed_accuracy"]["ci"] == pytest.approx(expected)
    # Only resamples without any of the eight are not on this side of zero.
    none = 2 * binomial.pmf(0)
    p_value = result["seed_accuracy"]["p_value"]
    assert p_value == pytest.approx(none, abs=6 * math.sqrt(none / REPLICATES))
    assert result["variant_accuracy"]["p_value"] == 1.0
    assert result["mcnemar"]["only_a"] == differing


def test_comparison_of_what_is_undefined() -> None:
    """A figure that one model lacks cannot be compared, nor can models on other data."""
    a = counts_of(problems("E E EE", "E E EN"))
    b = counts_of(problems("E N EE", "E N EN"))
    result = compare(a, b, Settings(n_bootstrap=20))["relaxed_fooling_rate"]
    assert (result["a"], result["b"], result["difference"]) == (0.5, None, None)
    assert result["p_value"] is None
    for lines, more, telling in (
        (("E E EE", "E E EN", "N N NN"), {}, "got other seeds"),
        (("E E EE",), {}, "got other seeds"),
        (("E E EE", "N N NN"), {}, "gold labels"),
        (("E E EE", "E E EEN"), {}, "numbers of variants"),
        (("E E EE", "E E EN"), {"subsamples": [[0, 1]] * 4}, "subsamples"),
        (("E E EE", "E E EN"), {"subsamples": [[0]] * 4}, "subsamples"),
        (("E E EE", "E E EN"), {"labels": [*LABELS, "other"]}, "gold labels"),
    ):
        other = count(read_rows(**columns(problems(*lines)), **more))
        for pair in ((a, other), (other, a)):
            with pytest.raises(ValueError, match=f"expected the same seeds.*{telling}"):
                compare(*pair)


def test_mcnemar_against_statsmodels_and_scipy() -> None:
    pairs = [(a, b) for a in range(9) for b in range(9)] + [(40, 61), (300, 350), (1200, 1100)]
    for a, b in pairs:
        expected = statsmodels_mcnemar([[5, a], [b, 9]], exact=True).pvalue
        assert mcnemar(a, b) == pytest.approx(expected, rel=1e-9), (a, b)
        if a + b:
            assert mcnemar(a, b) == pytest.approx(stats.binomtest(a, a + b).pvalue, rel=1e-9)
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(0, 6) == 0.03125
    assert mcnemar(5, 5) == 1.0


LINES = ("E E EEEE", "E N EEEN", "E E NNNN", "C C CNNE", "N N NNNN")
PREMISES = ("p", "q", "p", "r", "r")
"""Premises of the five seeds of `LINES`."""


def clustered(rows: Sequence[Row], premises: Sequence[Any], **options: Any) -> dict[str, Any]:
    values = [premises[int(row.seed_id[2:])] for row in rows]
    return score(**columns(rows), clusters={"premise": values}, **options)


def every_draw(rows: Sequence[Row], premises: Sequence[str]) -> Iterator[list[Row]]:
    """Yield the rows of each possible draw of premises; all draws are equally probable."""
    distinct = sorted(set(premises))
    for drawn in product(distinct, repeat=len(distinct)):
        times = {f"s:{n}": drawn.count(premise) for n, premise in enumerate(premises)}
        yield oracle.resampled(rows, times)


def test_intervals_are_those_of_all_draws_of_premises() -> None:
    rows = problems(*LINES)
    result = clustered(rows, PREMISES, n_bootstrap=REPLICATES, correctness_threshold=70)
    exact = [(oracle.averaged(drawn, 70), 1 / 27) for drawn in every_draw(rows, PREMISES)]
    for key in oracle.FIGURES:
        assert_exact(result[f"{key}_ci"], key, exact)
    # A binomial over seeds would give another interval.
    assert result["seed_accuracy_ci"] != score(**columns(rows))["seed_accuracy_ci"]


def intervals(rows: list[Row], premises: Sequence[Any] | None = None) -> list[Any]:
    """Intervals of all figures of five replicates, by clusters if there are any."""
    several = len(rows[0].subsamples) > 1 or any(len(row.subsamples) != 1 for row in rows)
    clusters = premises and {"premise": [premises[int(row.seed_id[2:])] for row in rows]}
    given = columns(rows, subsamples=several)
    result = score(**given, clusters=clusters, n_bootstrap=5, rng_seed=1)
    return [result["sv_curve"], *(result[key] for key in result if key.endswith("_ci"))]


@given(st.randoms(use_true_random=False), st.booleans())
def test_premises_of_one_seed_each_change_nothing(rng: random.Random, several: bool) -> None:
    rows = random_problems(rng, seeds=6, skill=0.9, subsamples=2 if several else 0)
    premises = [f"premise {n}" for n in range(6)]
    assert repr(intervals(rows, premises)) == repr(intervals(rows))


@given(st.randoms(use_true_random=False))
def test_names_and_order_decide_nothing(rng: random.Random) -> None:
    rows = random_problems(rng, seeds=8, variants=(1, 3))
    premises = [rng.randrange(4) for _ in range(8)]
    order, names = rng.sample(range(8), 8), rng.sample("abcd", 4)
    renamed = [replace(row, seed_id=f"s:{order[int(row.seed_id[2:])]}") for row in rows]
    rng.shuffle(renamed)
    moved = [names[premises[order.index(n)]] for n in range(8)]
    assert repr(intervals(rows, premises)) == repr(intervals(renamed, moved))


def test_comparisons_draw_premises() -> None:
    values = [*np.repeat(PREMISES, 4)]
    better, worse = problems(*LINES), problems(*(f"{line[:2]}N{line[3:]}" for line in LINES))

    def counts_of(rows: list[Row], premises: Sequence[str] | None = values) -> Any:
        clusters = premises and {"premise": premises}
        return count(read_rows(**columns(rows), clusters=clusters))

    together = compare(counts_of(better), counts_of(worse), Settings(n_bootstrap=500))
    alone = compare(counts_of(better, None), counts_of(worse, None), Settings(n_bootstrap=500))
    assert together["seed_accuracy"]["difference"] == alone["seed_accuracy"]["difference"]
    assert together["seed_accuracy"]["ci"] != alone["seed_accuracy"]["ci"]
    with pytest.raises(ValueError, match=r"expected the same seeds.*other clusters"):
        compare(counts_of(better), counts_of(worse, ["one"] * 20))


def test_signature_says_so() -> None:
    rows = problems(*LINES)
    plain = score(**columns(rows), n_bootstrap=5)
    one, other = (clustered(rows, p, n_bootstrap=5) for p in (PREMISES, "ppppp"))
    assert "|bootstrap:5|cluster:premise|rng_seed:0|" in one["signature"]
    assert "|b:5|g:premise|r:0|" in one["signature_short"]
    assert len({item["signature"] for item in (plain, one, other)}) == 3
    assert clustered(rows, "qrqpp", n_bootstrap=5)["signature"] == one["signature"]
    assert "cluster" not in clustered(rows, PREMISES, n_bootstrap=0)["signature"]
