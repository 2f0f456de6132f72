"""Questions found in tasks: the bytes of one process, and what fails is named and done again.

Tasks run here one after the other in this process; `tests/distributed` has them in processes of
their own and on clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.units_here import UnitsHere

from generation import Config
from generation.phases import suggest as suggesting
from generation.phases.suggest import find_questions
from generation.problems import on_disk
from generation.problems.on_disk import sorted_problems
from generation.problems.sources import load_problems
from generation.problems.tagging import Tagger
from generation.run_folder import RunFolder
from generation.suggestions import questions
from merge_dataset.executors.plan import Distribution, ExecutorError, Resources
from merge_dataset.files import write_text

BLOCKS = 5
UNITS = [f"block {number}" for number in range(BLOCKS)]
Find = Callable[..., dict[str, bytes]]


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> UnitsHere:
    return UnitsHere(monkeypatch)


@pytest.fixture
def find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Find:
    """Finds the questions of a run of several blocks and shards, by name; returns their files."""
    monkeypatch.setattr(on_disk, "BLOCK", 4)
    monkeypatch.setattr(questions, "PROBLEMS_PER_SHARD", 4)
    monkeypatch.setattr(Tagger, "load", partial(lambda it, *_, **__: it, Tagger.load()))

    def find(name: str, tasks: int | None = None, **settings: Any) -> dict[str, bytes]:
        run = RunFolder(tmp_path / name)
        config = Config.from_recipe("demo", run=str(run.path), limit=4 * BLOCKS - 1, **settings)
        if not run.problems.is_file():
            with sorted_problems(run.problems) as add:
                load_problems(config, add)
        write_text(run.config, config.to_toml())
        there = Distribution(executor="local", tasks=tasks or 1, resources=Resources(gpus=1))
        find_questions(run, config, there if tasks else None)
        assert sorted(path.name for path in run.path.iterdir()) == [
            "config.toml", "problems.parquet", "questions"
        ]  # fmt: skip
        files = filter(Path.is_file, run.questions.rglob("*"))
        return {path.relative_to(run.path).as_posix(): path.read_bytes() for path in files}

    return find


def test_other_settings_go_on_with_nothing(find: Find, tasks: UnitsHere) -> None:
    """Parts that tasks of other settings made are not used, nor kept by who needs no tasks."""
    tasks.failing = ("block 4",)
    for name in ("dealt", "here"):
        with pytest.raises(ExecutorError):
            find(name, 2)
    tasks.failing = ()
    nouns = find("dealt", 2, word_classes=("noun",))
    assert tasks.units == UNITS
    assert find("here", word_classes=("noun",)) == nouns


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"tagger": "en_other 1"}, "tagger: expected en_other 1, which the command has, got en_co"),
        ({"packages": {"numpy": "1"}}, "expected the command's versions {'numpy': '1'}, a task's"),
    ],
    ids=["tagger", "packages"],
)
def test_tasks_on_other_machines(
    there: dict[str, Any],
    said: str,
    find: Find,
    tasks: UnitsHere,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another tagger, or other packages: the task says so and tags nothing."""
    call = suggesting.call_tasks
    monkeypatch.setattr(
        suggesting, "call_tasks", lambda *given: call(*given[:-1], {**given[-1], **there})
    )
    with pytest.raises(ValueError, match=said.replace("{", r"\{")):
        find("run", 1)
