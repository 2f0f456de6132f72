import random
from fractions import Fraction
from typing import Any

import pytest
from helpers import metric_oracle as oracle
from helpers.metric_oracle import LABELS, Row, columns, random_problems
from hypothesis import given
from hypothesis import strategies as st

from merge_metric.seed_variant_accuracy.scoring import score

LABEL = st.sampled_from(LABELS)
SEEDS = st.lists(
    st.tuples(LABEL, LABEL, st.lists(LABEL, min_size=1, max_size=12)), min_size=1, max_size=8
)


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
    result = scored(rows)["sv_curve"]["accuracy"]
    assert result == [float(oracle.mca(rows, Fraction(ct, 100))) for ct in range(1, 101)]


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
        result = scored(rows, correctness_threshold=(ct := rng.randint(1, 100)))
        curve = result["sv_curve"]["accuracy"]
        assert curve == [package.mca(results, n / 100) for n in range(1, 101)]
        assert result["core_index"] == pytest.approx(package.core_index(results), abs=1e-12)
        gated = package.agreement_gated_accuracy(results, ct / 100)
        assert (result["agreement_gated_accuracy"] or 0) == pytest.approx(gated, abs=1e-11)
        agreement = sum(result.rc_agree for result in results) / len(results)
        assert result["agreement"] == pytest.approx(agreement, abs=1e-11)
