"""The commands of the package's README run as written, with small models in place of large ones."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.paraphrasing import FakeGenerator, candidate
from typer.testing import CliRunner

from generation.cli import app
from generation.config import bundled_path
from generation.paraphrases import paraphrase_run
from merge_metric.demo import MODEL

README = bundled_path("paraphrases/README.md")


def commands() -> list[list[str]]:
    """Return the commands of all shell blocks, without the program's name."""
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    found = [shlex.split(line) for line in lines]
    assert {words[0] for words in found} == {"merge-nli"}
    return [words[1:] for words in found]


def write(request: Any) -> list[Any]:
    """A paraphrase that most models take for one, and some that are none."""
    hypothesis = request.hypothesis
    swapped = hypothesis.replace("The ", "That ").replace("A ", "One ").replace(" a ", " one ")
    return [candidate(hypothesis), candidate(""), candidate(swapped), candidate("Nobody.")]


@pytest.mark.slow
def test_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From problems to fooling rates of two models, each with paraphrases of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paraphrase_run, "open_generator", lambda config: FakeGenerator(write))
    monkeypatch.setattr(
        paraphrase_run, "look_at_models", lambda *_: None
    )  # the generator is not here
    shutil.copyfile(bundled_path("demo/problems.jsonl"), "snli_1.0_test.jsonl")
    paraphrase, predict, score, analyse = commands()
    said = []
    for command in (paraphrase, predict, score):
        words = [w.replace("FacebookAI/roberta-large-mnli", str(MODEL)) for w in command]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        said.append(result.stdout)
    assert "configuration snli_paraphrases" in said[0]
    assert "snli_paraphrases" in said[2]
    shutil.copyfile("roberta.parquet", "other.parquet")
    shutil.copytree("merge-nli", "merge-nli-other")
    words = [w.replace("other.parquet@", "other=other.parquet@") for w in analyse]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "other" in result.stdout
