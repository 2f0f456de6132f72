"""A folder as a user has it after a day of work: data, a run, a dataset, predictions, a session."""

import json
import logging
from contextlib import chdir
from pathlib import Path

import numpy as np
import pyarrow as pa
from typer.testing import CliRunner

from generation.cli import app
from merge_metric.frame.predictions import read_predictions, write_predictions

PREMISE, HYPOTHESIS = "A boy rides a red bicycle in the park.", "A boy rides a bicycle."

ROWS = [
    {"pairID": "1", "gold_label": "entailment", "sentence1": PREMISE, "sentence2": HYPOTHESIS},
    {"pairID": "2", "gold_label": "neutral", "sentence1": PREMISE, "sentence2": "A boy is late."},
    {"pairID": "3", "gold_label": "contradiction", "sentence1": PREMISE, "sentence2": "It sleeps."},
]


def call(*arguments: str) -> tuple[int, str, str]:
    """Run a command in this process: exit code, stdout, stderr; an unexpected error is raised."""
    logging.getLogger().handlers.clear()  # they write to the last command's stderr
    result = CliRunner().invoke(app, arguments, prog_name="merge-nli")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def do(*commands: str) -> None:
    for command in commands:
        code, printed, text = call(*command.split())
        assert code == 0, f"{command}: {printed[-300:]} {text[-300:]}"


def make(folder: Path) -> None:
    with chdir(folder):
        do(
            "generate --recipe demo --limit 12 --run runs/demo --out merge-nli",
            "baseline majority --dataset merge-nli --out majority.parquet",
            "annotate merge-nli --out study --per-class 5",
        )
        predictions = read_predictions(Path("majority.parquet"))
        write_predictions(Path("a.parquet"), _other_answers(predictions, 1))
        write_predictions(Path("b.jsonl"), _other_answers(predictions, 2))
        _write_as_csv(Path("c.csv"), _other_answers(predictions, 3))
        lines = "".join(json.dumps(row) + "\n" for row in ROWS)
        Path("problems.jsonl").write_text(lines)
        answers = ["annotator,variant_id,fluency,reasoning,comment"]
        lines = Path("study/sample.jsonl").read_text().splitlines()
        sample = [json.loads(line)["variant_id"] for line in lines]
        answers += [f"ann,{name},{1 + i % 5},{5 - i % 3}," for i, name in enumerate(sample)]
        Path("study/answers").mkdir()
        Path("study/answers/ann.csv").write_text("\n".join(answers) + "\n")


def _other_answers(predictions: pa.Table, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    gold = predictions["label"].to_numpy()
    logits = rng.normal(size=(len(gold), 3)) + 2.5 * np.eye(3)[gold]
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    columns = {name: predictions[name] for name in predictions.column_names}
    columns["prediction"] = pa.array(shares.argmax(axis=1))
    columns["probabilities"] = pa.FixedSizeListArray.from_arrays(pa.array(shares.ravel()), 3)
    return pa.table(columns)


def _write_as_csv(path: Path, predictions: pa.Table) -> None:
    names = ("entailment", "neutral", "contradiction")
    lines = ["variant_id,seed_id,label,prediction"]
    lines += [
        f'"{row["variant_id"]}",{row["seed_id"]},{names[row["label"]]},{names[row["prediction"]]}'
        for row in predictions.to_pylist()
    ]
    path.write_text("\n".join(lines) + "\n")
