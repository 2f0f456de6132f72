"""Time and memory of the metric, beside what `evaluate` itself takes; `make bench`.

Ratios are measured in turn in one process. The machine's noise is shown as the range over
the rounds.
"""

from __future__ import annotations

import random
import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evaluate
import numpy as np
import pytest
from helpers import metric_oracle as oracle

from merge_metric import seed_variant_accuracy
from merge_metric.seed_variant_accuracy.scoring import score

pytestmark = pytest.mark.benchmark

ROUNDS = 3
MILLION = (50_000, 20)
"""Seeds and variants of each."""
PAPER = (4_000, 77, 10, 20)
"""Seeds, distinct variants of each, subsamples, variants in each: MNLI-mm's size, SNLI's spread."""


def million_rows() -> dict[str, Any]:
    """Columns as a user's lists of ints, in random order."""
    seeds, variants = MILLION
    rng = np.random.default_rng(0)
    p, gold = rng.beta(4, 1, seeds), rng.integers(3, size=seeds)
    own = np.where(rng.random(seeds) < p, gold, rng.integers(3, size=seeds))
    seed = rng.permutation(np.repeat(np.arange(seeds), variants))
    right = rng.random(len(seed)) < p[seed]
    return {
        "predictions": np.where(right, gold[seed], rng.integers(3, size=len(seed))).tolist(),
        "references": gold[seed].tolist(),
        "seed_ids": seed.tolist(),
        "seed_predictions": own[seed].tolist(),
    }


def ten_subsamples() -> dict[str, Any]:
    """The paper's layout: names as ids and labels, each distinct variant once."""
    seeds, variants, subsamples, size = PAPER
    rng = np.random.default_rng(1)
    p, gold = rng.beta(4, 1, seeds), rng.integers(3, size=seeds)
    own = np.where(rng.random(seeds) < p, gold, rng.integers(3, size=seeds))
    seed = np.repeat(np.arange(seeds), variants)
    right = rng.random(len(seed)) < p[seed]
    drawn = rng.random((seeds, subsamples, variants)).argsort(axis=2)[:, :, :size]
    chosen: list[list[int]] = [[] for _ in seed]
    for (number, subsample, _), variant in np.ndenumerate(drawn):
        chosen[number * variants + variant].append(subsample)
    names = np.array(oracle.LABELS, object)
    kept = [row for row, numbers in enumerate(chosen) if numbers]
    return {
        "predictions": names[np.where(right, gold[seed], (gold[seed] + 1) % 3)][kept].tolist(),
        "references": names[gold[seed]][kept].tolist(),
        "seed_ids": [f"mnli-mm:{seed[row]}" for row in kept],
        "seed_predictions": names[own[seed]][kept].tolist(),
        "subsamples": [chosen[row] for row in kept],
    }


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def mebibytes(work: Callable[[], object]) -> float:
    """Peak of what is allocated beyond the columns."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def shown(name: str, values: list[float], unit: str = "") -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{name}: {middle:.3g}{unit} ({low:.3g} to {high:.3g} over {len(values)} rounds)"


@pytest.mark.parametrize(
    ("configuration", "columns"), [("default", million_rows), ("subsamples", ten_subsamples)]
)
def test_score_beside_the_ingestion_of_evaluate(
    configuration: str,
    columns: Callable[[], dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Seconds and peak memory; what `compute` takes more than `score` does is ingestion."""
    monkeypatch.setattr(evaluate.config, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = Path(seed_variant_accuracy.__file__).parent
    metric = evaluate.load(
        str(folder / "seed_variant_accuracy.py"), configuration, cache_dir=str(tmp_path / "cache")
    )
    data = columns()
    figures, replicates, computed = [], [], []
    for _ in range(ROUNDS):
        figures.append(seconds(lambda: score(**data, n_bootstrap=0)))
        computed.append(seconds(lambda: metric.compute(**data, n_bootstrap=0)))
        replicates.append(seconds(lambda: score(**data, n_bootstrap=1000)))
    memory = [mebibytes(lambda n=n: score(**data, n_bootstrap=n)) for n in (0, 1000)]
    ingestion = [c - f for c, f in zip(computed, figures, strict=True)]
    assert metric.compute(**data, n_bootstrap=0) == score(**data, n_bootstrap=0)
    with capsys.disabled():
        print(f"\n{configuration}, {len(data['predictions']):,} rows:")
        print(shown("  score", figures, " s"), f"peak {memory[0]:,.0f} MiB", sep=", ")
        print(
            shown("  with 1,000 replicates", replicates, " s"),
            f"peak {memory[1]:,.0f} MiB",
            sep=", ",
        )
        print(shown("  ingestion by evaluate", ingestion, " s"))
        ratios = [i / f for i, f in zip(ingestion, figures, strict=True)]
        print(shown("  ingestion / score", ratios))
        ratios = [i / r for i, r in zip(ingestion, replicates, strict=True)]
        print(shown("  ingestion / score with replicates", ratios))


def test_ten_thousand_replicates(capsys: pytest.CaptureFixture[str]) -> None:
    """Over 4,000 seeds, in one subsample and in ten; `score` without intervals taken off."""
    data = ten_subsamples()
    plain = {name: column for name, column in data.items() if name != "subsamples"}
    with capsys.disabled():
        print(f"\n10,000 replicates over {PAPER[0]:,} seeds, overall and per label:")
        for name, columns in (("one subsample", plain), ("ten subsamples", data)):
            without = seconds(lambda c=columns: score(**c, n_bootstrap=0))
            taken = seconds(lambda c=columns: score(**c, n_bootstrap=10_000)) - without
            memory = mebibytes(lambda c=columns: score(**c, n_bootstrap=10_000))
            print(f"  {name}: {taken:.3g} s, peak {memory:,.0f} MiB")
            assert taken > 0


def test_score_against_the_slow_oracle(capsys: pytest.CaptureFixture[str]) -> None:
    """The same figures of 10,000 rows, 500 seeds with 20 variants each."""
    rows = oracle.random_problems(random.Random(0), seeds=500, variants=(20, 20))
    rows = [oracle.Row(r.seed_id, r.gold, r.own, r.prediction) for r in rows]
    data = oracle.columns(rows)
    slow, fast = [], []
    for _ in range(ROUNDS):
        slow.append(seconds(lambda: oracle.scores(rows)))
        fast.append(seconds(lambda: score(**data, n_bootstrap=0)))
    expected, found = oracle.scores(rows), score(**data, n_bootstrap=0)
    for key in oracle.FIGURES:
        assert found[key] == pytest.approx(float(expected[key])), key
    with capsys.disabled():
        print(f"\n{len(rows):,} rows:")
        print(shown("  slow oracle", slow, " s"))
        print(shown("  score", fast, " s"))
        print(shown("  ratio", [s / f for s, f in zip(slow, fast, strict=True)]))
