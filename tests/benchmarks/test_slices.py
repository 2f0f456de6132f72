"""A large source in slices, from problems to figures, command by command; `make bench`.

`make bench BENCH="-k slices --problems 1000000"` goes as far as a million. The problems are real
texts in new pairs, the masked LM is the bundled one, and the predictions are a baseline's.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest
from helpers.bench.commands import a_command, folder_of, measured, once
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


def test_slices(
    problem_file: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time and memory of each command, in a process of its own; one round.

    A run that was stopped goes on where it was, as a million problems take long.
    """
    real = problem_file
    for count in sorted(map(int, request.config.getoption("--problems").split(","))):
        measurement, rows = Measurement("slices", f"commands-{count:010}"), []
        folder = folder_of(f"slices-{count}")
        monkeypatch.setenv("HF_HOME", str(folder / "cache"))
        once(folder / "problems.jsonl", lambda file, n=count: write_crossed_problems(file, real, n))
        for name, line in COMMANDS.items():
            more = f" --slice-problems {-(-count // SLICES)}" if name == "suggest" else ""
            reply, remark = measured(folder, name, a_command, {"line": line + more})
            side = Side.of(f"{count:,} problems", [reply], count)
            goal = Goal(f"≤ {PEAK_MB:,} MB", (side.peak_mb or 0) <= PEAK_MB)
            rows.append(Row(f"in slices, {name}", "problem", side, None, (goal,), remark))
            measurement.write(rows)
        assert split_files(folder / "merge-nli", "bench")["variants"]
        assert (folder / "majority.parquet").is_file()
        shutil.rmtree(folder)
