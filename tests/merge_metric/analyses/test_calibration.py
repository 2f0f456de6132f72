"""Calibration against scikit-learn, and against plain loops over resampled seeds."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.dataset_files import write_predictions
from helpers.sensitivity_data import LETTERS, answer_rows, write_lines
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from merge_metric import analyse
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.resampling import seed_weights

BINS = 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[dict[str, Any]]]:
    """A dataset, predictions with probabilities for it, and their rows."""
    folder, rng = tmp_path_factory.mktemp("calibrated"), random.Random(4)
    lines = [
        f"{rng.choice(LETTERS)} {rng.choice(LETTERS)} "
        f"{''.join(rng.choices(LETTERS, k=rng.randint(1, 6)))}"
        for _ in range(30)
    ]
    dataset = write_lines(folder / "merge-nli", "snli", lines)
    rows = answer_rows("snli", lines)
    return dataset, write_predictions(folder / "m.parquet", rows), rows


def test_figures_are_those_of_scikit_learn(
    made: tuple[Path, Path, list[dict[str, Any]]],
) -> None:
    dataset, file, rows = made
    table, _ = analyse("calibration", file, dataset, bins=BINS, n_bootstrap=20)
    seeds, variants = table.rows
    own = {row["seed_id"]: row for row in rows if row["variant_id"] == row["seed_id"]}
    others = [row for row in rows if row["variant_id"] != row["seed_id"]]
    for of, row in ((list(own.values()), seeds), (others, variants)):
        sure = np.array([max(answer["probabilities"]) for answer in of])
        right = np.array([answer["prediction"] == answer["label"] for answer in of])
        shares, means = calibration_curve(right, sure, n_bins=BINS, strategy="quantile")
        edges = np.quantile(sure, np.linspace(0, 1, BINS + 1))[1:-1]
        sizes = np.bincount(np.searchsorted(edges, sure), minlength=BINS)
        assert row["n"] == len(of) == sizes.sum()
        assert np.allclose(row["curve"], [means, shares])
        assert row["ece"] == pytest.approx((sizes * abs(shares - means)).sum() / len(of))
        assert row["brier"] == pytest.approx(brier_score_loss(right, sure))
        assert row["reliability"] == pytest.approx((sizes * (shares - means) ** 2).sum() / len(of))
        of_means = (sizes * (means**2 - 2 * means * shares + shares)).sum() / len(of)
        parts = row["reliability"] - row["resolution"] + row["uncertainty"]
        assert parts == pytest.approx(of_means)
        assert row["ece_ci"][0] <= row["ece_ci"][1]
    changed = [row["prediction"] != own[row["seed_id"]]["prediction"] for row in others]
    means = [
        np.mean([max(r["probabilities"]) for r, c in zip(others, changed, strict=True) if c == of])
        for of in (False, True)
    ]
    assert variants["drop"] == pytest.approx(means[1] - means[0])
    assert seeds["drop"] is None


def test_intervals_are_those_of_repeated_seeds(
    made: tuple[Path, Path, list[dict[str, Any]]],
) -> None:
    """Each resampling is the data with a seed's rows as often as it was drawn; bins stay."""
    dataset, file, rows = made
    table, _ = analyse("calibration", file, dataset, bins=BINS, n_bootstrap=40, rng_seed=3)
    others = [row for row in rows if row["variant_id"] != row["seed_id"]]
    sure = np.array([max(row["probabilities"]) for row in others])
    bins = np.searchsorted(np.quantile(sure, np.linspace(0, 1, BINS + 1))[1:-1], sure)
    ids = sorted({row["seed_id"] for row in rows})
    values = []
    (weights,) = seed_weights(len(ids), Settings(n_bootstrap=40, rng_seed=3))
    for drawn in weights:
        times = dict(zip(ids, drawn.astype(int).tolist(), strict=True))
        sums = np.zeros((BINS, 2))
        for row, confidence, bin_of in zip(others, sure, bins, strict=True):
            right = row["prediction"] == row["label"]
            sums[bin_of] += np.array([1, confidence - right]) * times[row["seed_id"]]
        values.append(abs(sums[:, 1]).sum() / sums[:, 0].sum())
    assert table.rows[1]["ece_ci"] == pytest.approx(np.quantile(values, [0.025, 0.975]).tolist())
