"""The commands and code of the annotation README run as written."""

from __future__ import annotations

import json
import re
import shlex
import webbrowser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from generation.cli import app
from merge_dataset.annotation.answers import Answer, answers_path, append
from merge_dataset.annotation.session import read_session
from merge_dataset.annotation.transfer import read_answers

PACKAGE = Path(__file__).parents[3] / "merge_dataset/annotation"
README = (PACKAGE / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def here(dataset: Path, paraphrases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with merge-nli/ in it, where pages that are opened are closed at once."""

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    monkeypatch.setattr(webbrowser, "open", lambda url: True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def as_label_studio(tasks: Path, path: Path) -> None:
    """Write what Label Studio exports after somebody found the first task good."""
    task: dict[str, Any] = json.loads(tasks.read_text(encoding="utf-8"))[0]
    results = [
        {"from_name": name, "value": {"choices": ["5"]}} for name in ("fluency", "reasoning")
    ]
    task["annotations"] = [{"completed_by": 1, "result": results}]
    path.write_text(json.dumps([task]), encoding="utf-8")


@pytest.mark.slow
def test_the_readme_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All commands in order, in the directory of a dataset, and the code after them."""
    for line in "".join(blocks("sh")).splitlines():
        if not line.startswith("merge-nli annotate"):
            continue  # what is done with answers: tests/merge_metric/agreement
        if "--import label-studio.json" in line:
            as_label_studio(here / "tasks.json", here / "label-studio.json")
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, done.stderr
    assert read_session(here / "pairs").kind == "equivalence"
    for file in ("items.csv", "tasks.json", "tasks.xml", "study/answers/label-studio-1.jsonl"):
        assert (here / file).is_file()
    append(answers_path(here / "study", "ann"), [Answer("snli:1/noun/dog/cat", 4, 5)])
    (code,), (printed,) = blocks("python"), blocks("text")
    exec(code, {})
    assert capsys.readouterr().out == printed
    assert read_answers([here / "study"])["annotator"].to_pylist() == ["ann", "label-studio-1"]


def test_the_folder_is_as_drawn(here: Path) -> None:
    """The files that the tree names are there."""
    (tree,) = re.findall(r"^study/\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    for line in blocks("sh")[0].splitlines() + blocks("sh")[1].splitlines():
        CliRunner().invoke(app, shlex.split(line)[1:])
    for name in ("ann", "bo"):
        append(answers_path(here / "study", name), [Answer("snli:1/noun/dog/cat", 4, 5)])
    visible = [path for path in (here / "study").rglob("*") if not path.name.startswith(".")]
    assert {path.name for path in visible} == set(re.findall(r"^ +([\w.]+)", tree, re.MULTILINE))


def test_keys_are_those_of_the_page() -> None:
    """The table, the line under the scores, and what the script listens to."""
    script = (PACKAGE / "page/page.js").read_text(encoding="utf-8")
    bound = re.search(r"const KEYS = \{(.*?)\};", script, re.DOTALL)
    assert bound is not None
    names = {"ArrowLeft": "←", "ArrowRight": "→", "ArrowUp": "↑", "ArrowDown": "↓"}
    keys = re.findall(r'^  "?(\w+|\?)"?:', bound[1], re.MULTILINE)
    keys += re.findall(r"^  (\w+),$", bound[1], re.MULTILINE)
    assert len(keys) == 13
    for key in keys:
        assert f"`{names.get(key, key)}`" in README
