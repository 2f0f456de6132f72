"""Processes that end with the test that started them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

PATIENCE: Final = 60.0
"""Seconds within which a process that was told to end has ended."""


@contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a process; kill it at the end unless it has ended, so that nobody waits for ever."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
