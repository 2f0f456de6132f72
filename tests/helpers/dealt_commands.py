"""Commands that split their work into tasks; as a program, for Ray, runs some of them twice."""

import json
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple

import pytest
from click.testing import Result
from faults.commands import CLASSIFIER, PROBLEMS
from typer.testing import CliRunner

from generation.cli import app
from helpers.problem_folder import many_problems, write_folder
from helpers.tiny_generators import saved_generator

SEEDS: Final = 12
_SMALL: Final = {
    "generation.problems.on_disk.BLOCK": 2,
    "generation.suggestions.questions.BLOCK": 8,
}
"""Sizes that turn a few problems into many blocks."""


class Command(NamedTuple):
    line: str
    made: str
    begun: str
    """Glob of files that exist once a task has done something."""


_DATA: Final = "--dataset merge-nli --out out"
COMMANDS: Final = {
    "suggest": Command(
        f"suggest --recipe demo --limit {SEEDS} --run asked --store asked/store",
        "asked/**/*.parquet",
        "asked/store/*/*.answers",
    ),
    "build": Command(
        "build --run run --into again --out dataset --min-mlms 1",
        "run/again/**/[!c]*",  # settings include the number of workers
        "run/again/build_tasks/tables/*.variants.*",
    ),
    "signals": Command(
        "signals --run run --lm generator --device cpu",
        "run/signals.*",
        "run/likelihoods/*/*.answers",
    ),
    "paraphrase": Command(
        f"paraphrase --model {CLASSIFIER} --label-order c,n,e --generator generator "
        f"--source anli-r1 --data {PROBLEMS} --limit 24 --k 2 --max-rounds 1 --beams 6 --groups 3 "
        "--max-new-tokens 12 --device cpu --run paraphrased --out paraphrases",
        "paraphrased/*.parquet",
        "paraphrased/model_answers/*/*.answers",
    ),
    "predict": Command(
        f"predict --model {CLASSIFIER} --device cpu --batch-tokens 60 {_DATA}/mine.parquet",
        "out/*",
        "out/.mine.parquet.answers/*/*.answers",
    ),
    "baseline": Command(
        f"baseline hypothesis-only --train {PROBLEMS} {_DATA}/baseline.parquet",
        "out/*",
        "out/.baseline.*/tasks/*/plan.json",
    ),
}


def prepare(folder: Path) -> None:
    write_folder(folder / "merge-nli", many_problems(60, 12))
    saved_generator("llama-chat", folder / "generator")
    with chdir(folder):
        done = _invoke(["generate", *f"--recipe demo --limit {SEEDS} --run run --out data".split()])
    assert done.exit_code == 0, done.output


def run(name: str, *options: str) -> Result:
    return _invoke([*COMMANDS[name].line.split(), *options])


def _invoke(words: list[str]) -> Result:
    logging.getLogger().handlers.clear()  # they write to the last command's stderr
    with pytest.MonkeyPatch.context() as patch:
        for place, size in _SMALL.items():
            patch.setattr(place, size)
        return CliRunner().invoke(app, words)


def made(name: str) -> dict[str, bytes]:
    """Files that a command has made here, without locks and temporary files."""
    return {
        str(path): path.read_bytes()
        for path in sorted(Path().glob(COMMANDS[name].made))
        if path.is_file() and path.suffix not in {".partial", ".lock"} and path.name != ".lock"
    }


@contextmanager
def killing(name: str, kill: Callable[[], Any]) -> Iterator[list[Any]]:
    """Call `kill` once a task has begun, until it returns a result; yield a list with that."""
    killed: list[Any] = []
    over = False

    def has_begun() -> bool:
        with suppress(FileNotFoundError):
            return any(path.stat().st_size for path in here.glob(COMMANDS[name].begun))
        return False

    def wait() -> None:
        while not over and not has_begun():
            time.sleep(0.005)
        while not over and not killed:
            if (victim := kill()) is not None:
                killed.append(victim)
            else:
                time.sleep(0.001)

    here = Path.cwd()
    thread = Thread(target=wait, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        over = True
        thread.join()


def kill_worker() -> int | None:
    """Kill one worker process of the working folder, and return its id."""
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        with suppress(OSError):
            words = (process / "cmdline").read_text()
            is_ours = "merge_dataset.executors.worker" in words and str(Path.cwd()) in words
            if is_ours and os.getpgid(pid) == pid:
                os.kill(pid, signal.SIGKILL)
                return pid
    return None


def main(executor: str, prepared: Path, folder: Path, killed: dict[str, bool]) -> None:
    for name in killed:
        shutil.copytree(prepared, folder / name)
        with chdir(folder / name):
            options = ("--executor", executor, "--tasks", "2", "--workers", "2")
            text = []
            if killed[name]:
                with killing(name, kill_worker):
                    failed = run(name, *options)
                text = [failed.exit_code, "killed by SIGKILL" in failed.stderr]
            done = run(name, *options)
            print(json.dumps({"name": name, "killed": text, "code": done.exit_code,
                              "output": done.output[-2000:]}), flush=True)  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4]))
