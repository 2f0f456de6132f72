"""Predictions split into tasks, which run in this process, one after the other."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers import commands
from helpers.problem_folder import many_problems, write_folder
from helpers.tasks_here import TasksHere
from helpers.tiny_classifiers import folder_of, tiny_classifier
from typer.testing import Result

from merge_dataset.executors import Distribution
from merge_metric.models import classifier
from merge_metric.models.pair_model import Description
from merge_metric.models.readiness import Machine, Preset
from merge_metric.predict import jobs as dealing

PROBLEMS = many_problems(9, 3) | many_problems(5, 2, "demo")
MODEL = folder_of("bert-uncased")
TASKS = ("--executor", "local", "--tasks")
Run = Callable[..., Result]


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> TasksHere:
    return TasksHere(monkeypatch)


@pytest.fixture
def predict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    tiny_classifier("bert-uncased")
    write_folder(tmp_path / "merge-nli", PROBLEMS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(classifier, "_WINDOW", 20)
    fixed = ("predict", "--dataset", "merge-nli", "--device", "cpu", "--batch-tokens", "100")
    return partial(commands.run, *fixed)


def files(folder: str) -> dict[str, bytes]:
    """All files of a folder except locks, so that leftover files are found."""
    paths = Path(folder).iterdir()
    return {path.name: path.read_bytes() if path.is_file() else b"" for path in paths}


@pytest.mark.slow
def test_tasks_that_had_other_models_are_not_mixed(
    predict: Run, tasks: TasksHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe = classifier.Classifier.describe

    def other(self: Any) -> Description:
        known = describe(self)
        known.identity.update({"device": "cuda"} if tasks.distribution else {})
        return known

    answer = dealing.answer_task

    def answer_elsewhere(folder: Path, task: str) -> Any:
        with monkeypatch.context() as patch:
            if task.endswith("1/2"):
                patch.setattr(classifier.Classifier, "describe", other)
            return answer(folder, task)

    monkeypatch.setattr(dealing, "answer_task", answer_elsewhere)
    done = predict("--model", MODEL, "--out", "mine.parquet", *TASKS, 2, code=1)
    assert "expected the same model, device and versions in every task, got different device" in (
        done.stderr
    )
    assert not Path("mine.parquet").exists()
    monkeypatch.setattr(dealing, "answer_task", answer)
    predict("--model", MODEL, "--out", "mine.parquet", *TASKS, 2)
    assert len(tasks.blocks) == 2


@pytest.mark.slow
def test_each_task_of_a_list_has_one_model(
    predict: Run, tasks: TasksHere, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entries = [Preset("A", str(MODEL), "S"), Preset("B", str(MODEL), "M")]
    monkeypatch.setattr("merge_metric.models.readiness.read_presets", lambda name, only: entries)
    command = ("--preset", "mine", "--config", "demo")
    predict(*command, "--out", "one")
    tasks.failing = ("B 0/2",)
    failed = predict(*command, "--out", "dealt", *TASKS, 5, "--workers", 3, code=1)
    assert tasks.blocks == ["A 0/2", "A 1/2", "B 0/2", "B 1/2"]
    assert tasks.distribution == Distribution(executor="local", tasks=4, workers=3)
    assert f"1 models failed:\n  B ({MODEL}): 1 of 2 tasks did not finish" in failed.stderr
    assert Path("dealt/A-demo.parquet").read_bytes() == Path("one/A-demo.parquet").read_bytes()
    tasks.failing = ()
    predict(*command, "--out", "dealt", *TASKS, 5)
    assert files("dealt") == files("one")
    predict(*command, "--out", "few", *TASKS, 1)
    assert tasks.blocks == ["A 0/1", "B 0/1"]


def test_a_model_that_does_not_fit_a_task(
    predict: Run, tasks: TasksHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine("cpu", 1_000_000_000)
    monkeypatch.setattr("merge_metric.models.readiness.this_machine", lambda device: machine)
    predict("--model", MODEL, "--out", "a.parquet", *TASKS, 2)
    done = predict("--model", MODEL, "--out", "b.parquet", *TASKS, 2, "--workers", 2, code=2)
    assert (
        "memory as float32, each of 2 tasks at a time has 500.0 MB: take fewer --workers, or "
        "--dtype bfloat16"
    ) in done.stderr
