"""Jensen–Shannon divergence, Kolmogorov–Smirnov distance and σ against SciPy and by hand."""

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import jensenshannon

from merge_metric.seed_variant_accuracy.scoring import jensen_shannon, kolmogorov_smirnov


@pytest.mark.parametrize("labels", [2, 3, 7])
def test_jensen_shannon_against_scipy(labels: int) -> None:
    rng = np.random.default_rng(labels)
    p, q = rng.dirichlet([0.3] * labels, size=(2, 200))
    p[:50, 0], q[25:75, -1] = 0.0, 0.0
    p, q = (x / x.sum(axis=1, keepdims=True) for x in (p, q))
    result = jensen_shannon(p, q)
    expected = [jensenshannon(a, b, base=2) ** 2 for a, b in zip(p, q, strict=True)]
    assert result == pytest.approx(expected, abs=1e-12)
    assert jensen_shannon(q, p) == pytest.approx(result, abs=1e-15)
    assert result.shape == (200,)


def test_jensen_shannon_stays_within_its_bounds() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1, 1], size=2000)
    nearly = p * (1 + 1e-15 * rng.standard_normal(p.shape))
    assert (jensen_shannon(p, nearly) >= 0).all()
    one_hot = np.eye(3)[rng.integers(3, size=500)]
    assert (jensen_shannon(one_hot, np.roll(one_hot, 1, axis=1)) <= 1).all()


@pytest.mark.parametrize("labels", [2, 3, 7])
def test_kolmogorov_smirnov_against_scipy(labels: int) -> None:
    """Compare with `ks_2samp` of samples in which labels have the given frequencies."""
    rng = np.random.default_rng(labels)
    times = rng.multinomial(60, rng.dirichlet([0.5] * labels, size=40), size=(2, 40))
    p, q = times / 60
    result = kolmogorov_smirnov(p, q)
    samples = [[np.repeat(range(labels), row) for row in time] for time in times]
    expected = [
        stats.ks_2samp(x, y, method="asymp").statistic for x, y in zip(*samples, strict=True)
    ]
    assert result == pytest.approx(expected, abs=1e-12)
    assert kolmogorov_smirnov(q, p) == pytest.approx(result, abs=1e-15)
