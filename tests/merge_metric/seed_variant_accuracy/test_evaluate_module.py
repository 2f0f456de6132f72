import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import evaluate
import numpy as np
import pytest
from helpers.metric_loading import ROWS, SPACE, start

from merge_metric.seed_variant_accuracy import seed_variant_accuracy as module
from merge_metric.seed_variant_accuracy.scoring import score

Load = Callable[..., Any]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Makes metrics whose rows are stored in a folder, which must be empty in the end."""

    def make(config_name: str = "default", **more: Any) -> Any:
        return module.SeedVariantAccuracy(
            config_name=config_name, cache_dir=str(tmp_path / "cache"), **more
        )

    yield make
    assert list((tmp_path / "cache").rglob("*.arrow")) == []


def many(n: int = 240) -> dict[str, list[Any]]:
    """Columns of n variants, four per seed."""
    rng = np.random.default_rng(0)
    gold = np.repeat(rng.integers(0, 3, n // 4), 4)
    own = np.repeat(rng.integers(0, 3, n // 4), 4)
    return {
        "predictions": np.where(rng.random(n) < 0.7, gold, rng.integers(0, 3, n)).tolist(),
        "references": gold.tolist(),
        "seed_ids": np.repeat(np.arange(n // 4), 4).tolist(),
        "seed_predictions": own.tolist(),
    }


def part(columns: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    return {name: column[start:stop] for name, column in columns.items()}


def test_batches_and_single_rows(load: Load) -> None:
    columns, metric = many(40), load()
    for first in range(0, 40, 7):
        metric.add_batch(**part(columns, first, first + 7))
    metric.add_batch(**part(columns, 0, 0))
    expected = score(**columns)
    assert metric.compute() == expected
    for row in range(40):
        one = {name: columns[name][row] for name in ("seed_ids", "seed_predictions")}
        reference = np.int64(columns["references"][row])
        metric.add(prediction=columns["predictions"][row], reference=reference, **one)
    assert metric.compute() == expected
    metric.add_batch(**part(columns, 0, 30))
    assert len(metric) == 30
    assert metric.compute(**part(columns, 30, 40)) == expected


@pytest.mark.parametrize("rows", [list, np.array, tuple])
def test_subsamples(load: Load, rows: Callable[..., Any]) -> None:
    """The second configuration gathers lists of ints, including empty ones."""
    drawn = [[0, 1], [0], [2, 0, 1], [1, 2]] * 59 + [[0], [1, 2], [], [0, 1]]
    columns = {**many(), "subsamples": [rows(numbers) for numbers in drawn]}
    columns["subsamples"][-2] = []
    metric = load("subsamples")
    metric.add_batch(**part(columns, 0, 100))
    result = metric.compute(**part(columns, 100, 240))
    assert result == score(**many(), subsamples=drawn)
    assert result["n_variants"] == 239
    for row in range(4):
        entry = {name: columns[name][row] for name in ("seed_ids", "seed_predictions")}
        metric.add(prediction=0, reference=0, subsamples=[0], **{**entry, "seed_predictions": 0})
    assert metric.compute()["n_subsamples"] == 1


def test_options_reach_score(load: Load) -> None:
    probabilities = np.full((4, 3), 1 / 3)
    options: dict[str, Any] = {
        "correctness_threshold": 50, "n_bootstrap": 10, "rng_seed": 3,
        "labels": ["yes", "no", "maybe"], "opposites": [("yes", "no")],
        "probabilities": probabilities, "seed_probabilities": probabilities,
        "groups": {"half": [1, 2, 1, 2]}, "variant_ids": [1, 2, 3, 4],
        "clusters": {"premise": ["a", "a", "b", "b"]}, "merge_labels": "maybe=no",
    }  # fmt: skip
    assert set(options) == set(module.OPTIONS)
    result = load().compute(**ROWS, **options)
    assert result == score(**ROWS, **options)
    assert result["seed_variant_accuracy"] == 1.0
    assert result["strict_fooling_rate"] == 0.5


DRAWN: list[Any] = [[0], [1]] * 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"predictions": [0.9, 0.1, 0.2, 0.3]}, "predictions: .* got 0.9 in row 0"),
        ({"predictions": [0, 0, 0]}, "same length, .* predictions 3, references 4"),
        ({"subsamples": [[0.5], [1], [0], [1]]}, "subsamples: .* got 0.5 in one"),
        ({"subsamples": ["0", "1", "0", "1"]}, "expected lists of ints, such as .*, got .0. in"),
        ({"subsamples": [[0], [1]]}, "expected columns of the same length"),
    ],
)
def test_bad_columns_change_nothing(load: Load, changed: dict[str, Any], message: str) -> None:
    """Columns are refused before `evaluate` turns 0.9 or "0" into 0; earlier rows are kept."""
    metric = load("subsamples" if "subsamples" in changed else "default")
    good = ROWS | ({"subsamples": DRAWN} if "subsamples" in changed else {})
    for kept in (0, 2):
        metric.add_batch(**part(good, 0, kept))
        for method in (metric.compute, metric.add_batch):
            with pytest.raises(ValueError, match=message):
                method(**{**good, **changed})
    assert metric.compute(**part(good, 2, 4)) == score(**good)


def test_missing_and_unknown_names(load: Load) -> None:
    metric = load()
    with pytest.raises(ValueError, match="seed_predictions: expected one entry per variant, got N"):
        metric.compute(predictions=[0], references=[0])
    with pytest.raises(ValueError, match="Bad inputs for evaluation module"):
        metric.add_batch(**ROWS, subsamples=DRAWN)
    assert metric.compute(**ROWS, subsamples=DRAWN) == score(**ROWS, subsamples=DRAWN)
    with pytest.raises(TypeError, match="NoneType"):
        load("subsamples").compute(**ROWS)
    with pytest.raises(ValueError, match="expected the configuration 'default' or 'subsamples'"):
        load("subsample")


def test_bad_options_lose_nothing(load: Load) -> None:
    metric = load()
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"correctness_threshold": 0.9}, "did you mean 90"),
        ({"opposites": [("entailment", "no")]}, "opposites: expected pairs of labels"),
        ({"threshold": 90}, "unexpected keyword argument 'threshold'"),
    )
    metric.add_batch(**ROWS)
    for options, message in wrong:
        with pytest.raises((TypeError, ValueError), match=message):
            metric.compute(**options)
    assert metric.compute() == score(**ROWS)


@pytest.mark.parametrize("keep_in_memory", [False, True])
def test_rows_that_cannot_be_scored_are_forgotten(load: Load, keep_in_memory: bool) -> None:
    """Empty input, before and after a computation, and rows that contradict earlier ones."""
    metric = load(keep_in_memory=keep_in_memory)
    for before, columns, message in (
        ({}, {}, "expected at least one variant, got none"),
        ({}, {name: [] for name in ROWS}, "expected at least one variant, got none"),
        (ROWS, {**ROWS, "references": [1] * 4}, "references: expected one gold label per seed"),
    ):
        if before:
            metric.add_batch(**before)
        with pytest.raises(ValueError, match=message):
            metric.compute(**columns)
        assert len(metric) == 0
        assert metric.compute(**ROWS) == score(**ROWS)


class LocalAccuracy(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        ints = datasets.Value("int64")
        features = datasets.Features({"predictions": ints, "references": ints})
        return evaluate.MetricInfo(
            description="", citation="", inputs_description="", features=features
        )

    def _compute(self, predictions: list[int], references: list[int], **_: Any) -> dict[str, float]:
        return {"accuracy": float(np.mean(np.equal(predictions, references)))}


def test_combined_with_another_metric(load: Load, tmp_path: Path) -> None:
    other = LocalAccuracy(cache_dir=str(tmp_path / "cache"))
    both = evaluate.combine([load(), other])
    expected = score(**ROWS) | {"accuracy": 0.75}
    assert both.compute(**ROWS) == expected
    both.add_batch(**part(ROWS, 0, 2))
    both.add_batch(**part(ROWS, 2, 4))
    assert both.compute() == expected
    for row in range(4):
        ids = {name: ROWS[name][row] for name in ("seed_ids", "seed_predictions")}
        both.add(prediction=ROWS["predictions"][row], reference=0, **ids)
    assert both.compute() == expected


PROCESS = """
import json, pathlib, sys, time
from helpers.metric_loading import ROWS

number, path, done = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
metric = evaluate.load(path, process_id=number, num_process=2, experiment_id="two")
mine = {name: column[number::2] for name, column in ROWS.items()}
try:
    metric.compute(**{**mine, "references": [number, number]})
except ValueError as error:
    print(error)
    done.touch()
while not done.exists():
    time.sleep(0.05)
print(json.dumps(metric.compute(**mine)))
"""


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    """Rows of both are gathered: a seed's variants may be in several; also after an error."""
    code = f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n" + PROCESS
    arguments = (str(SPACE), str(tmp_path / "done"))
    processes = [
        start(code, tmp_path, tmp_path / "home", str(number), *arguments) for number in (0, 1)
    ]
    outputs = [process.communicate(timeout=100) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    error, result = outputs[0][0].splitlines()
    assert "references: expected one gold label per seed" in error
    assert json.loads(result) == score(**ROWS)
    assert outputs[1][0].splitlines() == ["null"]
    assert list((tmp_path / "home" / "metrics").rglob("*.arrow")) == []
