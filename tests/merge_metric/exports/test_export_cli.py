"""`merge-nli export`: what it prints, what it refuses, its help."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from helpers.subsampled_folder import write_folder
from typer.testing import CliRunner

from generation.cli import app

COMMANDS = ("lm-eval", "lighteval", "inspect", "croissant", "mini-datasets", "jsonl", "csv")

runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a dataset, to work in."""
    write_folder(tmp_path / "merge-nli")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def export(*arguments: str) -> Result:
    return runner.invoke(app, ["export", *arguments])


def test_every_command_is_in_the_help() -> None:
    """With examples in the help of each."""
    assert all(name in export("--help").output for name in COMMANDS)
    for name in COMMANDS:
        text = export(name, "--help").output
        assert f"merge-nli export {name} merge-nli" in text
        assert "--overwrite" in text


@pytest.mark.slow(but=["lm-eval"])
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_overwritten_silently(command: str) -> None:
    """Exit code 2, and the way out."""
    assert export(command).exit_code == 0
    done = export(command)
    assert done.exit_code == 2
    assert "error: " in done.stderr
    assert "--overwrite" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_no_dataset(command: str, tmp_path: Path) -> None:
    """The message says what was expected."""
    done = export(command, str(tmp_path / "nowhere"))
    assert done.exit_code == 2
    assert "nowhere: expected a dataset folder, found no folder there" in done.stderr
