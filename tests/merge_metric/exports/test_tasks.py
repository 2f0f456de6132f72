"""Content of tasks, without the harnesses; tests/harnesses runs them."""

from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from helpers.subsampled_folder import write_folder

from merge_metric.exports import task_answers
from merge_metric.exports.harness_tasks import (
    ANSWER,
    QUESTION,
    TaskOptions,
    export_inspect,
    export_lm_eval,
)
from merge_metric.exports.registry import Exported, _yaml
from merge_metric.models.prompts import read_prompt


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return write_folder(tmp_path / "merge-nli")


class Loader(yaml.SafeLoader):
    """Reads a function's name as text."""


Loader.add_constructor("!function", lambda loader, node: f"!{loader.construct_scalar(node)}")


def read_yaml(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader)
    return value


@pytest.mark.parametrize("text", ["it\x92s", "a\x7fb", "\x85", "\u2028 “ü” 😀 'q' \\ %"])
def test_yaml_keeps_characters(text: str) -> None:
    assert yaml.safe_load(_yaml([text])) == [text]


def rendered(task: dict[str, Any], question: str) -> str:
    """Render a prompt as the harness does: texts are columns, used unchanged."""
    assert task["doc_to_text"] == QUESTION
    few = task.get("fewshot_config", {"samples": []})
    shown = "".join(
        sample[QUESTION]
        + few["target_delimiter"]
        + (
            sample[ANSWER]
            if few["doc_to_target"] == ANSWER
            else few["doc_to_choice"][sample["label"]]
        )
        + task["fewshot_delimiter"]
        for sample in few["samples"]
    )
    return str(task["description"] + shown + question)


@pytest.mark.parametrize("shots", ["exc", "none"])
@pytest.mark.parametrize("letters", ["spaced", "both"])
def test_the_prompt_is_that_of_predict(
    folder: Path, tmp_path: Path, shots: str, letters: Literal["spaced", "both"]
) -> None:
    start = "<|endoftext|>"
    options = TaskOptions(shots=shots)
    export_lm_eval(
        Exported(folder=folder), tmp_path / "out", options, letters=letters, prompt_start=start
    )
    task = read_yaml(tmp_path / "out/merge_nli_snli_verbs.yaml")
    prompt = read_prompt(shots, sources=["snli"], start=start)
    pair = ("{{premise}} {x}\n%", "“Q”: {% if %}")
    assert rendered(task, prompt.template.text(*pair)) == prompt.text(*pair)
    assert task["num_fewshot"] == len(prompt.examples)
    follow = [task["target_delimiter"] + choice for choice in task["doc_to_choice"]]
    assert follow == [" A", " B", " C", *(["A", "B", "C"] if letters == "both" else [])]


def test_settings(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings are read as written: the prompt equals that of `predict`."""
    exports = {"a": export_lm_eval, "b": export_inspect}
    for name, export in exports.items():
        export(
            Exported(folder=folder, config=["snli"]),
            tmp_path / name,
            TaskOptions(ct=[100], answers="words"),
        )
        monkeypatch.setattr(task_answers, "EXPORTED", tmp_path / name)
        settings = task_answers.TaskSettings.read()
        assert (settings.dataset, settings.revision) == (f"../{folder.name}", None)
        assert settings.prompts == {"snli": read_prompt("snli")}
        assert (settings.thresholds, settings.max_answer_tokens) == ((100,), 1024)
        both = ["A", "B", "C"] if name == "b" else []  # chat models may answer in either form
        assert settings.choices("snli") == [" A", " B", " C", *both]
