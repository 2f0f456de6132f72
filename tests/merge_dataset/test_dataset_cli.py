import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from generation.cli import app
from merge_dataset.export import export_dataset

runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})


def test_check(dataset: Path) -> None:
    """The problems on stdout in either format, exit code 1; else 0."""
    result = runner.invoke(app, ["check", str(dataset)])
    assert (result.exit_code, result.stdout) == (0, f"{dataset}: good\n")
    result = runner.invoke(app, ["check", str(dataset), "--format", "json"])
    assert json.loads(result.stdout) == {"folder": str(dataset), "problems": []}
    (dataset / "README.md").unlink()
    problem = "README.md: expected a dataset card; got no such file"
    result = runner.invoke(app, ["check", str(dataset)])
    assert (result.exit_code, result.stdout) == (1, problem + "\n")
    result = runner.invoke(app, ["check", str(dataset), "--format", "json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["problems"] == [problem]


METRIC = 'evaluate.load("seed_variant_accuracy")'


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the metric is to be registered: evaluate's module cache."""
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path / "modules"


def test_register(dataset: Path, tmp_path: Path, modules: Path) -> None:
    """Metric and dataset: entries in the cache given, and the lines to load them with."""
    command = ["register", str(dataset), "--cache-dir", str(tmp_path / "cache")]
    result = runner.invoke(app, command)
    assert result.exit_code == 0
    lines = [METRIC, *(f'load_dataset("merge-nli", "{name}")' for name in ("snli", "snli_nouns"))]
    assert result.stdout.splitlines()[:3] == lines
    names = ["snli", "snli_adjectives", "snli_nouns", "snli_verbs"]
    assert sorted(p.name for p in (tmp_path / "cache/merge-nli").iterdir() if p.is_dir()) == names
    assert len(list(modules.rglob("seed_variant_accuracy.py"))) == 1
    result = runner.invoke(app, [*command, "--format", "json"])
    made = json.loads(result.stdout)
    assert (made["metric"], made["folder"]) == ("seed_variant_accuracy", str(dataset))
    assert sorted(made["registered"]) == names


def test_register_without_a_folder(
    dataset: Path, tmp_path: Path, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["register", "--cache-dir", str(tmp_path / "cache")]
    monkeypatch.chdir(dataset.parent)
    result = runner.invoke(app, command)
    assert 'load_dataset("merge-nli", "snli")' in result.stdout
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = runner.invoke(app, command)
    assert (result.exit_code, result.stdout) == (0, METRIC + "\n")
    assert result.stderr == "No folder merge-nli here: no dataset registered.\n"
    result = runner.invoke(app, [*command, "--format", "json"])
    assert json.loads(result.stdout) == {
        "metric": "seed_variant_accuracy",
        "folder": None,
        "registered": [],
    }


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("README.md", "README.md: expected a dataset card"),
        ("snli/nouns/variants.parquet", "expected a whole Parquet file"),
    ],
)
def test_register_with_a_bad_folder(
    file: str, problem: str, dataset: Path, tmp_path: Path, modules: Path
) -> None:
    """The metric is registered nevertheless; the dataset's problems and exit code 1."""
    (dataset / file).write_bytes(b"")
    if file == "README.md":
        (dataset / file).unlink()
    cache = tmp_path / "cache"
    result = runner.invoke(app, ["register", str(dataset), "--cache-dir", str(cache)])
    assert (result.exit_code, result.stdout) == (1, METRIC + "\n")
    assert re.search(r"not registered: \d+ problem\(s\)", result.stderr)
    assert problem in result.stderr
    assert not cache.exists()
    assert len(list(modules.rglob("seed_variant_accuracy.py"))) == 1
    result = runner.invoke(app, ["register", str(tmp_path / "nowhere")])
    assert result.exit_code == 2


def test_export_for_other_command_lines(make_run: Callable[..., Path], tmp_path: Path) -> None:
    names = ["snli", "snli_nouns", "snli_verbs", "snli_adjectives"]
    assert export_dataset(make_run(), tmp_path / "merge-nli") == names
