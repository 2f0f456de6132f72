"""Runs `merge-nli publish` against a loopback Hub, and looks for secrets in what it prints."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.hub.endpoints import SIGNATURE, LoopbackHub
from helpers.hub.loopback import loopback_hub
from helpers.hub.repositories import User

ROOT = Path(__file__).resolve().parents[3]

TOKEN = "hf_somebodys_token_that_must_not_be_seen"
READER = "hf_somebodys_token_that_may_only_read"
STRANGER = "hf_a_strangers_token_that_must_not_be_seen"
USERS = {
    TOKEN: User("somebody", organisations=("a-lab",)),
    READER: User("somebody", role="read"),
    STRANGER: User("stranger"),
}

_COMMAND = "from merge_metric.commands.publish import publish_app; publish_app(prog_name='publish')"

_WORKER = """
import json, os, sys
import merge_dataset.hub.dataset, merge_dataset.hub.repository, merge_dataset.hub.publication
from merge_metric.commands.publish import publish_app

merge_dataset.hub.repository._WAITS = (0.01, 0.01, 0.01)
fresh = merge_dataset.hub.publication.load_back
replies = os.fdopen(os.dup(1), "w")
for line in sys.stdin:
    asked = json.loads(line)
    for number, path in enumerate(asked["files"], start=1):
        os.dup2(os.open(path, os.O_WRONLY), number)
    os.environ.pop("HF_TOKEN", None)
    os.environ.update(asked["environment"])
    run = fresh if asked["verify"] else lambda *_: {}
    merge_dataset.hub.dataset.load_back = merge_dataset.hub.publication.load_back = run
    code = 0
    try:
        publish_app(asked["arguments"], prog_name="publish")
    except SystemExit as exit:
        code = exit.code
    except BaseException:
        import traceback
        traceback.print_exc()
        code = "crashed"
    sys.stdout.flush(), sys.stderr.flush()
    print(json.dumps(code), file=replies, flush=True)
"""


_ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"transformers", "scipy"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
"""
"""As where these two are not installed: with them, importing `evaluate` takes many seconds."""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        return json.loads(self.out)


class Desk:
    def __init__(self, hub: LoopbackHub, worker: subprocess.Popen[str], scratch: Path) -> None:
        self.hub = hub
        self._worker = worker
        self._scratch = scratch

    def run(
        self, *arguments: str | Path, token: str | None = TOKEN, verify: bool = False
    ) -> Result:
        """Run `publish …`; without `verify` nothing is loaded back."""
        files = [self._scratch / "out", self._scratch / "err"]
        for file in files:
            file.write_text("")
        asked = {
            "arguments": [str(argument) for argument in arguments],
            "environment": {} if token is None else {"HF_TOKEN": token},
            "files": [str(file) for file in files],
            "verify": verify,
        }
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        self._worker.stdin.write(json.dumps(asked) + "\n")
        self._worker.stdin.flush()
        code = json.loads(self._worker.stdout.readline())
        return checked(Result(code, *(file.read_text() for file in files)))

    def good(self, *arguments: str | Path, **options: Any) -> Result:
        """Run a command that succeeds."""
        result = self.run(*arguments, **options)
        assert result.code == 0, result.err
        return result

    def refused(self, *arguments: str | Path, code: int = 2, **options: Any) -> str:
        """Run a command that ends in an error, and give what it says of it."""
        result = self.run(*arguments, **options)
        assert result.code == code, result.err
        return result.err

    def start(
        self, *arguments: str | Path, home: Path, code: str = _COMMAND, **environment: str
    ) -> Any:
        """Begin to run a command, or other code, in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            cwd=self._scratch,
            env=_environment(self.hub, home, str(self._scratch)) | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def written(self) -> list[str]:
        """Routes of the requests that may have changed something."""
        return [r.route for r in self.hub.requests if r.method not in ("GET", "HEAD")]


def checked(result: Result) -> Result:
    for secret in (*USERS, SIGNATURE):
        assert secret not in result.out + result.err
    return result


@contextmanager
def desk_at_a_hub() -> Iterator[Desk]:
    """A Hub, and a process that runs commands against it."""
    with loopback_hub() as hub, tempfile.TemporaryDirectory() as scratch:
        hub.users |= USERS
        (Path(scratch) / "sitecustomize.py").write_text(_ABSENT)
        worker = subprocess.Popen(
            [sys.executable, "-c", _WORKER],
            cwd=scratch,
            env=_environment(hub, Path(scratch) / "home", scratch),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            yield Desk(hub, worker, Path(scratch))
        finally:
            worker.stdin.close()
            worker.wait(60)  # a busy machine takes long to end it
            worker.stdout.close()


def _environment(hub: LoopbackHub, home: Path, scratch: str) -> dict[str, str]:
    """Nothing of the user's, no offline mode, and where the Hub is."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    paths = os.pathsep.join([scratch, str(ROOT)])
    ours = {"HF_HOME": str(home), "PYTHONPATH": paths, "COLUMNS": "200"}
    return kept | ours | hub.environment(None)
