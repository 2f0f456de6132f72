"""Time and memory by number of problems: `make bench BENCH="-k growth --problems 1000,1000000"`."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest
from helpers.bench.contender import Contender, Reply
from helpers.bench.problems import write_problems
from helpers.bench.results import Goal, Measurement, Row, Side

from generation import Config, build, suggest

pytestmark = pytest.mark.benchmark

PEAK_MB: Final = 1500
"""Largest resident set allowed for any number of problems."""
PER_PROBLEM: Final = 1.1
"""Largest ratio of the time per problem to that of the smallest number of problems."""


def first_phase(data: str, run: str) -> Callable[[], None]:

    def answer() -> None:
        suggest(Config.from_recipe("demo", source="bench", data=data, run=run))

    return answer


def second_phase(run: str) -> Callable[[], None]:

    def answer() -> None:
        build(run)

    return answer


def test_growth(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    measurement = Measurement("growth", "problems")
    counts = sorted(int(count) for count in request.config.getoption("--problems").split(","))
    sides: dict[str, list[Side]] = {"suggest": [], "build": []}
    for count in counts:
        data, run = str(tmp_path / f"{count}.jsonl"), str(tmp_path / str(count))
        write_problems(Path(data), count)
        phases = [
            Contender("suggest", first_phase, {"data": data, "run": run}),
            Contender("build", second_phase, {"run": run}),
        ]
        for phase in phases:
            sides[phase.name].append(Side.of(f"{count:,} problems", [once(phase)], count))
            measurement.write([row for name in sides for row in rows(name, sides[name])])
        assert pq.read_metadata(f"{run}/problems.parquet").num_rows == count
        assert pq.read_metadata(f"{run}/variants.parquet").num_rows > 0


def once(contender: Contender) -> Reply:
    with contender:
        return contender.ask()


def rows(phase: str, sides: list[Side]) -> list[Row]:
    found = []
    for side in sides:
        assert side.peak_mb is not None
        goals = [Goal(f"≤ {PEAK_MB:,} MB", side.peak_mb <= PEAK_MB)]
        if side is not sides[0]:
            linear = side.cpu[0] <= PER_PROBLEM * sides[0].cpu[0]
            goals.append(Goal(f"≥ {1 / PER_PROBLEM:.2g}×", linear))
        smallest = None if side is sides[0] else sides[0]
        found.append(Row(phase, "problem", side, smallest, tuple(goals)))
    return found
