"""A large source in slices, from problems to figures, command by command; `make bench`.

`make bench BENCH="-k slices --problems 1000000"` goes as far as a million. The problems are real
texts in new pairs, the masked LM is the bundled one, and the predictions are a baseline's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from helpers.bench.contender import Contender
from helpers.bench.problems import write_crossed_problems
from helpers.bench.results import Goal, Measurement, Row, Side

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


def test_slices(
    tmp_path: Path,
    problem_file: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Time and memory of each command, in a process of its own; one round."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    measurement, rows = Measurement("slices", "commands"), []
    for count in sorted(map(int, request.config.getoption("--problems").split(","))):
        folder = tmp_path / str(count)
        folder.mkdir()
        write_crossed_problems(folder / "problems.jsonl", problem_file, count)
        for name, line in COMMANDS.items():
            more = f" --slice-problems {-(-count // SLICES)}" if name == "suggest" else ""
            arguments = {"line": line + more, "folder": str(folder)}
            with Contender(f"merge-nli {name}", a_command, arguments) as ours:
                side = Side.of(f"{count:,} problems", [ours.ask()], count)
            goal = Goal(f"≤ {PEAK_MB:,} MB", (side.peak_mb or 0) <= PEAK_MB)
            rows.append(Row(f"in slices, {name}", "problem", side, None, (goal,)))
            measurement.write(rows)
        assert split_files(folder / "merge-nli", "bench")["variants"]
        assert (folder / "majority.parquet").is_file()
