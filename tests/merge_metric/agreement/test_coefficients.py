"""κ and α: by hand, against libraries on random answers, and resampled."""

from typing import get_args

import krippendorff
import numpy as np
import pytest
from helpers.judged import alpha, kappa
from sklearn.metrics import cohen_kappa_score

from merge_metric.agreement.coefficients import (
    Codes,
    Level,
    Weighting,
    alphas,
    coincidences,
    confusions,
    kappas,
    resampled,
)
from merge_metric.seed_variant_accuracy.options import Settings


def by_sklearn(a: Codes, b: Codes, k: int, weighting: Weighting) -> float:
    """κ by scikit-learn, which needs a list of all answers."""
    both = (a > 0) & (b > 0)
    if len(np.unique([a[both], b[both]])) < 2:
        return np.nan
    weights = None if weighting == "plain" else weighting
    labels = np.arange(1, k + 1)
    return float(cohen_kappa_score(a[both], b[both], labels=labels, weights=weights))


def by_krippendorff(codes: Codes, k: int, level: Level) -> float:
    pairable = codes[:, (codes > 0).sum(axis=0) >= 2]
    if len(np.unique(pairable[pairable > 0])) < 2:
        return np.nan
    data = np.where(pairable > 0, pairable, np.nan)
    domain = np.arange(1.0, k + 1)
    how = {"value_domain": domain, "level_of_measurement": level}
    return float(krippendorff.alpha(reliability_data=data, **how))


def random_codes(rng: np.random.Generator, annotators: int, n: int, k: int) -> Codes:
    """Random answers near a common truth, a fifth of them missing."""
    truth = rng.integers(1, k + 1, n)
    codes = np.clip(truth + rng.integers(-1, 2, (annotators, n)), 1, k)
    return np.where(rng.random((annotators, n)) < 0.2, 0, codes).astype(np.int8)


@pytest.mark.parametrize("number", range(20))
def test_figures_and_replicates_are_those_of_libraries(number: int) -> None:
    rng = np.random.default_rng(number)
    k = int(rng.choice([2, 5]))
    codes = random_codes(rng, int(rng.integers(2, 6)), int(rng.integers(4, 30)), k)
    a, b = codes[:2]
    for weighting in get_args(Weighting):
        expected = pytest.approx(by_sklearn(a, b, k, weighting), rel=1e-12, nan_ok=True)
        assert kappa(a, b, k, weighting) == expected
        (replicate,) = kappas(confusions(a, b, k).sum(axis=0)[None], weighting)
        assert replicate == expected
    for level in get_args(Level):
        expected = pytest.approx(by_krippendorff(codes, k, level), rel=1e-12, nan_ok=True)
        assert alpha(codes, k, level) == expected
        (replicate,) = alphas(coincidences(codes, k).sum(axis=0)[None], level)
        assert replicate == expected


def test_seeds_are_drawn_with_all_their_variants() -> None:
    nine = list("abcdefghi")
    one, again, other = (resampled(nine, Settings(n_bootstrap=5, rng_seed=n)) for n in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()
    draws = resampled(["s", "t", "s", "u"], Settings(n_bootstrap=50))
    assert (draws[:, 0] == draws[:, 2]).all()
    assert set(draws[:, [0, 1, 3]].sum(axis=1)) == {3.0}
