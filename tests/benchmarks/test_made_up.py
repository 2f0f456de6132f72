"""Large sources, `BENCH="-k made_up --problems 10000000"` up to ten million (15 GB)."""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
from helpers.bench.commands import a_command, folder_of, measured, once
from helpers.bench.contender import Reply
from helpers.bench.made_up_answers import MADE_UP, make_up_answers, write_made_up_mlm
from helpers.bench.problems import write_crossed_problems
from helpers.bench.results import Goal, Measurement, Row, Side

pytestmark = pytest.mark.benchmark

PEAK_MB: Final = 2000


def alone(folder: str, work: str, **options: Any) -> Callable[[], Any]:
    """Time one of these functions alone, without the rest of a command."""
    return partial(globals()[work], folder, **options)


def suggest_made_up(folder: str) -> None:
    """`suggest` without a forward pass: read, sort, tag, ask, keep answers."""
    make_up_answers()
    line = f"suggest --recipe demo --mlm {MADE_UP} --set subsamples=1 --source {MADE_UP}"
    line += " --data problems.jsonl --run run"
    a_command(line, folder)()


def build(folder: str) -> None:
    """`build` by two processes, without the export."""
    from generation import build

    build(f"{folder}/run", workers=2)


def export(folder: str) -> None:
    from merge_dataset.export import export_dataset

    export_dataset(Path(folder, "run"), Path(folder, "merge-nli"))


def register(folder: str) -> None:
    """`register` without the check, which it shares with `check`."""
    from merge_dataset.register import register_dataset

    os.chdir(folder)
    register_dataset(Path("merge-nli"), checked=True)


def load(folder: str, streaming: bool) -> int:
    """`load_dataset` of a registered dataset, or streaming of its folder: all rows, in batches."""
    import datasets

    path = str(Path(folder, "merge-nli")) if streaming else "merge-nli"
    variants = datasets.load_dataset(path, MADE_UP, split="variants", streaming=streaming)
    batches = variants.with_format("arrow").iter(10_000)
    return sum(len(batch["label"]) for batch in batches)


def predict_made_up(folder: str) -> None:
    from helpers.bench.made_up_rows import write_other_predictions

    write_other_predictions(Path(folder, "m.parquet"), Path(folder, "other.parquet"))


STEPS: Final[dict[str, tuple[Callable[..., Callable[[], Any]], dict[str, Any]]]] = {
    "suggest without masked LMs": (alone, {"work": "suggest_made_up"}),
    "build": (alone, {"work": "build"}),
    "export": (alone, {"work": "export"}),
    "check": (a_command, {"line": "check merge-nli"}),
    "register without the check": (alone, {"work": "register"}),
    "load": (alone, {"work": "load", "streaming": False}),
    "stream": (alone, {"work": "load", "streaming": True}),
    "predict": (a_command, {"line": "baseline majority --dataset merge-nli --out m.parquet"}),
    "score": (a_command, {"line": "score m.parquet --dataset merge-nli"}),
    "other predictions": (alone, {"work": "predict_made_up"}),
    "compare": (a_command, {"line": "compare m.parquet other.parquet --dataset merge-nli"}),
}


def folders(
    kind: str, problem_file: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[int, Path]]:
    """Yield each number of problems, and a folder of that size; a stopped measurement continues."""
    for count in sorted(map(int, request.config.getoption("--problems").split(","))):
        folder = folder_of(f"{kind}-{count}")
        monkeypatch.setenv("HF_HOME", str(folder / "cache"))
        once(
            folder / "problems.jsonl",
            lambda file, n=count: write_crossed_problems(file, problem_file, n),
        )
        yield count, folder
        shutil.rmtree(folder)


def row(name: str, count: int, reply: Reply, remark: str) -> Row:
    side = Side.of(f"{count:,} problems", [reply], count)
    goal = Goal(f"≤ {PEAK_MB:,} MB", (side.peak_mb or 0) <= PEAK_MB)
    return Row(name, "problem", side, None, (goal,), remark)


def test_made_up(
    problem_file: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count, folder in folders("made-up", problem_file, request, monkeypatch):
        measurement, rows = Measurement("made-up", f"{count:010}"), []
        write_made_up_mlm(folder)
        variants = 0
        for name, (work, arguments) in STEPS.items():
            reply, remark = measured(folder, name, work, arguments)
            if name == "build":
                variants = pq.read_metadata(folder / "run/variants.parquet").num_rows
            if name in ("load", "stream"):
                assert reply.answer == variants
            remark = remark or (f"{variants:,} variants" if variants else "")
            rows.append(row(f"answers made up, {name}", count, reply, remark))
            measurement.write(rows)
