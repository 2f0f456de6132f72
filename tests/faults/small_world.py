"""A folder as a user has it after a day of work: data, a run, a dataset, predictions, a session."""

import json
import logging
from contextlib import chdir
from pathlib import Path

from golden.worlds import NLI, answers, named, write
from typer.testing import CliRunner

from generation.cli import app
from merge_metric.frame.predictions import read_predictions

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
        rows = read_predictions(Path("majority.parquet")).to_pylist()  # with digests of texts
        a, b, c = (
            [row | made for row, made in zip(rows, answers(rows, name, 0.75), strict=True)]
            for name in "abc"
        )
        write(Path("a.parquet"), a)
        write(Path("b.jsonl"), b)
        write(Path("c.csv"), named([{k: r[k] for k in list(r)[:4]} for r in c], NLI))
        lines = "".join(json.dumps(row) + "\n" for row in ROWS)
        Path("problems.jsonl").write_text(lines)
        judged = ["annotator,variant_id,fluency,reasoning,comment"]
        lines = Path("study/sample.jsonl").read_text().splitlines()
        sample = [json.loads(line)["variant_id"] for line in lines]
        judged += [f"ann,{name},{1 + i % 5},{5 - i % 3}," for i, name in enumerate(sample)]
        Path("study/answers").mkdir()
        Path("study/answers/ann.csv").write_text("\n".join(judged) + "\n")
