"""Commands that split their work into tasks; as a program, for Ray, runs some of them twice."""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
from click.testing import Result
from typer.testing import CliRunner

from generation.cli import app
from merge_dataset.schema import LABELS

SEEDS: Final = 12
_SMALL: Final = {
    "generation.problems.on_disk.BLOCK": 2,
    "generation.suggestions.questions.BLOCK": 8,
}
"""Sizes that turn a few problems into many blocks."""


@dataclass(frozen=True, slots=True)
class Command:
    words: tuple[str, ...]
    made: str
    begun: str
    """Glob of files that exist once a task has done something."""


COMMANDS: Final = {
    "suggest": Command(
        ("suggest", "--recipe", "demo", "--limit", str(SEEDS), "--run", "asked", "--store",
         "asked/store"),
        "asked/**/*.parquet",
        "asked/store/*/*.answers",
    ),
    "build": Command(
        ("build", "--run", "run", "--into", "again", "--out", "dataset", "--min-mlms", "1"),
        "run/again/**/[!c]*",  # settings include the number of workers
        "run/again/build_tasks/tables/*.variants.*",
    ),
    "signals": Command(
        ("signals", "--run", "run", "--lm", "generator", "--device", "cpu"),
        "run/signals.*",
        "run/likelihoods/*/*.answers",
    ),
    "paraphrase": Command(
        ("paraphrase", "--model", "judge", "--generator", "generator",
         "--source", "anli-r1", "--data", "paraphrased.jsonl", "--k", "2", "--max-rounds", "1",
         "--beams", "6", "--groups", "3", "--max-new-tokens", "12", "--device", "cpu", "--run",
         "paraphrased", "--out", "paraphrases"),
        "paraphrased/*.parquet",
        "paraphrased/model_answers/*/*.answers",
    ),
    "predict": Command(
        ("predict", "--model", "classifier", "--dataset", "merge-nli", "--device", "cpu",
         "--batch-tokens", "60", "--out", "out/mine.parquet"),
        "out/*",
        "out/.mine.parquet.answers/*/*.answers",
    ),
    "baseline": Command(
        ("baseline", "hypothesis-only", "--train", "train.jsonl", "--dataset", "merge-nli",
         "--out", "out/baseline.parquet"),
        "out/*",
        "out/.baseline.*/tasks/*/plan.json",
    ),
}  # fmt: skip


def prepare(folder: Path) -> None:
    from helpers.problem_folder import many_problems, write_folder
    from helpers.tiny_classifiers import folder_of, tiny_classifier
    from helpers.tiny_generators import saved_generator

    write_folder(folder / "merge-nli", many_problems(60, 12))
    tiny_classifier("bert-uncased")
    shutil.copytree(folder_of("bert-uncased"), folder / "classifier")
    saved_generator("llama-chat", folder / "generator")
    words = ["outside", "tall", "asleep"]
    rows = [
        {"gold_label": LABELS[n % 3], "sentence1": "", "sentence2": f"Dog {n} is {words[n % 3]}."}
        for n in range(90)
    ]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    _prepare_paraphrases(folder)
    words = ["--recipe", "demo", "--limit", str(SEEDS), "--run", "run", "--out", "first"]
    with chdir(folder):
        done = _invoke(["generate", *words])
    assert done.exit_code == 0, done.output


def _prepare_paraphrases(folder: Path) -> None:
    """Write problems, and a random NLI model with some right answers and much entailment."""
    from helpers.paraphrasing import write_problems
    from helpers.problem_folder import many_problems
    from helpers.tiny_classifiers import one_by_one

    pairs = [(premise, hypothesis) for premise, hypothesis, _ in many_problems(12, 0).values()]
    both = [*pairs, *(pair[::-1] for pair in pairs)]
    result = one_by_one(folder / "classifier", both, 64).argmax(axis=1).tolist()
    most = max(range(3), key=result.count)
    names = {(most + n) % 3: label for n, label in enumerate(LABELS)}
    judge = shutil.copytree(folder / "classifier", folder / "judge")
    config = json.loads((judge / "config.json").read_text())
    config |= {"id2label": names, "label2id": {label: n for n, label in names.items()}}
    (judge / "config.json").write_text(json.dumps(config))
    problems = [(str(n), *pair, names[result[n]]) for n, pair in enumerate(pairs)]
    write_problems(folder / "paraphrased.jsonl", problems)


def run(name: str, *options: str) -> Result:
    return _invoke([*COMMANDS[name].words, *options])


def _invoke(words: list[str]) -> Result:
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

    def wait() -> None:
        while not over and not any(path.stat().st_size for path in found()):
            time.sleep(0.005)
        while not over and not killed:
            if (victim := kill()) is not None:
                killed.append(victim)
            else:
                time.sleep(0.001)

    def found() -> Iterator[Path]:
        with suppress(FileNotFoundError):
            yield from here.glob(COMMANDS[name].begun)

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
