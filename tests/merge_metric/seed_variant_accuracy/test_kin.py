import random
from fractions import Fraction
from typing import Any

import pytest
from helpers import metric_oracle as oracle
from helpers.metric_oracle import LABELS, Row, columns, problems, random_problems
from hypothesis import given
from hypothesis import strategies as st

from merge_metric.seed_variant_accuracy.scoring import score

LABEL = st.sampled_from(LABELS)
SEEDS = st.lists(
    st.tuples(LABEL, LABEL, st.lists(LABEL, min_size=1, max_size=12)), min_size=1, max_size=8
)
KIN = oracle.FIGURES[-6:]


def rows_of(seeds: list[tuple[str, str, list[str]]]) -> list[Row]:
    return [
        Row(number, gold, own, prediction)
        for number, (gold, own, variants) in enumerate(seeds)
        for prediction in variants
    ]


def scored(rows: list[Row], **options: Any) -> dict[str, Any]:
    return score(**columns(rows), **{"n_bootstrap": 0, **options})


@given(SEEDS)
def test_minimum_consistency_accuracy_is_sv_accuracy(
    seeds: list[tuple[str, str, list[str]]],
) -> None:
    """MCA(c) is SV(100 c) at each of the hundred thresholds; the CAR curve is the SV curve."""
    rows = rows_of(seeds)
    found = scored(rows)["sv_curve"]["accuracy"]
    assert found == [float(oracle.mca(rows, Fraction(ct, 100))) for ct in range(1, 101)]


@given(SEEDS, st.integers(1, 100))
def test_against_slow_definitions(seeds: list[tuple[str, str, list[str]]], ct: int) -> None:
    rows = rows_of(seeds)
    result, expected = scored(rows, correctness_threshold=ct), oracle.kin(rows, ct)
    for key in KIN:
        if expected[key] is None:
            assert result[key] is None, key
        else:
            assert result[key] == pytest.approx(float(expected[key]), abs=1e-11), key


@given(SEEDS, st.integers(51, 100))
def test_they_fit_together(seeds: list[tuple[str, str, list[str]]], ct: int) -> None:
    """Each figure is bounded by the paper's figures, or composed of them."""
    result = scored(rows_of(seeds), correctness_threshold=ct)
    curve = result["sv_curve"]["accuracy"]
    assert result["contrast_consistency"] <= min(curve[99], result["seed_accuracy"])
    if result["seed_accuracy"]:
        unfooled = result["seed_accuracy"] * (1 - result["relaxed_fooling_rate"])
        assert result["contrast_consistency"] == pytest.approx(unfooled, abs=1e-12)
    assert 0 <= result["core_index"] <= 1
    assert result["core_index"] <= sum(curve[9::10]) / 10 + 1e-12
    assert result["agreement"] >= max(1 / 3, result["sv_curve_area"]) - 1e-12
    # Above one half, most variants agree either on the gold label or on a wrong one.
    stable = result["seed_variant_accuracy"] + result["stable_but_wrong"]
    assert stable <= 1 + 1e-12
    assert (result["agreement_gated_accuracy"] is None) == (stable == 0)


@given(SEEDS, st.permutations(LABELS))
def test_agreement_needs_no_gold_label(
    seeds: list[tuple[str, str, list[str]]], gold: list[str]
) -> None:
    others = [(gold[number % 3], own, variants) for number, (_, own, variants) in enumerate(seeds)]
    results = [scored(rows_of(each)) for each in (seeds, others)]
    assert results[0]["agreement"] == results[1]["agreement"]


def test_the_extremes() -> None:
    """A perfect model has 1 in all figures; a stable and wrong model is identified."""
    perfect, wrong = (scored(problems(*[f"E {a} {a * 5}"] * 3)) for a in "EN")
    assert [perfect[key] for key in KIN] == [1, 1, 1, 1, 1, 0]
    assert [wrong[key] for key in KIN] == [0, 0, 0, 1, 0, 1]


def test_equal_to_the_package_of_the_index() -> None:
    """`llm-consistency` 1.1, if it is installed: MCA, CORE and agreement-gated accuracy."""
    package = pytest.importorskip("llm_consistency.metrics", reason="pip install llm-consistency")
    rng = random.Random(5)
    for _ in range(30):
        rows = random_problems(rng, seeds=rng.randint(1, 30), variants=(1, 25))
        results = [
            package.build_question_consistency_result(
                name, [(row.prediction, row.prediction == row.gold) for row in variants]
            )
            for name, variants in oracle.by_seed(rows).items()
        ]
        found = scored(rows, correctness_threshold=(ct := rng.randint(1, 100)))
        curve = found["sv_curve"]["accuracy"]
        assert curve == [package.mca(results, n / 100) for n in range(1, 101)]
        assert found["core_index"] == pytest.approx(package.core_index(results), abs=1e-12)
        gated = package.agreement_gated_accuracy(results, ct / 100)
        assert (found["agreement_gated_accuracy"] or 0) == pytest.approx(gated, abs=1e-11)
        agreement = sum(each.rc_agree for each in results) / len(results)
        assert found["agreement"] == pytest.approx(agreement, abs=1e-11)
