"""`suggest` split into tasks: the same bytes as in one process, also after failures."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.kept_answers import suggestions_in

from generation import Config, build, suggest
from generation.problems import on_disk
from generation.suggestions import questions
from merge_dataset.executors import Distribution
from merge_dataset.files import read_record

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    """Make many blocks of a few problems."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(questions, "BLOCK", 8)
        patch.setattr(on_disk, "BLOCK", 2)
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


def config(run: Path, **settings: Any) -> Config:
    """Settings with which only some questions are asked, in two rounds."""
    values = {"limit": 40, "workers": 2, "ask_all": False, "min_replacements": 40, **settings}
    return Config.from_recipe("demo", run=str(run), **values)


def tasks_of(tasks: int) -> Distribution:
    return Distribution(executor="local", tasks=tasks, workers=2)


def contents(path: Path) -> bytes:
    if path.name != "suggested.json":
        return path.read_bytes()
    record = read_record(path)
    assert record["files"].pop("config.toml")
    return json.dumps(record).encode()


def made(run: Path) -> dict[str, bytes]:
    """All answers and files of a run, except settings, logs and what killed tasks left."""
    return suggestions_in(run / "suggestions") | {
        str(path.relative_to(run)): contents(path)
        for path in sorted(run.rglob("*"))
        if path.is_file()
        and path.name != "config.toml"
        and path.suffix not in (".partial", ".answers")
        and "tasks" not in path.parts
    }


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    files = made(suggest(config(tmp_path_factory.mktemp("one") / "run")).path)
    assert sum("/blocks/" in name for name in files) > 7
    assert "questions/asked.bin" in files
    return files


@pytest.mark.parametrize("tasks", [2, pytest.param(3, marks=pytest.mark.distributed)])
def test_the_number_of_tasks_changes_no_byte(
    tasks: int, in_one_process: dict[str, bytes], tmp_path: Path
) -> None:
    run = suggest(config(tmp_path / "run"), distribution=tasks_of(tasks))
    assert made(run.path) == in_one_process


def test_answers_that_are_damaged_or_lost(
    in_one_process: dict[str, bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = suggest(config(tmp_path / "run"))
    path = min(run.store.rglob("*.answers"))
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)
    suggest(config(run.path))
    assert f"{path}: damaged answers, asked for again" in caplog.text
    assert made(run.path) == in_one_process
    for answers in run.store.rglob("*.answers"):
        answers.write_bytes(answers.read_bytes()[:-9])
    with pytest.raises(ValueError, match="run: merge-nli suggest"):
        build(run.path)
    assert made(suggest(config(run.path)).path) == in_one_process


def test_tasks_have_to_agree(tmp_path: Path) -> None:
    from generation.suggestions.store import ask_task

    run = suggest(config(tmp_path / "run"))
    record = run.stores / "bert-tiny-mlm.json"
    record.write_text(record.read_text().replace('"cpu"', '"cuda"'))
    with pytest.raises(ValueError, match="expected the same model, device and dtype in every task"):
        ask_task(run.path, "bert-tiny-mlm 0/1")
