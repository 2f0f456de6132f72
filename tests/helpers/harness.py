"""One model, asked by `merge-nli predict` and by a harness in a separate environment."""

import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

from helpers.commands import run as merge_nli
from helpers.processes import output_of
from helpers.subsampled_folder import write_folder
from helpers.tiny_language_models import tiny_lm, tiny_tokenizer
from helpers.tiny_models import save
from merge_dataset.schema import LABELS, NLI, ProblemFormat
from merge_metric.exports.task_answers import FIGURES
from merge_metric.models.templates import Template
from merge_metric.predict.problems import format_of_problems, read_problems
from merge_metric.score import score_file

SHOTS: Final = """\
{"premise": "It runs.", "hypothesis": "It plays.", "label": 1}
{"premise": "A cat is red.", "hypothesis": "A cat is there.", "label": "entailment"}
{"premise": "A car is old.", "hypothesis": "A car is {new}.", "label": "contradiction"}
"""

_CHAT_TEMPLATE: Final = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)


CHOOSING: Final = ProblemFormat(("question", "one", "two"), ("first", "second"))
CASES: Final = {
    "three texts": (ProblemFormat(("context", "question", "answer"), ("no", "yes")), "none"),
    "four labels": (ProblemFormat(("text", "other"), ("same", "part", "whole", "else")), "none"),
    "choices": (
        CHOOSING,
        """\
question = "{question}\\n{choices}\\nThe right one is"

[choices]
first = "it is {one}"
second = "it is {two}"

[[example]]
question = "Which {is} red?"
one = "a rose"
two = "{{ grass }}"
label = "first"
""",
    ),
    "examples": (NLI, "seeds"),
}
"""Name → format and prompt of problems other than the paper's."""


@dataclass(frozen=True)
class Place:
    path: Path
    shots: str

    @property
    def dataset(self) -> Path:
        return self.path / "merge-nli"

    @property
    def model(self) -> Path:
        return self.path / "tiny"

    def export(self, *arguments: str) -> str:
        return merge_nli("export", *arguments, "--shots", self.shots).stdout

    def ours(self, config: str, *options: str) -> dict[str, dict[str, Any]]:
        out = self.path / "ours.parquet"
        command = ["predict", "--dataset", self.dataset, "--config", config, "--overwrite"]
        command += ["--model", self.model, "--shots", self.shots, "--device", "cpu", "--out", out]
        merge_nli(*command, *options)
        return {row["variant_id"]: row for row in pq.read_table(out).to_pylist()}

    def figures(
        self,
        config: str,
        thresholds: tuple[int, ...],
        *,
        allow_missing: bool = False,
        log: Path | None = None,
    ) -> dict[str, float]:
        """Score our own answers, or those in a log of a harness."""
        result = score_file(
            log or self.path / "ours.parquet",
            self.dataset,
            [config],
            allow_missing=allow_missing,
            n_bootstrap=0,
        )
        outcome = {name: result[config][name] for name in FIGURES}
        outcome["without_label"] = result[config].get("without_label", {"share": 0.0})["share"]
        table = pq.read_table(self.path / "ours.parquet")
        seed = json.loads(table.schema.metadata[b"merge_nli"]).get("letters_seed")
        problems = read_problems(str(self.dataset), [config])
        own = format_of_problems(problems)
        order = Template.of(own.fields, own.labels, seed).order
        texts = {row["variant_id"]: [row[f] for f in own.fields] for row in problems.to_pylist()}
        codes = dict(enumerate(range(len(own.labels)))) | {n: i for i, n in enumerate(own.labels)}
        letters = Counter(
            order(*texts[row["variant_id"]]).index(codes[row["prediction"]])
            for row in table.to_pylist()
            if row["prediction"] in codes
        )
        most = max(letters.values(), default=0)
        outcome["most_frequent_letter"] = most / (letters.total() or 1)
        curve = result[config]["sv_curve"]["accuracy"]
        outcome |= {f"sv@{threshold}": curve[threshold - 1] for threshold in thresholds}
        return {name: math.nan if value is None else value for name, value in outcome.items()}


def make_place(
    path: Path,
    kind: str = "gpt2",
    *,
    chat: bool = False,
    problem_format: ProblemFormat = NLI,
    shots: str = SHOTS,
) -> Place:
    if "\n" in shots:
        own = path / ("own.jsonl" if shots.startswith("{") else "own.toml")
        own.write_text(shots, encoding="utf-8")
        shots = str(own)
    place = Place(path, shots)
    source = "snli" if problem_format == NLI else "mine"
    write_folder(place.dataset, source=source, problem_format=problem_format)
    save(tiny_lm(kind), tiny_tokenizer(kind), place.model)
    if chat:
        (place.model / "chat_template.jinja").write_text(_CHAT_TEMPLATE, encoding="utf-8")
    return place


def ask_others(
    harness: str, case: str, answers: str, path: Path, *options: str, chat: bool = False
) -> tuple[Place, str, tuple[str, ...]]:
    """Export a case's tasks, answered by `letters` or `words`; return config, our options."""
    problem_format, shots = CASES[case]
    place = make_place(path, chat=chat, problem_format=problem_format, shots=shots)
    config = "snli" if shots == "seeds" else "mine"
    asked = ("--answers", answers, "--max-answer-tokens", "8") if answers == "words" else ()
    asked += ("--shuffle-letters", "--letters-seed", "7") if case != "three texts" else ()
    more = ("--out", str(path / "tasks"), *(() if answers == "words" else options))
    place.export(harness, str(place.dataset), "--config", config, *more, *asked)
    return place, config, asked


def assert_answers(
    told: Mapping[str, Any], rows: Mapping[str, Any], labels: Sequence[str] = LABELS
) -> None:
    """Compare answers by variant_id: labels, as names or numbers, and texts or probabilities."""

    def name_of(prediction: str | int | None) -> str | None:
        is_code = isinstance(prediction, int)
        return (labels[prediction] if prediction >= 0 else None) if is_code else prediction

    assert told.keys() == rows.keys()
    for name, answer in told.items():
        ours = rows[name]
        assert name_of(answer["prediction"]) == name_of(ours["prediction"])
        if ours.get("answer_text") is not None:
            assert answer["answer_text"] == ours["answer_text"]
        else:
            assert answer["probabilities"] == pytest.approx(ours["probabilities"], abs=1e-4)


def run(command: list[str], cwd: Path, more: Mapping[str, str] | None = None) -> str:
    """Run a command offline, with separate caches, without this project on its path."""
    home = {"HOME": str(cwd), "HF_HOME": str(cwd / "hf"), "HF_HUB_OFFLINE": "1"}
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    return output_of(*command, cwd=cwd, env={**environment, **home, **(more or {})})
