"""A large source in slices, from problems to figures, command by command; `make bench`.

`make bench BENCH="-k slices --problems 1000000"` goes as far as a million. The problems are real
texts in new pairs, the masked LM is the bundled one, and the predictions are a baseline's.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

import pytest
from helpers.bench.contender import FOLDER, Contender, Reply
from helpers.bench.problems import write_crossed_problems
from helpers.bench.results import Goal, Measurement, Row, Side, commit

from merge_dataset.layout import split_files

pytestmark = pytest.mark.benchmark

PEAK_MB: Final = 1500
"""Largest resident set wanted, however many problems there are."""
SLICES: Final = 10
COMMANDS: Final = {
    "suggest": "suggest --recipe demo --source bench --data problems.jsonl --run run",
    "build": "build --run run",
    "check": "check merge-nli",
    "register": "register merge-nli",
    "predict": "baseline majority --dataset merge-nli --out majority.parquet",
    "score": "score majority.parquet --dataset merge-nli",
}


def a_command(line: str, folder: str) -> Callable[[], None]:
    """Run a command of `merge-nli` in a folder, as a user does; what it imports counts."""

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


def measured(name: str, line: str, folder: Path) -> tuple[Reply, str]:
    """Reply of a command, and a remark; of one that is done already, what was kept."""
    kept, begun = folder / f"{name}.json", folder / f"{name}.begun"
    remark = "stopped once: the rest alone" if begun.is_file() else ""
    if not kept.is_file():
        begun.touch()
        arguments = {"line": line, "folder": str(folder)}
        with Contender(f"merge-nli {name}", a_command, arguments) as ours:
            kept.write_text(json.dumps([asdict(ours.ask()), remark]), encoding="utf-8")
    reply, remark = json.loads(kept.read_text(encoding="utf-8"))
    return Reply(**reply), remark


def test_slices(
    tmp_path: Path,
    problem_file: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Time and memory of each command, in a process of its own; one round.

    A run that was stopped goes on where it was, as a million problems take long.
    """
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    measurement, rows = Measurement("slices", "commands"), []
    for count in sorted(map(int, request.config.getoption("--problems").split(","))):
        folder = FOLDER / "slices" / f"{commit()}-{count}"
        if not (folder / "problems.jsonl").is_file():
            folder.mkdir(parents=True, exist_ok=True)
            write_crossed_problems(folder / "problems.partial", problem_file, count)
            (folder / "problems.partial").rename(folder / "problems.jsonl")
        for name, line in COMMANDS.items():
            more = f" --slice-problems {-(-count // SLICES)}" if name == "suggest" else ""
            reply, remark = measured(name, line + more, folder)
            side = Side.of(f"{count:,} problems", [reply], count)
            goal = Goal(f"≤ {PEAK_MB:,} MB", (side.peak_mb or 0) <= PEAK_MB)
            row = Row(f"in slices, {name}", "problem", side, None, (goal,), remark)
            rows.append(row)
            measurement.write(rows)
        assert split_files(folder / "merge-nli", "bench")["variants"]
        assert (folder / "majority.parquet").is_file()
        shutil.rmtree(folder)
