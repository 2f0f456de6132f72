"""`analyse signals`: bins, means, correlations and their intervals against slow oracles."""

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.analysed import (
    answered,
    given,
    names_of,
    random_dataset,
    signals_of,
    write_answers,
    write_dataset,
)
from helpers.commands import run
from helpers.metric_oracle import Row
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr
from sklearn.metrics import roc_auc_score

from merge_metric.agreement.coefficients import pooled, spearman, weighted_spearman, within_seeds
from merge_metric.analyses.signals import ALL, NONE, best_of, bins_of, signals
from merge_metric.analyses.variant_rows import VariantRows
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.resampling import seed_weights

N_BOOTSTRAP = 60
SIGNALS = ("log_odds", "mlm_count", "zipf_frequency", "number_changed", "article_fits")
NAN = float("nan")


Scores = dict[str, dict[str, tuple[int, int]]]
"""Annotator → variant → F and R."""


def signal(*values: float) -> NDArray[np.float64]:
    return np.array(values, np.float64)


def test_weighted_ranks_are_those_of_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        n = int(rng.integers(3, 40))
        x, y = rng.integers(0, 6, n), rng.integers(0, 2, n)
        weight = rng.integers(0, 4, n)
        again = np.repeat(np.arange(n), weight)
        x, y = (np.unique(values, return_inverse=True)[1] for values in (x, y))
        result = weighted_spearman(x, y, weight.astype(np.float64))
        if len(np.unique(x[again])) < 2 or len(np.unique(y[again])) < 2:
            assert np.isnan(result)
        else:
            assert result == pytest.approx(spearmanr(x[again], y[again]).statistic, abs=1e-12)


def test_ranks_within_seeds() -> None:
    """Pool SciPy's ranks within seeds, minus their means; and by hand."""
    rng = np.random.default_rng(1)
    for _ in range(30):
        n = int(rng.integers(4, 40))
        x, y, seed = rng.integers(0, 5, n), rng.integers(0, 2, n), rng.integers(0, 4, n)
        centred = np.zeros((2, n))
        for one in set(seed.tolist()):
            mine = seed == one
            for row, values in enumerate((x, y)):
                ranks = rankdata(values[mine])
                centred[row, mine] = ranks - ranks.mean()
        sums = within_seeds(x.astype(float), y.astype(float), seed, 5)
        assert sums.shape == (5, 3)
        result = pooled(sums.sum(axis=0))
        if centred.any(axis=1).all():
            assert result == pytest.approx(np.corrcoef(centred)[0, 1], abs=1e-12)
        else:
            assert np.isnan(result)
    # Within each seed, higher values are right, though the easier seed has lower values.
    x, y = np.array([1.0, 2.0, 8.0, 9.0]), np.array([1.0, 1.0, 0.0, 1.0])
    assert pooled(within_seeds(x, y, np.array([0, 0, 1, 1]), 2)[1]) == pytest.approx(1)
    assert spearman(x, y) == pytest.approx(-0.2581988897)


def parts(
    values: NDArray[np.float64], bins: int, *, is_answer: bool = False
) -> dict[str, list[float]]:
    masks = bins_of(values, bins, is_answer=is_answer)
    return {name: values[mask].tolist() for name, mask in masks}


def test_bins_by_hand() -> None:
    """Ten values in five bins: two each; unknown values in none; equal values together.

    Names have enough digits to be distinct. Few values are separate bins, as are always no and
    yes.
    """
    assert parts(signal(*range(10, 0, -1), NAN), 5) == {
        "1.00 to 3.00": [2, 1], "3.00 to 5.00": [4, 3], "5.00 to 7.00": [6, 5],
        "7.00 to 9.00": [8, 7], "9.00 or more": [10, 9],
    }  # fmt: skip
    result = parts(signal(1, 2, 3, 4, 5, 6, 7, 7, 7, 7), 5)
    assert list(result.values()) == [[1, 2], [3, 4], [5, 6], [7, 7, 7, 7]]
    assert parts(signal(-0.0004, -0.0003, 0.0001, 0.7), 3) == {
        "−0.0004 to −0.0003": [-0.0004], "−0.0003 to 0.0001": [-0.0003],
        "0.0001 or more": [0.0001, 0.7],
    }  # fmt: skip
    assert parts(signal(1, 3, 1, 2, NAN), 3) == {"1": [1, 1], "2": [2], "3": [3]}
    assert parts(signal(1, 0, 1), 5, is_answer=True) == {"no": [0], "yes": [1, 1]}
    assert parts(signal(1, NAN), 2, is_answer=True) == {"yes": [1]}


def test_the_best_by_limits_of_other_seeds() -> None:
    """Each variant is compared with a quantile of the variants of other folds; and by hand."""
    rng = np.random.default_rng(4)
    seed = rng.integers(0, 40, 300)
    values = rng.random(300)
    part = rng.random(300) < 0.6
    result = dict(best_of(signal(*values), part, seed, 7))
    assert list(result) == [f"best {share} %" for share in (90, 75, 50, 25)]
    fold = np.random.default_rng(7).permutation(40) % 5
    for name, mask in result.items():
        share = int(name.split()[1])
        for n in range(300):
            others = [values[m] for m in range(300) if part[m] and fold[seed[m]] != fold[seed[n]]]
            limit = np.percentile(others, 100 - share)
            assert mask[n] == (part[n] and values[n] >= limit)
        assert abs(mask.sum() / part.sum() - share / 100) < 0.08
    assert best_of(signal(1.0, 2.0), np.zeros(2, bool), np.array([0, 1])) == []


def test_quality_says_how_good_the_best_are() -> None:
    n = 200
    good = (np.arange(n) % 4 == 0).astype(float)
    values = good * 0.5 + np.random.default_rng(0).random(n) * 0.6
    table = pa.table({
        "seed_id": [str(number) for number in range(n)], "quality": values, "log_odds": values,
        "good": good, "fluency": 4 + good, "reasoning": np.full(n, 4.5),
    })  # fmt: skip
    rows_of_both = VariantRows("s", "d", table, ("quality", "log_odds"))
    result = signals(
        given(of_variants=[rows_of_both]),
        annotations=["scores.csv"],
        settings=Settings(n_bootstrap=100),
    )
    rows = {(row["signal"], row["bin"]): row for row in result.rows}
    shares = [rows["quality", f"best {share} %"] for share in (90, 75, 50, 25)]
    precision = [row["good"] for row in shares]
    assert precision == sorted(precision)
    assert precision[-1] > 0.8
    assert all(row["good_ci"][0] <= row["good"] <= row["good_ci"][1] for row in shares)
    assert not any(bin.startswith("best") for name, bin in rows if name == "log_odds")
    assert "keeps that share of other seeds'" in result.notes[0]


@pytest.fixture(scope="module")
def models() -> dict[str, list[Row]]:
    rng = random.Random(5)
    rows = random_dataset(rng, seeds=40)
    return {"a": answered(rows, rng, 0.4), "b": answered(rows, rng, 0.7)}


@pytest.fixture(scope="module")
def scores(models: dict[str, list[Row]]) -> Scores:
    """Scores of two annotators, each for half of the variants."""
    rng = random.Random(6)
    every = names_of(models["a"])
    chosen = rng.sample(every, len(every) // 2)
    return {
        who: {name: (rng.randint(3, 5), rng.randint(3, 5)) for name in chosen}
        for who in ("ann", "ben")
    }


@pytest.fixture(scope="module")
def folder(
    models: dict[str, list[Row]], scores: Scores, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("signals")
    write_dataset(folder / "merge-nli", models["a"])
    for name, rows in models.items():
        write_answers(folder / f"{name}.parquet", rows)
    with (folder / "scores.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("annotator", "variant_id", "fluency", "reasoning", "comment"))
        for who, of_variants in scores.items():
            for name, (fluency, reasoning) in of_variants.items():
                table.writerow((who, name, fluency, reasoning, ""))
    return folder


@pytest.fixture
def analyse(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.chdir(folder)
    return lambda *arguments: run("analyse", "signals", *arguments).stdout


def test_every_figure_the_slow_way(
    analyse: Callable[..., str], models: dict[str, list[Row]], scores: Scores
) -> None:
    options = ("--dataset", "merge-nli", "--annotations", "scores.csv", "--bins", 3)
    more = ("--n-bootstrap", N_BOOTSTRAP, "--format", "json")
    result = json.loads(analyse("a.parquet", "b.parquet", *options, *more))["rows"]
    assert {row["signal"] for row in result} == set(SIGNALS)
    judged = {
        name: [of_variants[name] for of_variants in scores.values()] for name in scores["ann"]
    }
    for model, rows in models.items():
        # In the order of the dataset: class by class.
        order = sorted(
            zip(names_of(rows), rows, strict=True),
            key=lambda pair: ("noun", "verb", "adjective").index(dict(pair[1].groups)["word"][0]),
        )
        known = {name: signals_of(name, row) for name, row in order}
        seeds = list(dict.fromkeys(row.seed_id for _, row in order))
        draws = np.concatenate(list(seed_weights(len(seeds), Settings(n_bootstrap=N_BOOTSTRAP))))
        for row in (item for item in result if item["model"] == model):
            mine = [(name, r) for name, r in order if is_in(row, known[name][row["signal"]])]
            right = [float(r.prediction == r.gold) for _, r in mine]
            assert row["n_variants"] == len(mine)
            assert row["n_seeds"] == len({r.seed_id for _, r in mine})
            assert row["variant_accuracy"] == pytest.approx(np.mean(right))
            of_seed = [seeds.index(r.seed_id) for _, r in mine]
            again = [np.repeat(right, draw[of_seed].astype(int)).mean() for draw in draws]
            assert row["variant_accuracy_ci"] == pytest.approx(np.quantile(again, [0.025, 0.975]))

            told = [judged[name] for name, _ in mine if name in judged]
            assert row["n_judged"] == len(told)
            assert row["fluency"] == pytest.approx(np.mean([[f for f, _ in two] for two in told]))
            assert row["reasoning"] == pytest.approx(np.mean([[r for _, r in two] for two in told]))
            is_good = [sum(f + r for f, r in two) / 2 >= 9 for two in told]
            assert row["good"] == pytest.approx(np.mean(is_good))
            if row["bin"] != ALL:
                assert "rho_right" not in row
                continue
            values = [float(known[name][row["signal"]]) for name, _ in mine]
            if len(set(values)) < 2:
                assert row["rho_right"] is None is row["rho_right_ci"]
                continue
            assert row["rho_right"] == pytest.approx(spearmanr(values, right).statistic)
            sums = within_seeds(*map(np.array, (values, right, of_seed)), len(seeds))
            assert row["within_right"] == pytest.approx(pooled(sums.sum(axis=0)))
            drawn = [pooled((draw[:, None] * sums).sum(axis=0)) for draw in draws]
            assert row["within_right_ci"] == pytest.approx(np.nanquantile(drawn, [0.025, 0.975]))
            low, high = row["rho_right_ci"]
            assert low <= row["rho_right"] <= high
            both = [
                (float(known[name][row["signal"]]), np.mean([f + r for f, r in judged[name]]))
                for name, _ in mine
                if name in judged
            ]
            expected = spearmanr(*zip(*both, strict=True)).statistic
            assert row["rho_judged"] == pytest.approx(expected)
            is_good = [total >= 9 for _, total in both]
            assert row["auc"] == pytest.approx(roc_auc_score(is_good, [x for x, _ in both]))
            low, high = row["auc_ci"]
            assert 0 <= low <= row["auc"] <= high <= 1


def is_in(row: dict[str, Any], value: float | None) -> bool:
    """Whether a variant belongs to a row, by the name of the row's bin."""
    if value is None or row["bin"] == NONE:
        return value is None and row["bin"] == NONE
    return bool(row["lowest"] <= np.float32(value) <= row["highest"])


def test_without_predictions(analyse: Callable[..., str]) -> None:
    """Annotations alone give a table, without the columns of models."""
    options = ("--dataset", "merge-nli", "--annotations", "scores.csv", "--format", "json")
    table = json.loads(analyse(*options))
    rows = table["rows"]
    assert {row["config"] for row in rows} == {"s"}
    assert all(row["model"] is None and "variant_accuracy" not in row for row in rows)
    assert all(row["good"] is not None for row in rows)
    assert "ρ right" not in table["columns"].values()
