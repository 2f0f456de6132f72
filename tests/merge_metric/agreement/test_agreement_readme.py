"""The annotation README's code about answers runs as written, and prints what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from helpers.judged import write_dataset, write_session
from typer.testing import CliRunner

from generation import Config, generate
from generation.cli import app

README = Path(__file__).parents[3] / "merge_dataset/annotation/README.md"
(SECTION,) = re.findall(
    r"^## What they say\n(.*?)^## ", README.read_text("utf-8"), re.DOTALL | re.MULTILINE
)


def commands() -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]


@pytest.mark.slow
def test_answers_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a session of the dataset; the table is what is shown, the plots are those named."""
    write_session(tmp_path / "study", write_dataset(tmp_path / "merge-nli"))
    monkeypatch.chdir(tmp_path)
    outputs = []
    for arguments in commands():
        if arguments[0] == "agreement":
            result = CliRunner().invoke(app, arguments)
            assert result.exit_code == 0, result.output
            outputs.append(result.stdout)
    (shown,) = re.findall(r"^```\n(masked LM .*?)^```$", SECTION, re.DOTALL | re.MULTILINE)
    assert shown in outputs[0]
    assert "build --run RUN --into without-bart-base --without-mlm" in outputs[0]
    assert len(outputs) == 2
    assert len(list((tmp_path / "plots").glob("*.png"))) == 4


@pytest.mark.slow
def test_builds_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build and the comparison, where the run has a masked LM to leave out."""
    from helpers.tiny_models import tiny_model

    monkeypatch.chdir(tmp_path)
    other = tiny_model("bert-uncased")
    config = Config.from_recipe(
        "demo", run="runs/snli", limit=6, mlms=(str(other), "bert-tiny-mlm")
    )
    generate(config)
    built, compared = (arguments for arguments in commands() if arguments[0] != "agreement")
    for arguments in (built, compared):
        words = [other.name if word == "facebook/bart-base" else word for word in arguments]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
    assert "Variants that only A can have" in result.stdout
