"""Runs `merge-nli` on models of a loopback Hub, each command in a fork of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from helpers.hub.endpoints import LoopbackHub
from helpers.hub.files import Payload
from helpers.hub.layouts import CONVERSION, Layout
from helpers.hub.loopback import loopback_hub
from helpers.hub.repositories import Repo, User, entries_of
from helpers.problem_folder import many_problems, write_folder

ROOT: Final = Path(__file__).resolve().parents[3]
TOKEN: Final = "hf_token_of_somebody_who_may"
STRANGER: Final = "hf_token_of_a_stranger"
PATIENCE: Final = 120.0
"""Seconds after which a command is ended: it hangs."""

PROBLEMS: Final = many_problems(6, 2)

_COMMAND = "from generation.cli import app; app(prog_name='merge-nli')"

_SERVER = """
import json, os, signal, sys, time, warnings
import datasets, huggingface_hub, torch, transformers
import transformers.models.bert.modeling_bert, transformers.models.roberta.modeling_roberta
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer
from generation.cli import app
import merge_metric.models.classifier, merge_dataset.schema

def child(asked):
    os.setsid()
    os.chdir(asked["folder"])
    for number, path in enumerate(asked["files"], start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.update(asked["environment"])
    if asked["offline"]:  # as these two read the variable when they are imported
        os.environ["HF_HUB_OFFLINE"] = "1"
        huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    code = 0
    try:
        app(asked["arguments"], prog_name="merge-nli")
    except SystemExit as exit:
        code = exit.code
    except BaseException:
        import traceback
        traceback.print_exc()
        code = 70
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)

for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if pid == 0:
        child(asked)
    end, code = time.monotonic() + asked["patience"], None
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
    """124 where it was ended, 70 where it broke with a traceback."""
    out: str
    err: str

    @property
    def message(self) -> str:
        """The last line on stderr, spaces made even."""
        return " ".join(self.err.strip().splitlines()[-1:]).strip()


class Console:
    """Where commands are typed; `home` holds all caches; `marker` is there when a payload ran."""

    def __init__(self, hub: LoopbackHub, scratch: Path) -> None:
        self.hub = hub
        self.folder, self.home = scratch / "work", scratch / "home"
        self.marker = scratch / "payload-ran"
        self.folder.mkdir()
        self.home.mkdir()
        write_folder(self.folder / "merge-nli", PROBLEMS)
        self._server: subprocess.Popen[str] | None = None

    def run(
        self,
        *arguments: object,
        offline: bool = False,
        token: str | None = None,
        patience: float = PATIENCE,
        **environment: str,
    ) -> Result:
        files = [self.folder.parent / name for name in ("out", "err")]
        asked = {
            "arguments": [str(each) for each in arguments],
            "environment": environment | ({} if token is None else {"HF_TOKEN": token}),
            "files": [str(file) for file in files],
            "folder": str(self.folder),
            "offline": offline,
            "patience": patience,
        }
        server = self._started()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        code = json.loads(server.stdout.readline())
        return Result(code, *(file.read_text() for file in files))

    def predict(self, model: object, *options: object, **more: object) -> Result:
        """Run `predict` for one model on the dataset; see `probabilities` for its results."""
        (self.folder / "predicted.parquet").unlink(missing_ok=True)
        return self.run(
            "predict", "--dataset", "merge-nli", "--config", "snli", "--model", model,
            "--out", "predicted.parquet", *options, **more,
        )  # type: ignore[arg-type]  # fmt: skip

    def probabilities(self, file: str = "predicted.parquet") -> np.ndarray:
        """Probabilities of entailment, neutral and contradiction that `predict` wrote."""
        import pyarrow.parquet as pq

        rows = pq.read_table(self.folder / file).to_pylist()
        rows.sort(key=lambda row: row["variant_id"])
        return np.array([row["probabilities"] for row in rows])

    def start(self, *arguments: object, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *map(str, arguments)],
            cwd=self.folder,
            env=self._environment() | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def forget(self) -> None:
        shutil.rmtree(self.home)
        self.home.mkdir()
        self.hub.requests.clear()

    def close(self) -> None:
        if self._server is not None:
            assert self._server.stdin is not None
            assert self._server.stdout is not None
            self._server.stdin.close()
            self._server.wait(PATIENCE)
            self._server.stdout.close()

    def _started(self) -> subprocess.Popen[str]:
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-c", _SERVER], cwd=self.folder, env=self._environment(),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        return self._server

    def _environment(self) -> dict[str, str]:
        """Nothing of the user's, no offline mode, and where the Hub is."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
        ours = {
            "HOME": str(self.home),
            "HF_HOME": str(self.home / "huggingface"),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "200",
            "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": "1",
            Payload.MARKER: str(self.marker),
        }
        return kept | ours | self.hub.environment(None)


@contextmanager
def console() -> Iterator[Console]:
    with loopback_hub() as hub, tempfile.TemporaryDirectory() as scratch:
        hub.users |= {TOKEN: User("somebody"), STRANGER: User("stranger")}
        made = Console(hub, Path(scratch))
        try:
            yield made
        finally:
            made.close()


def serve(hub: LoopbackHub, name: str, layout: Layout) -> Repo:
    """Put a layout on the Hub, with its old ids and its pull request."""
    repo = hub.serve(name, layout.files, allowed=("somebody",) if layout.gated else None)
    for old in layout.moved_from:
        hub.moved[old] = name
    if layout.conversion is not None:
        files = {**layout.files, **layout.conversion()}
        repo.propose(entries_of(files), CONVERSION, "SFconvertbot")
    return repo
