import random
from typing import Any

import pytest
from helpers import metric_oracle as oracle
from helpers.metric_oracle import Row, columns, random_problems

from merge_metric.seed_variant_accuracy.scoring import score


def scored(rows: list[Row], **options: Any) -> dict[str, Any]:
    return score(**columns(rows), **{"n_bootstrap": 0, **options})


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
