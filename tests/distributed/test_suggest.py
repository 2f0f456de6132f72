"""`suggest` dealt to tasks: the same bytes as in one process, also after whatever may happen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from helpers import namespaces
from typer.testing import CliRunner

from generation import Config, build, suggest
from generation.cli import app
from generation.problems import on_disk
from generation.run_folder import RunFolder
from generation.suggestions import questions
from merge_dataset.executors.plan import Distribution, ExecutorError
from merge_dataset.files import read_record

LIMIT = 40
PROBLEMS_PER_SHARD = 4

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few problems are many blocks and shards."""
    monkeypatch.setattr(questions, "PROBLEMS_PER_SHARD", PROBLEMS_PER_SHARD)
    monkeypatch.setattr(on_disk, "BLOCK", 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


LESS = {"ask_all": False, "min_replacements": 40}
"""Settings with which not all is asked, and what is, in two rounds."""


def config(run: Path, **settings: Any) -> Config:
    values = {"limit": LIMIT, "workers": 2, **LESS, **settings}
    return Config.from_recipe("demo", run=str(run), **values)


def tasks_of(executor: Any, tasks: int) -> Distribution:
    return Distribution(executor=executor, tasks=tasks, workers=2)


def contents(path: Path) -> bytes:
    """Bytes of a file; of the record of a run without the digest of its settings."""
    if path.name != "suggested.json":
        return path.read_bytes()
    record = read_record(path)
    assert record["files"].pop("config.toml")
    return json.dumps(record).encode()


def made(run: Path) -> dict[str, bytes]:
    """Every file of a run, but settings (which name the folder) and logs of tasks.

    Nor the temporary file that a killed task may leave: nobody reads it.
    """
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
    """Files of a run in one process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(questions, "PROBLEMS_PER_SHARD", PROBLEMS_PER_SHARD)
        patch.setattr(on_disk, "BLOCK", 2)
        run = suggest(config(tmp_path_factory.mktemp("one") / "run"))
    files = made(run.path)
    assert sum("/parts/" in name for name in files) > 7
    assert "asked.bin" in files
    return files


@pytest.mark.parametrize(
    "tasks",
    [
        2,
        pytest.param(1, marks=pytest.mark.distributed),
        pytest.param(7, marks=pytest.mark.distributed),
    ],
)
def test_the_number_of_tasks_changes_no_byte(
    tasks: int, in_one_process: dict[str, bytes], tmp_path: Path
) -> None:
    """Contents of questions, stores and the record of both."""
    run = suggest(config(tmp_path / "run"), distribution=tasks_of("local", tasks))
    assert made(run.path) == in_one_process


@pytest.mark.distributed
def test_asking_less_in_tasks_makes_the_same_dataset(tmp_path: Path) -> None:
    """Byte for byte that of one process that asks everything."""
    less, everything = (tmp_path / name for name in ("less", "everything"))
    suggest(config(less), distribution=tasks_of("local", 2))
    suggest(config(everything, ask_all=True))
    for name in ("seeds", "variants"):
        of_less, of_all = (getattr(build(run), name).read_bytes() for run in (less, everything))
        assert of_less == of_all


@pytest.mark.distributed
def test_words_of_several_pieces_are_the_same_in_any_task(tmp_path: Path) -> None:
    """They are searched for side by side, and found as if alone."""
    one, two = (
        config(tmp_path / name, max_pieces=2).overlaid(None, {"limit": 8})
        for name in ("one", "two")
    )
    files = made(suggest(one).path)
    assert sum("/parts/" in name for name in files) > 1
    assert made(suggest(two, distribution=tasks_of("local", 2)).path) == files


@pytest.mark.distributed
def test_from_the_command_line(in_one_process: dict[str, bytes], tmp_path: Path) -> None:
    """Relative paths are those of the caller, wherever the tasks run."""
    command = ["suggest", "--recipe", "demo", "--limit", str(LIMIT), "--run", "run"]
    command += ["--store", "store", "--executor", "local", "--tasks", "2", "--workers", "2"]
    command += ["--set", "ask_all=false", "--set", "min_replacements=40"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    there = {name.removeprefix("suggestions/"): data for name, data in in_one_process.items()}
    for folder in ("run", "store"):
        assert made(tmp_path / folder).items() <= there.items()


@pytest.mark.distributed
@pytest.mark.parametrize("where", ["tagging_tasks/parts", "suggestions/*/parts"])
def test_a_worker_that_is_killed(
    where: str, in_one_process: dict[str, bytes], tmp_path: Path
) -> None:
    """While it tags or asks: the message says so, and the same command ends with the same bytes."""
    run = RunFolder(tmp_path / "run")
    killed: list[int] = []

    def kill_one() -> None:
        while not list(run.path.glob(f"{where}/*.parquet")):
            time.sleep(0.002)
        pid = next(pid for pid in children() if "merge_dataset.executors.worker" in command_of(pid))
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    Thread(target=kill_one, daemon=True).start()
    with pytest.raises(ExecutorError, match=r"(?s)of 2 tasks failed.*killed by SIGKILL"):
        suggest(config(run.path), distribution=tasks_of("local", 2))
    assert killed
    assert not run.suggested.exists()
    assert list(run.path.glob(f"{where}/*.parquet"))
    suggest(config(run.path), distribution=tasks_of("local", 2))
    assert made(run.path) == in_one_process


def children() -> list[int]:
    """Processes that this one started."""
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=True
    )
    return [int(pid) for pid in found.stdout.split()]


def command_of(pid: int) -> str:
    """A process's command line; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_a_part_that_is_damaged(
    in_one_process: dict[str, bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named and made again, by whichever task has its shard."""
    run = suggest(config(tmp_path / "run"))
    part = sorted(run.store.rglob("parts/*.parquet"))[2]
    part.write_bytes(part.read_bytes()[:-9])
    suggest(config(run.path))
    assert f"damaged, made again: {part.name}" in caplog.text
    assert made(run.path) == in_one_process


def test_a_gap_is_not_closed_over(in_one_process: dict[str, bytes], tmp_path: Path) -> None:
    """A part that is lost between its task and the end is noticed."""
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
    """Answers of other devices or revisions are not mixed."""
    from generation.suggestions.ask import ask

    run = suggest(config(tmp_path / "run"))
    record = run.stores / "bert-tiny-mlm.json"
    record.write_text(record.read_text().replace('"cpu"', '"cuda"'))
    with pytest.raises(ValueError, match="expected the same model, device and dtype in every task"):
        ask(run.path, "bert-tiny-mlm 0/1")


SUGGEST = f"""
import sys
from pathlib import Path
from generation import Config, suggest
from generation.problems import on_disk
from generation.suggestions import questions
from merge_dataset.executors.plan import Distribution
questions.PROBLEMS_PER_SHARD = {PROBLEMS_PER_SHARD}
on_disk.BLOCK = 2
there = Distribution(executor=sys.argv[2], tasks=2, workers=2) if len(sys.argv) > 2 else None
config = Config.from_recipe("demo", run=sys.argv[1], limit={LIMIT}, workers=2, **{LESS})
try:
    suggest(config, distribution=there)
    print("done")
except (OSError, RuntimeError) as error:
    print(error)
"""


@pytest.mark.distributed
@pytest.mark.parametrize("executor", [[], ["local"]], ids=["one process", "local"])
def test_a_full_disk(executor: list[str], in_one_process: dict[str, bytes], tmp_path: Path) -> None:
    """The message says so; with room the same command goes on, and ends with the same bytes."""
    if missing := namespaces.missing():
        pytest.fail(missing)
    parts = sum(len(data) for name, data in in_one_process.items() if "/parts/" in name)
    rest = sum(map(len, in_one_process.values())) - parts
    script = '''mount -t tmpfs -o size="$1" none "$2"
"$3" -c "$4" "$2/run" "${@:5}"
find "$2" -name "*.parquet" -path "*/parts/*" | wc -l
mount -o remount,size=100m "$2"
"$3" -c "$4" "$2/run" "${@:5}"
cp -r "$2/run" "$2-kept"'''
    disk = tmp_path / "disk"
    disk.mkdir()
    size = (rest + parts // 2) // 4096 * 4096 + 30 * 4096  # half of a page per file
    done = namespaces.run_apart(
        script, str(size), str(disk), sys.executable, SUGGEST, *executor, timeout=300
    )
    assert done.returncode == 0, done.stderr
    *message, count, last = done.stdout.splitlines()
    assert "No space left on device" in "\n".join(message)
    assert 0 < int(count) < sum("/parts/" in name for name in in_one_process)
    assert last == "done"
    assert made(tmp_path / "disk-kept") == in_one_process
