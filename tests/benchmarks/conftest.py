import json
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from helpers.bench import results
from helpers.bench.contender import FOLDER
from helpers.bench.results import Race
from helpers.processes import python_of

from generation.config import bundled_path


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("benchmarks")
    group.addoption("--again", action="store_true", help="measure again what was measured")
    group.addoption("--rounds", type=int, default=5, help="how often contenders take turns")
    group.addoption(
        "--seconds", type=float, default=10, help="about how long a slow contender's turn may be"
    )
    group.addoption(
        "--rows",
        default="100000,1000000",
        help="numbers of rows that are scored; ten million take a quarter of an hour",
    )
    group.addoption("--rows-folder", help="folder where what is made up for these stays")
    group.addoption("--contexts", type=int, default=300, help="masked sentences of suggestions")
    group.addoption("--device", default="cpu", help="what cost is measured on: cpu, cuda")
    group.addoption(
        "--problems",
        default="1000,10000,100000",
        help="numbers of problems of which growth is measured; a million takes hours",
    )


KEY: Final = pytest.StashKey[str]()
"""Commit and options of this call; a measurement with other ones is repeated."""


def file_of(item: pytest.Item) -> Path:
    """File with the key of the call that made a measurement."""
    name = "".join(c if c.isalnum() else "-" for c in item.name)
    return FOLDER / "done" / f"{item.path.stem}-{name}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip measurements that were made with the same options at the same commit."""
    if config.getoption("markexpr") != "benchmark":
        return
    names = ("rounds", "seconds", "contexts", "device", "problems", "rows")
    options = {name: config.getoption(name) for name in names}
    key = config.stash[KEY] = json.dumps([results.commit(), options])
    done = [item for item in items if (f := file_of(item)).is_file() and f.read_text() == key]
    if done and not config.getoption("again"):
        config.hook.pytest_deselected(items=done)
        items[:] = [item for item in items if item not in done]
        print(f"{len(done)} measured already at this commit; --again measures them anew")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    if key := item.config.stash.get(KEY, None):
        file_of(item).parent.mkdir(parents=True, exist_ok=True)
        file_of(item).write_text(key, encoding="utf-8")
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if (FOLDER / "rows").is_dir() and terminalreporter.config.getoption("markexpr") == "benchmark":
        terminalreporter.write_line(results.merge())
        terminalreporter.write_line(f"{FOLDER}/results.md, results.json")


@pytest.fixture
def race(request: pytest.FixtureRequest) -> Race:
    return partial(results.race, rounds=request.config.getoption("--rounds"))


@pytest.fixture
def timed_race(race: Race, request: pytest.FixtureRequest) -> Race:
    """A race in which slow contenders have so many seconds per turn."""
    return partial(race, budget=request.config.getoption("--seconds"))


@pytest.fixture
def peers_python() -> str:
    return python_of("MERGE_NLI_PEERS_PYTHON")


@pytest.fixture
def problem_file(shared_data: Path) -> Path:
    """SNLI's test set if it is there, else the demo's problems, which have the same columns."""
    real = shared_data / "snli_test.jsonl"
    return real if real.is_file() else bundled_path("demo/problems.jsonl")


@pytest.fixture
def labelled(problem_file: Path) -> list[dict[str, str]]:
    rows = [json.loads(line) for line in problem_file.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["gold_label"] != "-"]
