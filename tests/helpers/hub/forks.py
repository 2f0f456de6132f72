"""A process that has imported what commands need, and runs each in a separate fork."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from helpers.hub.endpoints import LoopbackHub

ROOT: Final = Path(__file__).resolve().parents[3]

_SERVER: Final = """
import json, os, signal, sys, time, traceback, types
import huggingface_hub.utils._http
{imports}
# The Hub's library tries again without waiting for half a minute.
huggingface_hub.utils._http.time = types.SimpleNamespace(sleep=lambda seconds: None)

def child(asked):
    os.setsid()
    os.chdir(asked["folder"])
    for number, path in enumerate(asked["files"], start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.update(asked["environment"])
    code = 0
    try:
        {run}
    except SystemExit as exit:
        code = exit.code
    except BaseException:
        traceback.print_exc()
        code = 70
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)

for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if pid == 0:
        child(asked)
    end, code = time.monotonic() + 120, None  # it hangs
    while code is None:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
        elif time.monotonic() > end:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            code = 124
        else:
            time.sleep(0.01)
    print(json.dumps(code), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    """124 after a time-out, 70 after a traceback."""
    out: str
    err: str

    @property
    def value(self) -> Any:
        return json.loads(self.out)


@dataclass
class Forks:
    """Runs commands in `folder`; `run` is a line of code that runs the command in `asked`."""

    imports: str
    run: str
    folder: Path
    environment: dict[str, str]
    _server: subprocess.Popen[str] | None = None

    def ask(
        self, arguments: Sequence[object], environment: dict[str, str], **more: object
    ) -> Result:
        if self._server is None:
            code = _SERVER.format(imports=self.imports, run=self.run.replace("\n", "\n        "))
            self._server = subprocess.Popen(
                [sys.executable, "-c", code], cwd=self.folder, env=self.environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        files = [self.folder.parent / name for name in ("out", "err")]
        asked = more | {"arguments": list(map(str, arguments)), "environment": environment}
        asked |= {"files": list(map(str, files)), "folder": str(self.folder)}
        print(json.dumps(asked), file=self._server.stdin, flush=True)
        code = json.loads(self._server.stdout.readline())
        return Result(code, *(file.read_text() for file in files))

    def start(self, code: str, arguments: Sequence[object], **environment: str) -> Any:
        return subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)], cwd=self.folder, text=True,
            env=self.environment | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def close(self) -> None:
        if self._server is not None:
            self._server.communicate(timeout=120)


def environment_of(hub: LoopbackHub, **ours: object) -> dict[str, str]:
    """Environment without the user's Hub settings and offline mode, with the Hub's address."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    return kept | {k: str(v) for k, v in ours.items()} | {"COLUMNS": "200"} | hub.environment(None)
