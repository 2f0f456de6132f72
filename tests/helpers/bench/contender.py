import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from helpers.bench import worker

ROOT: Final = Path(__file__).resolve().parents[3]
FOLDER: Final = ROOT / "build" / "benchmarks"
"""Folder of results, and of files made once: models, an empty cache for TextAttack."""

_ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1", "HF_HUB_OFFLINE": "1",
    "HF_EVALUATE_OFFLINE": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
}  # fmt: skip
"""One thread each, so that CPU seconds measure work and not waiting; no network."""
_NO_GPU: Final = {"CUDA_VISIBLE_DEVICES": ""}
_BESIDE_GPU: Final = {"TOKENIZERS_PARALLELISM": "true"}
"""Beside a GPU, wall-clock time counts, and so more processors may be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    cpu: float
    wall: float
    peak_mb: float
    answer: Any
    versions: Mapping[str, str]


@dataclass(slots=True)
class Contender:
    """One way to do the work, in a process that runs during the context."""

    name: str
    load: Callable[..., Callable[..., Any]]
    """Function of a module; it runs in the process, and returns the function for requests."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `load`, as JSON values."""
    python: str = sys.executable
    needs_gpu: bool = False
    request: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of each request, as JSON values."""
    _process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        log = self._log()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [self.python, worker.__file__, inspect.getfile(self.load), self.load.__name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | _ENVIRONMENT | (_BESIDE_GPU if self.needs_gpu else _NO_GPU),
            )
        self.ask(**self.arguments)
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # closes the pipes, which ends the process
            pass

    def ask(self, **request: Any) -> Reply:
        """Send one request, as JSON; with `times`, it is repeated, and times are averaged."""
        process = self._process
        try:
            print(json.dumps(request), file=process.stdin, flush=True)
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            text = self._log().read_text(encoding="utf-8")[-2000:]
            raise RuntimeError(f"{self.name}: expected an answer, the process ended:\n{text}")
        return Reply(**json.loads(line))

    def _log(self) -> Path:
        name = "".join(c if c.isalnum() else "-" for c in self.name)
        return FOLDER / "logs" / f"{name}.log"


def spread(items: Sequence[int], count: int) -> list[int]:
    """Select `count` items, evenly spaced; all items if there are fewer."""
    count = min(count, len(items))
    return [items[i * len(items) // count] for i in range(count)]
