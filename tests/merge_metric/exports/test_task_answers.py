"""Content and answers of tasks, without the harnesses; tests/harnesses runs them."""

import json
import math
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import yaml
from helpers.subsampled_folder import write_folder

from merge_metric.exports import task_answers
from merge_metric.exports import task_answers as answers
from merge_metric.exports.harness_tasks import TaskOptions, export_inspect, export_lm_eval, prepare
from merge_metric.exports.registry import Exported, _yaml
from merge_metric.exports.task_answers import ANSWER, QUESTION
from merge_metric.models.prompts import read_prompt
from merge_metric.predict.problems import read_problems, sample_seeds
from merge_metric.score import score_file

OUT = Path("exported")


def settings_of(folder: Path) -> answers.TaskSettings:
    return replace(prepare(Exported(folder=folder), OUT), dataset=str(folder))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return write_folder(tmp_path / "merge-nli")


def write_answers(path: Path, rows: list[answers.TaskAnswer]) -> Path:
    kept = ("variant_id", "seed_id", "label", "prediction", "probabilities", "text_digest")
    path.write_text("".join(json.dumps({k: row[k] for k in kept}) + "\n" for row in rows))
    return path


def answered(folder: Path, config: str, rng_seed: int = 0) -> list[answers.TaskAnswer]:
    rng = random.Random(rng_seed)
    result = []
    for problem in answers.load_problems(settings_of(folder), config):
        log_probs = [rng.gauss(0, 1) + 1 * (problem["label"] == i) for i in range(3)]
        result.append(answers.answer(problem, read_prompt("none"), log_probs))
    return result


@pytest.mark.parametrize("config", ["snli", "snli_nouns", "snli_verbs"])
def test_figures_are_those_of_score(folder: Path, tmp_path: Path, config: str) -> None:
    rows = answered(folder, config)
    file = write_answers(tmp_path / "predictions.jsonl", rows)
    expected = score_file(file, folder, [config], n_bootstrap=0)[config]
    assert "|texts:unverified" not in expected["signature_short"]
    random.Random(1).shuffle(rows)
    settings = replace(settings_of(folder), thresholds=(50, 90, 100))
    result = answers.figures(rows, settings)
    assert set(result) == {*answers.figure_names((50, 90, 100)), "n_seeds", "n_variants"}
    assert result.pop("without_label") == 0
    most = max(Counter(row["prediction"] for row in rows).values())
    assert result.pop("most_frequent_letter") == most / len(rows)
    for name, value in result.items():
        if name.startswith("sv@"):
            assert value == expected["sv_curve"]["accuracy"][int(name[3:]) - 1]
        else:
            assert value == expected[name]
    assert expected["n_subsamples"] == 3
    assert 0 < result["sv@100"] < result["sv@50"] < 1
    right = [r["prediction"] == r["label"] for r in rows if r["variant_id"] != r["seed_id"]]
    assert result["variant_accuracy"] != np.mean(right), "not averaged over subsamples"


def test_wrong_answers_and_cut_seeds(folder: Path) -> None:
    """Undefined figures are NaN; cut seeds are refused, as by a harness's own limit."""
    rows = answered(folder, "snli")
    wrong = [row | {"prediction": (row["label"] + 1) % 3} for row in rows]
    assert answers.figures(wrong, settings_of(folder))["seed_accuracy"] == 0
    assert math.isnan(answers.figures(wrong, settings_of(folder))["relaxed_fooling_rate"])
    with pytest.raises(ValueError, match=r"got some alone of 1: a limit of samples cuts"):
        answers.figures(rows[:-1], settings_of(folder))
    whole, left_out = answers.whole_seeds(rows[:-1])
    assert {row["seed_id"] for row in whole} == {f"snli:{i}" for i in range(7)}
    assert (len(whole), left_out) == (8 + 72 - 13, 1)
    assert answers.whole_seeds(rows) == (rows, 0)


def test_problems_are_those_of_predict(folder: Path) -> None:
    for limit in (None, 3):
        ours = read_problems(str(folder), ["snli_nouns"])
        if limit:
            ours = sample_seeds(ours, limit, rng_seed=5)
        options = {"limit_seeds": limit, "rng_seed": 5}
        theirs = answers.load_problems(settings_of(folder), "snli_nouns", **options)
        assert theirs.select_columns(ours.column_names).to_list() == ours.to_pylist()
    counts = {row["seed_id"]: row["n_problems"] for row in theirs}
    assert len(counts) == 3
    assert set(counts.values()) == {7}


def test_answer() -> None:
    """Spellings of a letter are summed; without any letter, labels are equally probable."""
    problem = {"variant_id": "v", "seed_id": "s", "label": 2, "subsamples": [1], "n_problems": 3,
               "text_digest": "md5:0123456789abcdef", answers.CONFIG: "snli"}  # fmt: skip
    texts = {"premise": "A dog.", "hypothesis": "A cow."}
    logs = [math.log(p) for p in (0.1, 0.3, 0.2, 0.3, 0.05, 0.05)]
    prompt = read_prompt("none")
    result = answers.answer(problem | texts, prompt, logs)
    assert result.pop("probabilities") == pytest.approx([0.4, 0.35, 0.25])
    assert result == {**problem, "prediction": 0, "letter": "A"}
    assert answers.answer(texts | problem, prompt, [-math.inf] * 3)["probabilities"] == [1 / 3] * 3
    assert answers.answer(texts | problem, prompt, [-900, -901, -math.inf])["prediction"] == 0
    shuffled = read_prompt("none", shuffle=1)
    assert shuffled.template.text(*texts.values()).endswith(
        "\nA. Neutral\nB. Entailment\nC. Contradiction\nAnswer:"
    )
    result = answers.answer(problem | texts, shuffled, logs)
    assert result["probabilities"] == pytest.approx([0.35, 0.4, 0.25])
    assert (result["prediction"], result["letter"]) == (1, "A")
    written = [answers.answer(problem | texts, shuffled, x) for x in ("B", "neutral", "?")]
    assert [row["prediction"] for row in written] == [0, 1, -1]
    assert [row["letter"] for row in written] == ["B", "A", ""]


def test_answers_in_words_are_read_as_by_predict(folder: Path) -> None:
    problem = answers.load_problems(settings_of(folder), "snli")[0]
    message = f"**B**\n\n{read_prompt('none').text('It rains.', 'It pours.')} C"
    result = answers.answer(problem, read_prompt("snli"), message)
    assert (result["prediction"], result["answer_text"]) == (1, "**B**")


def test_an_exported_folder_stands_alone(folder: Path, tmp_path: Path) -> None:
    export_lm_eval(Exported(folder=folder), tmp_path / "out")
    rows = answered(folder, "snli")
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    code = """
import json, sys
sys.modules["merge_metric"] = sys.modules["merge_dataset"] = None  # importing them fails
import importlib.util
spec = importlib.util.spec_from_file_location("merge_nli", "out/merge_nli.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
rows = json.load(open("rows.json"))
made = [getattr(module, name.replace("@", "_"))(rows) for name in module.FIGURES]
assert not {"evaluate", "datasets"} & set(sys.modules)
print(json.dumps(dict(zip(module.FIGURES, made))))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = answers.figures(rows, settings_of(folder))
    assert json.loads(done.stdout) == {name: expected[name] for name in answers.figure_names((90,))}
    for path in (tmp_path / "out").rglob("*.py"):
        assert "merge_metric." not in path.read_text(encoding="utf-8").replace("`merge_metric.", "")


def test_a_folder_is_found_from_the_exported_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a/b"
    out.mkdir(parents=True)
    place = Exported(folder=folder).place(seen_from=out)
    assert place.startswith("../..")
    monkeypatch.setattr(answers, "EXPORTED", out)
    settings = settings_of(folder)
    assert len(answers.load_problems(replace(settings, dataset=place), "snli")) > 0
    with pytest.raises(FileNotFoundError, match=r"any data file at .*/a/gone"):
        answers.load_problems(replace(settings, dataset="../gone"), "snli")


def test_options(folder: Path) -> None:
    """Prompts depend on the source of each configuration; thresholds are distinct."""
    verbs = Exported(folder=folder, config=["snli_verbs"])
    tasks = prepare(verbs, OUT, TaskOptions(ct=[90, 50, 90]))
    assert (tasks.dataset, tasks.thresholds) == (verbs.place(seen_from=OUT), (90, 50))
    assert tasks.prompts == {"snli_verbs": read_prompt("snli")}
    hub = TaskOptions(hub="user/merge-nli", revision="v1")
    both = prepare(Exported(folder=folder), OUT, hub, letters="both")
    assert both.choices("snli") == [" A", " B", " C", "A", "B", "C"]
    assert (both.dataset, both.revision) == ("user/merge-nli", "v1")


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
        sample[QUESTION] + few["target_delimiter"] + sample[ANSWER] + task["fewshot_delimiter"]
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
