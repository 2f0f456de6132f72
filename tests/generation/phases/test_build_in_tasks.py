"""Builds split into tasks, which run in this process, one after the other."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from helpers.dataset_files import files_of
from helpers.tasks_here import TasksHere
from typer.testing import CliRunner

from generation import Config, suggest
from generation.cli import app
from generation.phases.suggest import Reach, find_questions
from generation.problems import on_disk
from generation.problems.on_disk import sorted_problems
from generation.problems.sources import ProblemReader
from generation.problems.tagging import Tagger
from generation.run_folder import RunFolder
from generation.suggestions import questions
from generation.variants import work as blocks
from merge_dataset.executors import Distribution, ExecutorError
from merge_dataset.files import write_text

BLOCKS = 5
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def suggested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of several blocks after `suggest`; each test names its own build in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_disk, "BLOCK", 3)
        run = str(tmp_path_factory.mktemp("suggested") / "run")
        suggest(Config.from_recipe("demo", run=run, limit=3 * BLOCKS - 1))
    return Path(run)


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> TasksHere:
    return TasksHere(monkeypatch)


@pytest.fixture
def build(suggested: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `build` into a folder of the run, with a separate dataset."""
    monkeypatch.chdir(suggested.parent)

    def run(into: str, *options: Any) -> Result:
        fixed = ("build", "--run", "run", "--into", into, "--out", tmp_path / f"{into}-dataset")
        return CliRunner().invoke(app, [*map(str, fixed), *map(str, options)])

    return run


def files(folder: Path) -> dict[str, bytes]:
    """All files of a folder except locks, so that leftover files are found."""
    return files_of(folder, r"\.lock.*")


TASKS = ("--executor", "local", "--tasks")


@pytest.mark.slow(but=["2"])
@pytest.mark.parametrize("count", [1, 2, 5], ids=str)
def test_the_number_of_tasks_changes_no_byte(
    build: Run,
    tasks: TasksHere,
    suggested: Path,
    tmp_path: Path,
    count: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    whole, dealt = f"whole{count}", f"dealt{count}"
    options = ("--repair-articles", "--min-mlms", 1)
    assert build(whole, *options).exit_code == 0
    done = build(dealt, *options, *TASKS, count, "--gpus-per-task", 1)
    assert done.exit_code == 0, done.output
    assert tasks.blocks == [f"block {number}" for number in range(BLOCKS)]
    assert "this step has no use for GPUs, so its tasks get none" in caplog.text
    assert tasks.distribution == Distribution(executor="local", tasks=count)
    made = files(suggested / whole)
    assert len(made) == 6
    assert files(suggested / dealt) == made
    assert files(tmp_path / f"{dealt}-dataset") == files(tmp_path / f"{whole}-dataset")


Find = Callable[..., dict[str, bytes]]


@pytest.fixture
def find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Find:
    """Finds a run's questions, in several blocks, by name; returns their files."""
    monkeypatch.setattr(on_disk, "BLOCK", 4)
    monkeypatch.setattr(questions, "BLOCK", 8)
    monkeypatch.setattr(Tagger, "load", partial(lambda it, *_, **__: it, Tagger.load()))

    def find(name: str, tasks: int | None = None, **settings: Any) -> dict[str, bytes]:
        run = RunFolder(tmp_path / name)
        config = Config.from_recipe("demo", run=str(run.path), limit=4 * BLOCKS - 1, **settings)
        if not run.problems.is_file():
            with sorted_problems(run.problems) as add:
                ProblemReader(config).read(add)
        write_text(run.config, config.to_toml())
        there = Distribution(executor="local", tasks=tasks or 1, gpus=1)
        find_questions(Reach(run, config), there if tasks else None)
        assert sorted(path.name for path in run.path.iterdir()) == [
            "config.toml", "problems.parquet", "questions"
        ]  # fmt: skip
        files = filter(Path.is_file, run.questions.rglob("*"))
        return {path.relative_to(run.path).as_posix(): path.read_bytes() for path in files}

    return find


def test_a_block_that_failed_is_done_anew(find: Find, tasks: TasksHere) -> None:
    tasks.failing = ("block 4",)
    with pytest.raises(ExecutorError, match="block 4: OSError: no room"):
        find("dealt", 2)
    tasks.failing = ()
    assert find("dealt", 2) == find("here")
    assert len(tasks.blocks) == BLOCKS


@pytest.mark.parametrize("there", [{"tagger": "en_other 1"}, {"numpy": "1"}], ids=str)
def test_tasks_on_other_machines(
    there: dict[str, Any], find: Find, tasks: TasksHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_with = blocks._made_with
    monkeypatch.setattr(blocks, "_made_with", lambda work: made_with(work) | there)
    call = blocks.run_blocks

    def elsewhere(*arguments: Any) -> Any:
        monkeypatch.setattr(blocks, "_made_with", made_with)
        return call(*arguments)

    monkeypatch.setattr(blocks, "run_blocks", elsewhere)
    with pytest.raises(ExecutorError, match=r"tagger and versions, .* has "):
        find("run", 1)
