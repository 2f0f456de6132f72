"""Commands that are killed, lack room, or run in odd surroundings: one table, one driver.

Each try runs a command once amid a fault. It ends as the fault's kind says, leaves nothing
half-written, and the same command later ends as if nothing had happened.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from random import Random
from typing import Any, Final, Literal

import pytest
from helpers.forks import Ended

from faults.attack import Attack, Try, noted
from faults.commands import (
    COMMANDS,
    FINISHED,
    GROUPS,
    ROOT,
    Outcome,
    Workshop,
    environment_of,
    snapshot,
    unsynced,
    words,
)
from merge_dataset.commands.command_line import INTERRUPTED, STOPPED

Call = dict[str, Any]
Around = Callable[[Workshop, Outcome, Random, ExitStack], Call]
"""Prepares a fault; returns parameters of the forks' `Call`, or `process`, the environment of one
that is started anew; `restore` makes the fault go away."""

SCORE = "score p.parquet --dataset merge-nli --n-bootstrap 20 --format json"
CHECK = "check merge-nli"
READING = (SCORE, CHECK, "show merge-nli --n 1")
WRITING = ("build", "predict", "report", "per-seed", "jsonl", "annotate", "majority", "croissant")
LASTING = tuple(name for name in COMMANDS if name != "demo" and not name.startswith("publish"))
OF_A_PROCESS = ("build", "predict", "report", "jsonl", "per-seed", "annotate", SCORE, CHECK)
NOBODY = 65534
PAGE = 4096
LEAST = 20_000
"""Least limit in bytes of a file, as a command's messages are in files, too."""


@dataclass(frozen=True)
class Kind:
    what: str
    around: Around
    ends: Literal["refused", "passes", "either", "killed"]
    why: str
    commands: tuple[str, ...] = (*WRITING, *READING)
    told: str = ""
    """Pattern in the message of a refusal."""


# --- Kills ---


def _killed(by: tuple[signal.Signals, ...], at_changes: float) -> Around:
    def around(workshop: Workshop, good: Outcome, random: Random, _: ExitStack) -> Call:
        call: Call = {"signal": int(random.choice(by))}
        if good.changes and random.random() < at_changes:
            return call | {"end_at": random.randrange(len(good.changes))}
        return call | {"after": random.uniform(0, good.seconds)}

    return around


# --- Disks ---


@cache
def _can_mount() -> bool:
    if os.name != "posix" or os.geteuid():
        return False
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _small_files(workshop: Workshop, good: Outcome, random: Random, _: ExitStack) -> Call:
    most = max(*good.sizes.values(), LEAST + 1)
    return {"limits": {"FSIZE": random.randrange(LEAST, most)}}


def _disk(state: Literal["full", "read-only"]) -> Around:
    def around(workshop: Workshop, good: Outcome, random: Random, stack: ExitStack) -> Call:
        if not _can_mount():
            return _small_files(workshop, good, random, stack)
        folder = str(workshop.folder)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512m", "none", folder], check=True)
        stack.callback(subprocess.run, ["umount", "--lazy", folder], check=True)
        workshop.restore()
        disk = os.statvfs(folder)
        used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        growth = sum(-(-size // PAGE) + 1 for file, size in good.sizes.items()
                     if good.after[file] != good.before.get(file))  # fmt: skip
        options = f"size={used + PAGE * random.randrange(growth)}" if state == "full" else "ro"
        remount = ["mount", folder, "-o"]
        subprocess.run([*remount, f"remount,{options}"], check=True)
        return {"restore": partial(subprocess.run, [*remount, "remount,rw,size=512m"], check=True)}

    return around


# --- Surroundings ---


def _call(**call: Any) -> Around:
    """Parameters of a call: those that are functions are drawn."""
    return lambda workshop, good, random, _: {
        name: value(random) if callable(value) else value for name, value in call.items()
    }


def _one_of(variable: str, *values: str) -> Around:
    return _call(environment=lambda random: {variable: random.choice(values)})


def _limit(name: str, least: int, most: int) -> Around:
    return _call(limits=lambda random: {name: random.randrange(least, most)})


def _temporary(state: str) -> Around:
    def around(workshop: Workshop, *_: Any) -> Call:
        place = workshop.folder.with_name("odd-TMPDIR")
        if place.is_dir():
            place.chmod(0o755)
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        if state == "a file":
            place.write_text("")
        elif state == "not writable":
            place.mkdir(mode=0o500)
        return {"environment": {"TMPDIR": str(place)}, "as_anyone": True}

    return around


def _foreign(*patterns: str, mode: int) -> Around:
    def around(workshop: Workshop, good: Outcome, random: Random, _: ExitStack) -> Call:
        paths = sorted({path for pattern in patterns for path in workshop.folder.glob(pattern)})
        path = random.choice([path for path in paths if path.is_dir() == bool(mode & 0o100)])
        before = path.stat().st_mode
        os.chown(path, NOBODY, NOBODY)
        path.chmod(mode)

        def restore() -> None:
            if path.exists() and path.stat().st_uid == NOBODY:
                os.chown(path, 0, 0)
                path.chmod(before)

        return {"as_anyone": True, "restore": restore}

    return around


def _process(*environments: dict[str, str | None]) -> Around:
    """Environments that a process reads at its start; forks would share them."""
    return _call(process=lambda random: random.choice(environments))


def _home(state: str) -> Around:
    def around(workshop: Workshop, *_: Any) -> Call:
        place = workshop.folder.with_name(f"home-{state.replace(' ', '-')}")
        if state == "a file":
            place.write_text("")
        elif state == "a name that is not UTF-8":
            place = place.with_name(os.fsdecode(b"M\xe4dchen"))
        home = {"unset": None, "empty": ""}.get(state, str(place))
        return {"process": {"HOME": home, "HF_HOME": None, "XDG_CACHE_HOME": None}}

    return around


_HURT: Final = (signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
_CURE: Final = (
    r"make room there, then give the same command again"
    r"|allow larger files \(ulimit -f\), then give the same command again"
    r"|name another place, or allow it there, then give the same command again|is read-only"
)
_WITH_ROOM: Final = "refused: by the file's name and a cure; with room the same command ends well"

KINDS: Final = (
    *[Kind("killed", _killed(_HURT, 0.75), "killed", "the same command goes on to the usual end",
           tuple(COMMANDS))] * 3,
    *[Kind("interrupted at any time", _killed((signal.SIGINT,), 0), "killed",
           "a line says what is kept and how to go on, or it is too late to stop anything",
           ("build", "predict", "report", SCORE))] * 6,
    *[Kind("a full disk", _disk("full"), "either", _WITH_ROOM, LASTING, _CURE)] * 2,
    Kind("a read-only disk", _disk("read-only"), "refused", _WITH_ROOM, LASTING, _CURE),
    Kind("limit of a file's size", _small_files, "either", _WITH_ROOM, LASTING, _CURE),
    Kind("TMPDIR: missing", _temporary("missing"), "passes",
         "Python takes /tmp or the working folder in its place"),
    Kind("TMPDIR: a file", _temporary("a file"), "passes", "the same"),
    Kind("TMPDIR: not writable", _temporary("not writable"), "passes", "the same"),
    Kind("MERGE_NLI_MEMORY: too little",
         _one_of("MERGE_NLI_MEMORY", "100KB", "2MB", "8MB", "24MB"), "either",
         "refused where it is too little", told="MERGE_NLI_MEMORY: expected more memory"),
    Kind("time zone", _one_of("TZ", "Pacific/Kiritimati", "America/St_Johns", "nowhere", "UTC-99",
         ""), "passes", "no file has a time"),
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
    Kind("HOME: missing", _home("missing"), "passes", "caches begin anew, or are done without",
         OF_A_PROCESS[::4]),
    Kind("HOME: a file", _home("a file"), "passes", "caches are done without", OF_A_PROCESS[1::4]),
    Kind("HOME: unset", _home("unset"), "passes", "the system knows the user's",
         OF_A_PROCESS[2::4]),
    Kind("HOME: empty", _home("empty"), "passes", "caches lie in the working folder",
         OF_A_PROCESS[3::4]),
    Kind("HOME: a name that is not UTF-8", _home("a name that is not UTF-8"), "passes", "a name",
         OF_A_PROCESS[::4]),
    Kind("locale", _process(
             {"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"LC_ALL": "tr_TR.UTF-8"}, {"LC_ALL": "nowhere"},
             {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
             {"LC_ALL": "de_DE.ISO-8859-1", "PYTHONUTF8": "0"}), "passes",
         "files are UTF-8, numbers have points; what a terminal cannot show is escaped",
         OF_A_PROCESS[1::4]),
    Kind("encoding of outputs", _process(
             {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1:strict"},
             {"PYTHONIOENCODING": "utf-16"}), "passes", "what it does not have is escaped",
         OF_A_PROCESS[2::4]),
    Kind("PYTHONHASHSEED", _process({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "4294967295"}),
         "passes", "nothing depends on it", OF_A_PROCESS[3::4]),
)  # fmt: skip


# --- The driver ---


@pytest.mark.slow
@pytest.mark.parametrize("group", [*GROUPS, "reading"])
def test_disturbed_commands(group: str, attack: Attack, workshop: Workshop) -> None:
    names = GROUPS.get(group, READING)
    pairs = [(kind, name) for kind in KINDS for name in names if name in kind.commands]
    for attempt in attack.tries(f"disturbed, {group}", len(pairs)):
        kind, name = pairs[attempt.number % len(pairs)]
        with attempt.of(kind.what, f"{kind.ends}: {kind.why}"):
            _disturb(workshop, name, kind, attempt)


def _disturb(workshop: Workshop, name: str, kind: Kind, attempt: Try) -> None:
    good = workshop.begin(name)
    is_killed = kind.ends == "killed"
    with ExitStack() as stack:
        for _ in range(attempt.random.choice((1, 1, 2)) if is_killed else 1):
            call = kind.around(workshop, good, attempt.random, stack)
            restore = call.pop("restore", None)
            is_apart = "process" in call
            ended = _run_apart(workshop, name, **call) if is_apart else workshop.run(name, **call)
            text = f"{name}; {call}: {ended.code}, {ended.out[-300:]} {ended.err[-900:]}"
            with noted(lambda text=text: text):
                _require_good_end(workshop, kind, call, ended, good)
                workshop.require_whole(name)
        if restore:
            restore()
        if ended.code or is_killed:
            with noted(lambda: text):
                workshop.again(name)


def _run_apart(workshop: Workshop, name: str, process: dict[str, str | None]) -> Ended:
    asked = {**environment_of(workshop.folder), "PYTHONPATH": str(ROOT), **process}
    done = subprocess.run(
        [sys.executable, "-m", "generation", *words(name)], cwd=workshop.folder,
        capture_output=True, check=False,
        env={variable: value for variable, value in asked.items() if value is not None},
    )  # fmt: skip
    encoding = (process.get("PYTHONIOENCODING") or "utf-8").partition(":")[0]
    return Ended(done.returncode, done.stdout.decode(encoding), done.stderr.decode(encoding), 0)


_SPEED: Final = re.compile(r"in [\d.]+ s \([\d,]+ per second\)")
"""Speed of a command on stdout."""


def _require_good_end(
    workshop: Workshop, kind: Kind, call: Call, ended: Ended, good: Outcome
) -> None:
    assert "Traceback" not in ended.err + ended.out
    if kind.ends == "killed":
        is_finished = ended.code == 0 or any(text in ended.err for text in FINISHED)
        if call["signal"] == signal.SIGINT and not is_finished:
            assert ended.code == INTERRUPTED
            assert ended.err.rstrip().rpartition("\n")[2] == STOPPED
        return
    if ended.code == 0:
        assert kind.ends != "refused"
        assert _without_caches(snapshot(workshop.folder)) == _without_caches(good.after)
        text, usual = (_SPEED.sub("", process.out) for process in (ended, good))
        codes = ("ascii", *((call.get("process") or {}).get("PYTHONIOENCODING", "")).split(":")[:1])
        shown = [usual.encode(c, "backslashreplace").decode(c) for c in filter(None, codes)]
        assert text in (usual, *shown) or "stdout" in call
        return
    assert kind.ends != "passes"
    if "AS" in call.get("limits", {}) and (ended.code < 0 or ended.err.endswith("ABORT\n")):
        return  # a C++ library aborts the process, or the C library exits with 127 and a message
    assert ended.code in (1, 2)
    if "stderr" in call or call.get("stdout") == "unread":
        return
    line = ended.err.rstrip().rpartition("\n")[2]
    if ended.out.startswith("merge-nli/"):  # findings of `check`, which name the file
        return
    assert line.startswith("error: ")
    assert re.search(kind.told, line), line
    if kind.told == _CURE:
        assert str(workshop.folder) in line or re.match(r"error: [\w.…/-]+: ", line), line
        assert not re.search(r"/\.[^/]+\.(partial|lock|answers)", line), line
        assert kind.what != "a read-only disk" or snapshot(workshop.folder) == good.before


def _without_caches(files: dict[str, str]) -> dict[str, str]:
    return {name: digest for name, digest in files.items() if not name.startswith(("hf/", "."))}


def test_what_is_not_synced_is_noticed() -> None:
    file = ["open a", "fsync a", "open a", "os.rename a b"]
    folder = ["open f/x", "open f/y", "fsync f/x", "os.rename f g"]
    good = ["open c", "fsync c", "os.rename c d", "os.rename d .d.old"]
    files = dict.fromkeys(("b", "g/x", "g/y", "d"), "")
    assert unsynced([*file, *folder, *good], files) == ["a", "f/y"]
