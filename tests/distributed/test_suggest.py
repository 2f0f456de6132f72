"""`suggest` split into tasks: the same bytes as in one process, also after failures."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from generation import Config, suggest
from generation.problems import on_disk
from generation.run_folder import RunFolder
from generation.suggestions import questions
from merge_dataset.executors.plan import Distribution
from merge_dataset.files import read_record

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    """Make many blocks and shards of a few problems."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(questions, "PROBLEMS_PER_SHARD", 4)
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
    """All files of a run, except settings, logs and temporary files of killed tasks."""
    return {
        str(path.relative_to(run)): contents(path)
        for path in sorted(run.rglob("*"))
        if path.is_file()
        and path.name != "config.toml"
        and path.suffix != ".partial"
        and "tasks" not in path.parts
    }


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    files = made(suggest(config(tmp_path_factory.mktemp("one") / "run")).path)
    assert sum("/parts/" in name for name in files) > 7
    assert "asked.bin" in files
    return files


@pytest.mark.parametrize("tasks", [2, pytest.param(3, marks=pytest.mark.distributed)])
def test_the_number_of_tasks_changes_no_byte(
    tasks: int, in_one_process: dict[str, bytes], tmp_path: Path
) -> None:
    run = suggest(config(tmp_path / "run"), distribution=tasks_of(tasks))
    assert made(run.path) == in_one_process


def test_a_part_that_is_damaged(
    in_one_process: dict[str, bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = suggest(config(tmp_path / "run"))
    part = sorted(run.store.rglob("parts/*.parquet"))[2]
    part.write_bytes(part.read_bytes()[:-9])
    suggest(config(run.path))
    assert f"damaged, made again: {part.name}" in caplog.text
    assert made(run.path) == in_one_process


def test_a_gap_is_not_closed_over(in_one_process: dict[str, bytes], tmp_path: Path) -> None:
    from generation.suggestions import ask as asking

    collect = asking.collect

    def lose(run: RunFolder, settings: Config) -> list[dict[str, Any]]:
        next(run.store.rglob("parts/*.parquet")).unlink()
        return collect(run, settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("generation.phases.suggest.collect", lose)
        with pytest.raises(ValueError, match=r"answers to \d+ questions of shard .* are missing"):
            suggest(config(tmp_path / "run"))
    assert made(suggest(config(tmp_path / "run")).path) == in_one_process


def test_tasks_have_to_agree(tmp_path: Path) -> None:
    from generation.suggestions.ask import ask

    run = suggest(config(tmp_path / "run"))
    record = run.stores / "bert-tiny-mlm.json"
    record.write_text(record.read_text().replace('"cpu"', '"cuda"'))
    with pytest.raises(ValueError, match="expected the same model, device and dtype in every task"):
        ask(run.path, "bert-tiny-mlm 0/1")
