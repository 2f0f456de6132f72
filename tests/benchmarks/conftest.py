"""Options of the benchmarks; the table is printed when all are done."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from helpers.bench import results
from helpers.bench.contender import FOLDER

from generation.config import bundled_path


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("benchmarks")
    group.addoption("--rounds", type=int, default=5, help="how often contenders take turns")
    group.addoption(
        "--seconds", type=float, default=10, help="about how long a slow contender's turn may be"
    )
    group.addoption("--contexts", type=int, default=300, help="masked sentences of suggestions")
    group.addoption("--device", default="cpu", help="what cost is measured on: cpu, cuda")
    group.addoption(
        "--problems",
        default="1000,10000,100000",
        help="numbers of problems of which growth is measured; a million takes hours",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if (FOLDER / "rows").is_dir() and terminalreporter.config.getoption("markexpr") == "benchmark":
        terminalreporter.write_line(results.merge())
        terminalreporter.write_line(f"{FOLDER}/results.md, results.json")


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--rounds")


@pytest.fixture
def budget(request: pytest.FixtureRequest) -> float:
    """Seconds of a slow contender's turn."""
    return request.config.getoption("--seconds")


@pytest.fixture
def peers_python() -> str:
    """The interpreter of the environment that `make bench` installs the peers in."""
    if not (python := os.environ.get("MERGE_NLI_PEERS_PYTHON")):
        pytest.skip("needs the peers: make bench")
    return python


@pytest.fixture
def problem_file(shared_data: Path) -> Path:
    """SNLI's test set where it is, else the demo's problems, which have the same columns."""
    real = shared_data / "snli_test.jsonl"
    return real if real.is_file() else bundled_path("demo/problems.jsonl")


@pytest.fixture
def labelled(problem_file: Path) -> list[dict[str, str]]:
    """Its labelled problems."""
    rows = [json.loads(line) for line in problem_file.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["gold_label"] != "-"]
