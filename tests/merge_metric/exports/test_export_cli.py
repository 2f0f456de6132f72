"""`merge-nli export`: what it prints, what it refuses, its help."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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


@pytest.mark.parametrize(
    ("arguments", "out", "shown", "following"),
    [
        (
            ["lm-eval"],
            "merge-nli-lm-eval",
            "3 tasks: merge_nli_snli, merge_nli_snli_nouns, merge_nli_snli_verbs",
            "lm_eval --model hf --model_args pretrained=MODEL --include_path merge-nli-lm-eval "
            "--tasks merge_nli_snli",
        ),
        (
            ["lighteval", "merge-nli", "--config", "snli_verbs", "--limit-seeds", "2"],
            "merge-nli-lighteval",
            "1 task: merge_nli_snli_verbs\n",
            "python merge-nli-lighteval/run.py --model MODEL --task merge_nli_snli_verbs",
        ),
        (
            ["inspect", "merge-nli", "--config", "snli_verbs", "--out", "here"],
            "here",
            "a task for the configurations snli_verbs",
            "inspect eval here/merge_nli.py -T config=snli_verbs --model openai/MODEL",
        ),
        (
            ["mini-datasets", "--config", "snli_verbs"],
            "merge-nli-mini",
            "  snli_verbs/seeds.parquet: 4 rows\n  snli_verbs/mini-00.parquet: ",
            "python -c \"from datasets import load_dataset; print(load_dataset('parquet', "
            "data_files='merge-nli-mini/snli_verbs/mini-02.parquet'))\"",
        ),
        (
            ["csv", "merge-nli", "--config", "snli_verbs", "--out", "flat"],
            "flat",
            "  snli_verbs/seeds.csv: 4 rows\n  snli_verbs/variants.csv: 24 rows\n",
            "python -c \"from datasets import load_dataset; print(load_dataset('csv', "
            "data_files='flat/snli_verbs/variants.csv'))\"",
        ),
        (
            ["croissant"],
            "merge-nli/croissant.json",
            "6 record sets: snli/seeds, snli/variants, snli_nouns/seeds",
            "mlcroissant validate --jsonld merge-nli/croissant.json",
        ),
    ],
)
def test_summaries(arguments: list[str], out: str, shown: str, following: str) -> None:
    """The summary says what was made and what to run now; on stdout alone, and as JSON."""
    done = export(*arguments)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"{out}:")
    assert shown in done.stdout
    assert done.stdout.endswith(f"Next: {following}\n")
    again = export(*arguments, "--overwrite", "--format", "json")
    value = json.loads(again.stdout)
    assert (value["out"], value["next"]) == (out, following)
    assert len(value) == (4 if arguments[0] == "lighteval" else 3)


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


@pytest.mark.slow
def test_the_printed_command_of_flat_files_runs() -> None:
    """As it stands."""
    command = json.loads(export("jsonl", "--format", "json").stdout)["next"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        shell=True,
        env={**os.environ, "PATH": path, "HF_HOME": str(Path.cwd() / "hf")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "num_rows: 24" in done.stdout
