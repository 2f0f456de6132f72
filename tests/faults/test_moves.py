"""Folders that are renamed, copied or replaced during a command, or between two commands."""

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest

from faults import small_world
from faults.attack import Attack, Try
from faults.commands import MLM, Workshop, snapshot, words
from faults.test_disks import again
from faults.test_kills import require_whole
from faults.test_pairs import wait_until_stopped
from merge_dataset.checks import check_dataset
from merge_dataset.layout import collections

pytestmark = pytest.mark.slow

MOVED = {
    "build": ("run", "merge-nli"), "predict": ("merge-nli", "new"), "jsonl": ("merge-nli",),
    "report": ("merge-nli",), "annotate": ("merge-nli", "new"), "signals": ("run",),
}  # fmt: skip

REPLACE = "build --run run --set subsamples=1 --out merge-nli --overwrite"


def _stopped(workshop: Workshop, name: str, attempt: Try) -> int:
    """Start a command, and stop it before one of its file changes, or at any time."""
    good = workshop.undisturbed(name)
    workshop.restore()
    line = words(name)
    if good.changes and attempt.random.random() < 0.6:
        number = attempt.random.randrange(len(good.changes))
        pid = workshop.forks.start(*line, end_at=number, signal=int(signal.SIGSTOP))
    else:
        pid = workshop.forks.start(*line)
        workshop.forks.kill(pid, signal.SIGSTOP, after=attempt.random.random() * good.seconds)
    wait_until_stopped(pid)
    return pid


def _go_on(workshop: Workshop, pid: int) -> None:
    if workshop.forks.ended(pid, 0) is None:
        os.kill(pid, signal.SIGCONT)
        ended = workshop.forks.end(pid)
        assert "Traceback" not in ended.err, ended
        assert ended.code in (0, 2), ended
        assert not ended.code or "error: " in ended.err, ended


def test_renamed_midway(attack: Attack, workshop: Workshop) -> None:
    pairs = [(name, folder) for name, folders in MOVED.items() for folder in folders]
    ends = "either: refused, where the files are wanted after that"
    for attempt in attack.tries("folders renamed midway", 4 * len(pairs), ends):
        name, moved = pairs[attempt.number % len(pairs)]
        with attempt:
            pid = _stopped(workshop, name, attempt)
            place, away = workshop.folder / moved, workshop.folder.with_name("away")
            shutil.rmtree(away, ignore_errors=True)
            if place.is_dir():
                place.rename(away)
            _go_on(workshop, pid)
            if (
                away.is_dir()
                and place.is_dir()
                and not (moved == "merge-nli" and collections(place))
            ):
                shutil.rmtree(place)  # a new beginning under the old name
            if away.is_dir() and not place.is_dir():
                away.rename(place)
            require_whole(workshop, name)
            again(workshop, name, renamed=True)


def test_replaced_midway(attack: Attack, workshop: Workshop) -> None:
    """A result comes from the old dataset or from the new one, never from both."""
    names = ("predict", "jsonl", "report", "per-seed", "majority", "annotate")
    after: dict[str, dict[str, str]] = {}
    ends = "either: refused where the files changed while they were read"
    for attempt in attack.tries("datasets replaced midway", 4 * len(names), ends):
        name = names[attempt.number % len(names)]
        with attempt:
            good = workshop.undisturbed(name)
            if name not in after:
                workshop.restore()
                for line in (REPLACE, name):
                    workshop.forks.run(*words(line))
                after[name] = snapshot(workshop.folder)
            pid = _stopped(workshop, name, attempt)
            assert workshop.forks.run(*words(REPLACE)).code == 0
            _go_on(workshop, pid)
            made = {f: d for f, d in snapshot(workshop.folder).items() if f.startswith("new")}
            for known in (good.after, after[name]):
                if all(known.get(file) == digest for file, digest in made.items()):
                    break
            else:
                pytest.fail(f"{name}: of neither dataset: {sorted(made)}")


def test_copied_midway(attack: Attack, workshop: Workshop) -> None:
    ends = "said by `check`, unless the copy is whole"
    for attempt in attack.tries("datasets copied midway", 24, ends):
        with attempt:
            workshop.restore()
            source, copy = workshop.folder / "merge-nli", workshop.folder / "copy"
            whole = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
            files = sorted(whole, key=lambda _: attempt.random.random())
            first = attempt.random.randrange(len(files) + 1)
            digests = [_copied(source, copy, files[:first])]
            assert workshop.forks.run(*words(REPLACE)).code == 0
            digests.append(_copied(source, copy, files[first:]))
            result = check_dataset(copy) if collections(copy) else ["none"]
            is_mixed = snapshot(copy) not in (
                snapshot(workshop.base / "merge-nli"),
                snapshot(source),
            )
            assert bool(result) == is_mixed, (first, files, result)


def _copied(source: Path, copy: Path, files: list[Path]) -> None:
    for file in files:
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        if (source / file).is_file():
            shutil.copyfile(source / file, copy / file)


# --- Settings and files that change between two commands ---

_SUGGEST = "suggest --recipe demo --source mine --data problems.jsonl --mlm mlm --run new"
_BUILD = (
    "build --run new --out new-data --set min_replacements=2 --set variants_per_class=2 --overwrite"
)


def _other_problem(random: object) -> None:
    path = Path("problems.jsonl")
    path.write_text(path.read_text("utf-8").replace("red", "blue"), "utf-8")


def _other_model(random: object) -> None:
    (weights,) = Path("mlm").glob("*.safetensors")
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)


def _other_settings(random: object) -> None:
    path = Path("new/config.toml")
    path.write_text(path.read_text("utf-8") + "\nsuggestions_per_occurrence = 7\n", "utf-8")


CHANGES: dict[str, tuple[Callable[[object], None], str, str, str]] = {
    "the source file, before build": (
        _other_problem, _BUILD, "passes", "the run folder has its own problems"),
    "the source file, before suggest": (
        _other_problem, _SUGGEST, "passes", "no build is of the old ones; answers stay"),
    "the model, before build": (_other_model, _BUILD, "passes", "its answers are in the run"),
    "the model, before suggest": (
        _other_model, _SUGGEST, "passes", "it asks the other revision, too"),
    "another model, before suggest": (
        lambda random: None, _SUGGEST.replace("--mlm mlm", "--mlm mlm --mlm mlm2"), "passes",
        "it asks that model, too"),
    "another source, before suggest": (
        lambda random: None, _SUGGEST.replace("mine", "other"), "passes",
        "no build is of the old one; answers stay"),
    "another limit, before build": (
        lambda random: None, f"{_BUILD} --set limit=1", "refused", "it was taken by suggest"),
    "the run's settings, by hand": (_other_settings, _BUILD, "refused", "they are not the run's"),
}  # fmt: skip
"""Change → what makes it, the command after it, its intended end, and why."""


def _suggested(folder: Path) -> None:
    small_world.make(folder)
    for name in ("mlm", "mlm2"):
        shutil.copytree(MLM, folder / name)
    with chdir(folder):
        small_world.do(_SUGGEST)


def test_changed_between_phases(attack: Attack, once: Callable[..., Path], tmp_path: Path) -> None:
    world = once("suggested", _suggested)
    usual: dict[str, str] = {}
    for attempt in attack.tries("between phases", 2 * len(CHANGES)):
        what = list(CHANGES)[attempt.number % len(CHANGES)]
        change, command, ends, why = CHANGES[what]
        with attempt.of(f"changed between phases: {what}", f"{ends}: {why}"):
            folder = tmp_path / str(attempt.number)
            shutil.copytree(world, folder)
            with chdir(folder):
                if not usual:
                    small_world.do(_BUILD)
                    usual |= snapshot(Path("new-data"))
                    shutil.rmtree(folder)
                    shutil.copytree(world, folder)
            with chdir(folder):
                change(attempt.random)
                before = snapshot(Path())
                code, _, text = small_world.call(*command.split())
                assert (code == 0) == (ends == "passes"), text
                if code:
                    assert code == 2
                    assert "error: " in text
                    assert snapshot(Path()) == before
                elif command.startswith("build"):
                    made = snapshot(Path("new-data"))
                    assert {n: d for n, d in made.items() if n.endswith(".parquet")} == {
                        n: d for n, d in usual.items() if n.endswith(".parquet")}  # fmt: skip
