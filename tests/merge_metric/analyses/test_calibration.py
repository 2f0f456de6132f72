"""Calibration against scikit-learn and plain loops; shift and confidence against an oracle."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import metric_oracle as oracle
from helpers.analysed import answered, given
from helpers.dataset_files import write_predictions
from helpers.metric_oracle import columns, problems, random_problems
from helpers.sensitivity_data import LETTERS, answer_rows, run_with_probabilities, write_lines
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from merge_metric import analyse
from merge_metric.analyses.sensitivity import confidence, shift
from merge_metric.frame.joined import Frame
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


def test_figures_are_those_of_scikit_learn(made: tuple[Path, Path, list[dict[str, Any]]]) -> None:
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
        for row, of_answer, bin_of in zip(others, sure, bins, strict=True):
            right = row["prediction"] == row["label"]
            sums[bin_of] += np.array([1, of_answer - right]) * times[row["seed_id"]]
        values.append(abs(sums[:, 1]).sum() / sums[:, 0].sum())
    assert table.rows[1]["ece_ci"] == pytest.approx(np.quantile(values, [0.025, 0.975]).tolist())


def test_shift_and_confidence_are_those_of_the_oracle() -> None:
    rng = random.Random(11)
    runs, exact = list[Frame](), dict[tuple[str, str], dict[str, float | None]]()
    for config in ("snli", "mnli-m"):
        problems_ = random_problems(rng, seeds=12, variants=(1, 5), subsamples=2)
        for model in "ab":
            rows = answered(problems_, rng, 0.6)
            of_rows = columns(rows, subsamples=True)
            one, after, before = run_with_probabilities(rows, of_rows, model, config)
            runs.append(one)
            # Rows that no subsample drew do not belong to the data.
            drawn = [n for n, row in enumerate(rows) if row.subsamples]
            some = ([item[n] for n in drawn] for item in (rows, after, before))
            result = oracle.divergences(*some)
            changed = [rows[n].prediction != rows[n].own for n in drawn
                       if rows[n].own == rows[n].gold]  # fmt: skip
            result |= {"n_changed": sum(changed), "n_unchanged": changed.count(False)}
            exact[model, config] = result
    of_shift, of_confidence = shift(given(*runs)).rows, confidence(given(*runs)).rows
    for table, part in ((of_shift, ("jsd", "ks", "n_")), (of_confidence, ("sigma", "n_"))):
        assert [(row["model"], row["config"]) for row in table[:4]] == list(exact)
        for row in table[:4]:
            expected = exact[row["model"], row["config"]]
            keys = [key for key in expected if key.startswith(part)]
            assert keys
            close = pytest.approx({key: expected[key] for key in keys}, abs=1e-12)
            assert {key: row[key] for key in keys} == close


def test_where_nothing_changes_there_is_nothing_to_say() -> None:
    rows = problems("E E EE")
    one, *_ = run_with_probabilities(rows, columns(rows))
    (row,) = shift(given(one)).rows
    assert (row["n_changed"], row["jsd_changed"], row["ks_changed"]) == (0, None, None)
    assert row["jsd_unchanged"] is not None
    notes = shift(given(one)).notes + confidence(given(one)).notes
    assert not any("Changed less" in note for note in notes)
    assert "–" in shift(given(one)).to_text()
