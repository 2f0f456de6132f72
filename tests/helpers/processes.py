import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

_TESTS: Final = Path(__file__).parents[1]
PYTHON_PATH: Final = os.pathsep.join([str(_TESTS.parent), str(_TESTS)])
"""Folders of the project and of the tests, for processes that import from both."""

PATIENCE: Final = 60.0
"""Most seconds that a process may take to end."""


def processor_flags() -> set[str]:
    """Instruction sets of the processor, as Linux names them; empty elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())


def python_of(variable: str) -> str:
    """The interpreter of a separate environment, which a target of make sets."""
    import pytest

    return os.environ.get(variable) or pytest.skip(f"needs {variable}: a target of make sets it")


def output_of(*command: object, **options: Any) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a process; at the end, kill it unless it has ended, so that nothing waits forever."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
