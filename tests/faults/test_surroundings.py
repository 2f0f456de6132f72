"""Odd folders, outputs, limits and owners: refused in one line, or the same result."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Literal

import pytest
from helpers.forks import Ended

from faults.attack import Attack, Try, noted
from faults.commands import ROOT, Outcome, Workshop, environment_of, snapshot, words
from faults.test_disks import again
from faults.test_kills import require_whole

pytestmark = pytest.mark.slow

Around = Callable[[Workshop, Random], dict[str, Any]]
"""Creates odd surroundings of a command; returns parameters of its `Call`."""

SCORE = "score p.parquet --dataset merge-nli --n-bootstrap 20 --format json"
CHECK = "check merge-nli"
WRITING = ("build", "predict", "report", "per-seed", "jsonl", "annotate", "majority", "croissant")
READING = (SCORE, CHECK, "show merge-nli --n 1")
NOBODY = 65534


@dataclass(frozen=True)
class Kind:
    what: str
    around: Around
    ends: Literal["refused", "passes", "either"]
    why: str
    commands: tuple[str, ...] = (*WRITING, *READING)
    told: str = ""
    """Part of the message of a refusal."""


def _folder(variable: str, state: str) -> Around:

    def around(workshop: Workshop, random: Random) -> dict[str, Any]:
        place = workshop.folder.with_name(f"odd-{variable}")
        if place.is_dir():
            place.chmod(0o755)
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        if state == "a file":
            place.write_text("")
        elif state == "not writable":
            place.mkdir(mode=0o500)
        return {"environment": {variable: str(place)}, "as_anyone": True}

    return around


def _call(**call: Any) -> Around:
    return lambda workshop, random: call


def _limit(name: str, least: int, most: int) -> Around:
    return lambda workshop, random: {"limits": {name: random.randrange(least, most)}}


def _foreign(*patterns: str, mode: int) -> Around:

    def around(workshop: Workshop, random: Random) -> dict[str, Any]:
        result = sorted({path for pattern in patterns for path in workshop.base.glob(pattern)})
        chosen = random.choice([path for path in result if path.is_dir() == bool(mode & 0o100)])
        path = workshop.folder / chosen.relative_to(workshop.base)
        os.chown(path, NOBODY, NOBODY)
        path.chmod(mode)
        return {"as_anyone": True}

    return around


KINDS = (
    Kind("TMPDIR: missing", _folder("TMPDIR", "missing"), "passes",
         "Python takes /tmp or the working folder in its place"),
    Kind("TMPDIR: a file", _folder("TMPDIR", "a file"), "passes", "the same"),
    Kind("TMPDIR: not writable", _folder("TMPDIR", "not writable"), "passes", "the same"),
    Kind("MERGE_NLI_MEMORY: too little", lambda workshop, random: {"environment": {
        "MERGE_NLI_MEMORY": random.choice(("100KB", "2MB", "8MB", "24MB"))}}, "either",
        "refused where it is too little", told="MERGE_NLI_MEMORY: expected more memory"),
    Kind("time zone", lambda workshop, random: {"environment": {"TZ": random.choice(
        ("Pacific/Kiritimati", "America/St_Johns", "nowhere", "UTC-99", ""))}}, "passes",
        "no file has a time"),
    Kind("stdout: closed", _call(stdout="closed"), "passes", "nobody wants the result"),
    Kind("stdout: its reader has gone", _call(stdout="unread"), "either",
         "as of any program, without a word: `| head` has what it wants"),
    Kind("stdout: full", _call(stdout="/dev/full"), "refused",
         "a result that is cut off would look whole", (*READING, "build", "report"),
         "the output: no space left on device"),
    Kind("stderr: closed", _call(stderr="closed"), "passes", "nobody wants to know"),
    Kind("stderr: its reader has gone", _call(stderr="unread"), "either",
         "the exit code is left to tell"),
    Kind("stderr: full", _call(stderr="/dev/full"), "either", "the exit code is left to tell"),
    Kind("limit of open files", _limit("NOFILE", 8, 60), "either",
         "refused where it is too few", told="open files"),
    Kind("limit of memory", _limit("AS", 10 * 2**20, 400 * 2**20), "either",
         "refused where it is too little, or ended by a library in C++", told="memory"),
    Kind("somebody else's files", _foreign("merge-nli/**/*.parquet", "merge-nli/**/*.json",
         "run/*", "p.parquet", mode=0o600), "either",
         "refused by those who read them", told="ermission"),
    Kind("somebody else's folders", _foreign("merge-nli", "merge-nli/*", "run", "**",
         mode=0o555), "either", "refused by those who write there", told="ermission"),
)  # fmt: skip


_SPEED: Final = re.compile(r"in [\d.]+ s \([\d,]+ per second\)")
"""Speed of a command on stdout."""


@pytest.mark.parametrize("part", range(2))
def test_odd_surroundings(part: int, attack: Attack, workshop: Workshop) -> None:
    for attempt in attack.tries(f"surroundings {part}", 84):
        number = 2 * attempt.number + part
        kind = KINDS[number % len(KINDS)]
        with attempt.of(kind.what, f"{kind.ends}: {kind.why}"):
            name = kind.commands[number // len(KINDS) % len(kind.commands)]
            _try(workshop, name, kind, attempt)


def _home(state: str) -> Around:

    def around(workshop: Workshop, random: Random) -> dict[str, Any]:
        place = workshop.folder.with_name(f"home-{state.replace(' ', '-')}")
        if state == "a file":
            place.write_text("")
        elif state == "a name that is not UTF-8":
            place = place.with_name(os.fsdecode(b"M\xe4dchen"))
        home = {"missing": str(place), "unset": None, "empty": ""}.get(state, str(place))
        return {"HOME": home, "HF_HOME": None, "XDG_CACHE_HOME": None}

    return around


def _one_of(*environments: dict[str, str | None]) -> Around:
    return lambda workshop, random: random.choice(environments)


OF_A_PROCESS = (
    Kind("HOME: missing", _home("missing"), "passes", "caches begin anew, or are done without"),
    Kind("HOME: a file", _home("a file"), "passes", "caches are done without"),
    Kind("HOME: unset", _home("unset"), "passes", "the system knows the user's"),
    Kind("HOME: empty", _home("empty"), "passes", "caches lie in the working folder"),
    Kind("HOME: a name that is not UTF-8", _home("a name that is not UTF-8"), "passes", "a name"),
    Kind("locale", _one_of(
             {"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"LC_ALL": "tr_TR.UTF-8"}, {"LC_ALL": "nowhere"},
             {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
             {"LC_ALL": "de_DE.ISO-8859-1", "PYTHONUTF8": "0"}), "passes",
         "files are UTF-8, numbers have points; what a terminal cannot show is escaped"),
    Kind("encoding of outputs", _one_of(
             {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1:strict"},
             {"PYTHONIOENCODING": "utf-16"}), "passes", "what it does not have is escaped"),
    Kind("PYTHONHASHSEED", lambda workshop, random: {
             "PYTHONHASHSEED": str(random.randrange(2**32))}, "passes", "nothing depends on it"),
)  # fmt: skip
"""Surroundings that a process reads at its start; forks would share them."""


def test_odd_surroundings_of_a_process(attack: Attack, workshop: Workshop) -> None:
    commands = ("build", "predict", "report", "jsonl", "per-seed", "annotate", SCORE, CHECK)
    for attempt in attack.tries("surroundings of a process", 2 * len(OF_A_PROCESS)):
        kind = OF_A_PROCESS[attempt.number % len(OF_A_PROCESS)]
        with attempt.of(kind.what, f"{kind.ends}: {kind.why}"):
            name = attempt.random.choice(commands)
            good = workshop.undisturbed(name)
            workshop.restore()
            around = kind.around(workshop, attempt.random)
            path = {"PYTHONPATH": str(ROOT)}
            asked = {**environment_of(workshop.folder), **path, **around}
            ended = subprocess.run(
                [sys.executable, "-m", "generation", *words(name)],
                cwd=workshop.folder, capture_output=True, check=False,
                env={name: value for name, value in asked.items() if value is not None},
            )  # fmt: skip
            encoding = around.get("PYTHONIOENCODING", "utf-8").partition(":")[0]
            text, told = (output.decode(encoding) for output in (ended.stdout, ended.stderr))
            assert ended.returncode == 0, (name, around, told[-900:])
            assert "Traceback" not in told
            usual = _SPEED.sub("", good.out)
            in_it = usual.encode(encoding, "backslashreplace").decode(encoding)
            in_ascii = usual.encode("ascii", "backslashreplace").decode()
            assert _SPEED.sub("", text) in (usual, in_it, in_ascii), (name, around)
            made = snapshot(workshop.folder)
            assert _without_caches(made) == _without_caches(good.after), (name, around)


def _without_caches(files: dict[str, str]) -> dict[str, str]:
    return {name: digest for name, digest in files.items() if not name.startswith(("hf/", "."))}


def _try(workshop: Workshop, name: str, kind: Kind, attempt: Try) -> None:
    good = workshop.undisturbed(name)
    workshop.restore()
    call = kind.around(workshop, attempt.random)
    ended = workshop.forks.run(*words(name), **call)
    text = f"{ended.code}, {ended.out[-300:]} {ended.err[-900:]}"
    with noted(lambda: f"{name}; {call}: {text}"):
        _require_good_end(workshop, kind, call, ended, good)
        require_whole(workshop, name)
        for path in (workshop.folder, *workshop.folder.rglob("*")):
            if path.stat().st_uid == NOBODY:
                os.chown(path, 0, 0)
                path.chmod(0o755 if path.is_dir() else 0o644)
        if ended.code:
            again(workshop, name)


def _require_good_end(
    workshop: Workshop, kind: Kind, call: dict[str, Any], ended: Ended, good: Outcome
) -> None:
    assert "Traceback" not in ended.err + ended.out
    if ended.code == 0:
        assert kind.ends != "refused"
        assert snapshot(workshop.folder) == good.after
        text, usual = (_SPEED.sub("", process.out) for process in (ended, good))
        in_ascii = usual.encode("ascii", "backslashreplace").decode()
        assert text in (usual, in_ascii) or "stdout" in call
        return
    assert kind.ends != "passes"
    if "AS" in call.get("limits", {}) and (ended.code < 0 or ended.err.endswith("ABORT\n")):
        return  # a C++ library aborts the process, or the C library exits with 127 and a message
    assert ended.code in (1, 2)
    if "stderr" in call or call.get("stdout") == "unread":
        return
    line = ended.err.rstrip().rpartition("\n")[2]
    if not ended.out.startswith("merge-nli/"):  # findings of `check`, which name the file
        assert line.startswith("error: ")
        assert kind.told in line
