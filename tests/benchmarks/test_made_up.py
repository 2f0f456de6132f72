"""Whole commands, and large sources: `BENCH="-k made_up --problems 10000000"` up to ten million."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
from helpers.bench.contender import Contender, Reply
from helpers.bench.made_up_answers import MADE_UP, make_up_answers, write_made_up_mlm
from helpers.bench.results import Goal, Measurement, Row, Side

from merge_dataset.schema import LABELS

pytestmark = pytest.mark.benchmark

PEAK_MB: Final = 2000
GROUP: Final = 32


def write_crossed_problems(file: Path, real: Path, count: int) -> None:
    """Write distinct problems from real texts, crossed in groups of 32."""
    every = map(json.loads, real.read_text(encoding="utf-8").splitlines())
    rows = [row for row in every if row["gold_label"] in LABELS]
    crossed = _crossed(rows)
    with file.open("w", encoding="utf-8") as lines:
        for number in range(count):
            lines.write(json.dumps(next(crossed) | {"pairID": f"crossed-{number:010}"}) + "\n")


def _crossed(rows: list[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Yield the premise of one problem with another's hypothesis and label, each pair once."""
    premises = list(dict.fromkeys(row["sentence1"] for row in rows))
    others = list({row["sentence2"]: row for row in rows}.values())
    groups = [others[start : start + GROUP] for start in range(0, len(others), GROUP)]
    for turn in range(len(groups)):
        for number, start in enumerate(range(0, len(premises), GROUP)):
            group = groups[(number + turn) % len(groups)]
            for premise, row in product(premises[start : start + GROUP], group):
                yield {
                    "gold_label": row["gold_label"], "sentence1": premise,
                    "sentence2": row["sentence2"],
                }  # fmt: skip


def a_command(line: str, folder: str) -> Callable[[], None]:
    """Run a command of `merge-nli` in a folder, including its imports, as for a user."""

    def answer() -> None:
        from generation.cli import main

        os.chdir(folder)
        sys.argv = ["merge-nli", *line.split()]
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"merge-nli {line}: exit code {end.code}") from end

    return answer


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

REAL: Final = {
    "generate": "generate --source snli --data {problems} --mlm {models}/bert-tiny-mlm "
    "--mlm {models}/minilm-l6-mlm --run run --out merge-nli",
    "predict": "predict --model {models}/bert-tiny-nli --dataset merge-nli --out m.parquet",
    "report": "report m.parquet --dataset merge-nli --out report.html",
}


def row(name: str, count: int, reply: Reply, variants: int) -> Row:
    side = Side.of(f"{count:,} problems", [reply], count)
    goal = Goal(f"≤ {PEAK_MB:,} MB", (side.peak_mb or 0) <= PEAK_MB)
    remark = f"{variants:,} variants" if variants else ""
    return Row(name, side, unit="problem", goals=(goal,), agreement=remark)


def test_made_up(
    tmp_path: Path,
    problem_file: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for count in sorted(map(int, request.config.getoption("--problems").split(","))):
        folder = tmp_path / f"{count}"
        folder.mkdir()
        monkeypatch.setenv("HF_HOME", str(folder / "cache"))
        write_crossed_problems(folder / "problems.jsonl", problem_file, count)
        measurement, rows = Measurement("made-up", f"{count:010}"), []
        write_made_up_mlm(folder)
        variants = 0
        for name, (work, arguments) in STEPS.items():
            with Contender(name, work, arguments | {"folder": str(folder)}) as ours:
                reply = ours.ask()
            if name == "build":
                variants = pq.read_metadata(folder / "run/variants.parquet").num_rows
            if name in ("load", "stream"):
                assert reply.answer == variants
            rows.append(row(f"answers made up, {name}", count, reply, variants))
            measurement.write(rows)
        shutil.rmtree(folder)


def test_whole_commands(tmp_path: Path, problem_file: Path, shared_models: Path) -> None:
    """Commands with real problems and models, and with their imports."""
    rows, places = [], {"problems": problem_file, "models": shared_models}
    for name, line in REAL.items():
        arguments = {"line": line.format(**places), "folder": str(tmp_path)}
        with Contender(name, a_command, arguments) as ours:
            side = Side.of(problem_file.name, [ours.ask()], 1)
        rows.append(Row(f"merge-nli {name}", side, unit="command"))
        Measurement("commands", "real").write(rows)
