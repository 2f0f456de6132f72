"""Figures in real trackers, read back: `make test-trackers`, in a separate environment."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.processes import python_of
from helpers.report_data import problems

from merge_metric.score import score_file
from merge_metric.seed_variant_accuracy.figures import MAIN_FIGURES
from merge_metric.tracking import Tracker, trainer_figures

pytestmark = pytest.mark.tracker

HERE = Path(__file__).resolve().parent
SCORE = "from generation.cli import main; main()"
CONFIGS = ("snli", "snli_nouns")

Logged = dict[str, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tracked")
    made = problems(12)
    made.write(place / "merge-nli")
    rows = made.predictions(0.8, "a")
    pq.write_table(pa.Table.from_pylist(rows), place / "tiny.parquet")
    return place


def run(place: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    python = python_of("MERGE_NLI_TRACKERS_PYTHON")
    trackers = ("WANDB_", "MLFLOW_", "TENSORBOARD_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(trackers)}
    ours = {"PYTHONPATH": str(HERE.parents[1]), "HF_HOME": str(place / "home"), "HOME": str(place)}
    ours["WANDB_ERROR_REPORTING"] = "false"  # old releases add a note about failed reports
    return subprocess.run(
        [python, *map(str, arguments)], cwd=place, env=kept | ours | environment,
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


def offline(place: Path) -> dict[str, str]:
    return {
        "WANDB_MODE": "offline", "WANDB_SILENT": "true",
        "MLFLOW_TRACKING_URI": (place / "mlruns").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true",
    }  # fmt: skip


def score(place: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    options = ("--dataset", "merge-nli", "--n-bootstrap", 0, "--format", "json")
    return run(place, "-c", SCORE, "score", "tiny.parquet", *options, *arguments, **environment)


def logged(place: Path) -> Logged:
    done = run(place, HERE / "read_logged.py", place, MLFLOW_ALLOW_FILE_STORE="true")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_scores_in_every_tracker(place: Path) -> None:
    targets = [word for tracker in get_args(Tracker) for word in ("--log-to", tracker)]
    configs = [word for config in CONFIGS for word in ("--config", config)]
    done = score(place, *targets, *configs, **offline(place))
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert results == score_file(
        place / "tiny.parquet", place / "merge-nli", CONFIGS, n_bootstrap=0
    )
    for tracker in get_args(Tracker):
        assert f"{tracker}: logged to " in done.stderr
    assert "tensorboard: logged to tensorboard/tiny" in done.stderr
    figures = trainer_figures(results)
    assert len(figures) == len(CONFIGS) * len(MAIN_FIGURES)
    result = {tracker: runs["tiny"] for tracker, runs in logged(place).items()}
    for name, value in figures.items():
        slashed = name.replace("eval_", "eval/", 1)
        assert result["mlflow"][name] == [[0, value]]
        assert result["tensorboard"][slashed] == [[0, pytest.approx(value)]]
        assert result["wandb"][slashed] == [[None, value]]
    signature = results["snli_nouns"]["signature"]
    assert result["mlflow"]["merge.signature_snli_nouns"] == signature
    assert result["mlflow"]["status"] == "FINISHED"
    assert result["tensorboard"]["merge/signature_snli_nouns"] == signature
    about = {"model": "tiny", "dataset": "merge-nli"}
    assert result["wandb"]["config"].items() >= about.items()


def test_names_are_those_of_training(place: Path) -> None:
    environment = offline(place) | {"TENSORBOARD_LOGGING_DIR": "tensorboard"}
    done = run(place, HERE / "train_and_log.py", place / "merge-nli", **environment)
    assert done.returncode == 0, done.stderr
    result = logged(place)
    expected = {
        "mlflow": {f"eval_merge_{key}" for key in MAIN_FIGURES},
        "tensorboard": {f"eval/merge_{key}" for key in MAIN_FIGURES},
        "wandb": {f"eval/merge_{key}" for key in MAIN_FIGURES},
    }
    for tracker, names in expected.items():
        # W&B's run of the training is still active, so it also gets what is logged later.
        runs = [run for name, run in result[tracker].items() if name != "tiny"]
        steps: dict[str, list[int]] = {}
        for run_ in runs:
            for name in run_:
                if "merge_" in name and "." not in name:
                    steps.setdefault(name, []).extend(step for step, _ in run_[name])
        assert set(steps) == names
        assert all(sorted(item) == [1, 2, 3] for item in steps.values()), (tracker, steps)


def test_what_trackers_refuse(place: Path) -> None:
    for tracker, environment, message in (
        ("wandb", {"WANDB_MODE": "online"}, "WANDB_MODE=offline"),
        ("mlflow", {"MLFLOW_TRACKING_URI": "nowhere://x"}, "MLFLOW_TRACKING_URI"),
        ("tensorboard", {"TENSORBOARD_LOGGING_DIR": "tiny.parquet"}, "TENSORBOARD_LOGGING_DIR"),
    ):
        done = score(place, "--log-to", tracker, **environment)
        assert done.returncode == 2, done.stderr
        assert json.loads(done.stdout)["results"]
        last = done.stderr.splitlines()[-1]
        assert last.startswith(f"error: {tracker}: the figures were not logged: "), done.stderr
        assert message in last
