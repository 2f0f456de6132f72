"""Tasks in processes of this machine."""

from __future__ import annotations

import os
import subprocess
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from merge_dataset.executors.plan import Resources
from merge_dataset.executors.worker import TaskProcess

_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """Runs each task in a process of its own.

    Not in one of datatrove's pool, which stops them all when one fails, and waits for ever when
    one is killed.
    """

    workers: int
    resources: Resources

    def run(self, logs: Path, tasks: int) -> dict[int, str]:
        """Run all tasks, and map those that failed to reasons."""
        waiting = deque(range(tasks))
        free = deque(_environments(min(self.workers, tasks), self.resources.gpus))
        running: dict[int, tuple[TaskProcess, dict[str, str]]] = {}
        failures: dict[int, str] = {}
        try:
            while waiting or running:
                while waiting and free:
                    task, environment = waiting.popleft(), free.popleft()
                    running[task] = TaskProcess("task", logs, task, environment), environment
                time.sleep(_POLL_SECONDS)
                for task, (process, environment) in list(running.items()):
                    if process.has_ended():
                        del running[task]
                        free.append(environment)
                        if failure := process.failure():
                            failures[task] = failure
        finally:
            for process, _ in running.values():
                process.kill()
        return failures


def _environments(workers: int, gpus: int) -> list[dict[str, str]]:
    """Return the environment variables that give each worker GPUs of its own."""
    if not gpus:
        return [{} for _ in range(workers)]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        there = [gpu for gpu in visible.split(",") if gpu]
    else:
        query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        try:
            asked = subprocess.run(query, capture_output=True, text=True, check=True)
            there = asked.stdout.split()
        except (OSError, subprocess.CalledProcessError):
            there = []
    if len(there) < workers * gpus:
        raise ValueError(
            f"gpus: expected at most {len(there)} on this machine, got {workers} workers with "
            f"{gpus} each"
        )
    return [
        {"CUDA_VISIBLE_DEVICES": ",".join(there[worker * gpus : (worker + 1) * gpus])}
        for worker in range(workers)
    ]
