import json
import re
import shlex
import signal
import subprocess
import sys
import webbrowser
from pathlib import Path
from typing import Any

import pytest
from helpers.annotating import MAIN, Client
from helpers.commands import refused, run
from helpers.pages import commands
from helpers.processes import PATIENCE, running

from merge_dataset.annotation.answers import Answer, answers_path, append
from merge_dataset.annotation.session import Session, read_session
from merge_dataset.annotation.transfer import read_answers


def annotate(*words: str | Path) -> str:
    return run("annotate", *words).stdout


def test_drawing_a_sample(dataset: Path, tmp_path: Path) -> None:
    said = annotate(dataset, "--out", tmp_path / "study", "--per-class", "2")
    assert said.splitlines() == [
        f"{tmp_path / 'study'}: 6 variants", "  snli noun: 2 of 6", "  snli verb: 2 of 3",
        "  snli adjective: 2 of 2",
        f"Next: merge-nli annotate --out {tmp_path / 'study'} --annotator NAME",
    ]  # fmt: skip
    as_json = annotate("--out", tmp_path / "study", "--format", "json")
    written = json.loads((tmp_path / "study/session.json").read_text())
    del written["sha256"]
    assert json.loads(as_json) == written


def test_there_and_back(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    words = ("--out", session.folder, "--import", path, "--annotator", "ann")
    assert annotate("--out", session.folder, "--export", path) == f"11 items: {path}\n"
    assert annotate(*words) == "no answers in it\n"
    path.write_text("variant_id,fluency,reasoning\nsnli:1/noun/dog/cat,5,5\n")
    said = annotate(*words)
    assert said == "ann: 1 new, 0 changed, 0 as before; 10 variants not answered yet\n"
    path.write_text("variant_id,fluency,reasoning\nsnli:1/noun/dog/cat,1,5\n")
    assert "or let it replace the other with --overwrite" in refused("annotate", *words)
    replaced = annotate(*words, "--overwrite", "--format", "json")
    assert json.loads(replaced) == {
        "imported": [{"annotator": "ann", "new": 0, "changed": 1, "known": 0}]
    }


def test_the_page_is_opened(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr("time.sleep", interrupt)
    url, said, _, progress = annotate("--out", session.folder, "--annotator", "ann").splitlines()
    assert opened == [url]
    assert said == "0 of 11 variants answered. Ctrl+C stops; every answer is saved."
    assert progress == "0 of 11 variants answered."
    annotate("--out", session.folder, "--annotator", "ann", "--no-browser")
    assert len(opened) == 1


@pytest.mark.slow
def test_as_a_process(session: Session) -> None:
    words = ["annotate", "--out", str(session.folder), "--annotator", "ann", "--no-browser"]
    command = [sys.executable, "-c", MAIN, *words]
    with running(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        answer = {"variant_id": "snli:1/noun/dog/cat", "fluency": 5, "reasoning": 5}
        assert Client(url).save(0, answer).status == 200
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (second.returncode, second.stdout) == (2, "")
        assert "expected ann to annotate in one place at a time" in second.stderr
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().endswith("\n1 of 11 variants answered.\n")
        assert process.wait(PATIENCE) == 0


PACKAGE = Path(__file__).parents[3] / "merge_dataset/annotation"
README = (PACKAGE / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def here(dataset: Path, paraphrases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with merge-nli/ in it, where pages close as soon as they open."""

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    monkeypatch.setattr(webbrowser, "open", lambda url: True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def as_label_studio(tasks: Path, path: Path) -> None:
    """Write an export of Label Studio in which the first task is judged good."""
    task: dict[str, Any] = json.loads(tasks.read_text(encoding="utf-8"))[0]
    results = [
        {"from_name": name, "value": {"choices": ["5"]}} for name in ("fluency", "reasoning")
    ]
    task["annotations"] = [{"completed_by": 1, "result": results}]
    path.write_text(json.dumps([task]), encoding="utf-8")


@pytest.mark.slow
def test_the_readme_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in commands(README):
        if words[0] != "annotate":
            continue  # uses of answers are tested in tests/merge_metric/agreement
        if "label-studio.json" in words:
            as_label_studio(here / "tasks.json", here / "label-studio.json")
        run(*words)
    assert read_session(here / "pairs").kind == "equivalence"
    for file in ("items.csv", "tasks.json", "tasks.xml", "study/answers/label-studio-1.jsonl"):
        assert (here / file).is_file()
    append(answers_path(here / "study", "ann"), [Answer("snli:1/noun/dog/cat", 4, 5)])
    (code,), (printed,) = blocks("python"), blocks("text")
    exec(code, {})
    assert capsys.readouterr().out == printed
    assert read_answers([here / "study"])["annotator"].to_pylist() == ["ann", "label-studio-1"]


def test_the_folder_is_as_drawn(here: Path) -> None:
    (tree,) = re.findall(r"^study/\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    for line in blocks("sh")[0].splitlines() + blocks("sh")[1].splitlines():
        run(*shlex.split(line)[1:])
    for name in ("ann", "bo"):
        append(answers_path(here / "study", name), [Answer("snli:1/noun/dog/cat", 4, 5)])
    visible = [path for path in (here / "study").rglob("*") if not path.name.startswith(".")]
    assert {path.name for path in visible} == set(re.findall(r"^ +([\w.]+)", tree, re.MULTILINE))


def test_keys_are_those_of_the_page() -> None:
    script = (PACKAGE / "page/page.js").read_text(encoding="utf-8")
    bound = re.search(r"const KEYS = \{(.*?)\};", script, re.DOTALL)
    assert bound is not None
    names = {"ArrowLeft": "←", "ArrowRight": "→", "ArrowUp": "↑", "ArrowDown": "↓"}
    keys = re.findall(r'^  "?(\w+|\?)"?:', bound[1], re.MULTILINE)
    keys += re.findall(r"^  (\w+),$", bound[1], re.MULTILINE)
    assert len(keys) == 13
    for key in keys:
        assert f"`{names.get(key, key)}`" in README
