"""Run units of work on this machine, on Ray or on Slurm, through datatrove's executors.

Every call makes a folder of its own, `tasks/0001`, `tasks/0002`, … inside the folder worked
on, with datatrove's logs and completion markers. So a marker never outlives its plan: the
units' outputs show what is done, and the caller passes the units that are not.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Final

from tqdm import tqdm

from merge_dataset.executors.plan import Distribution, ExecutorError, Plan, Resources

_POLL_SECONDS: Final = 0.1
_PROGRESS_SECONDS: Final = 1.0
_FAILURES_SHOWN: Final = 5


def run_units(
    unit_function: str, folder: Path, units: Sequence[str], distribution: Distribution
) -> None:
    """Run every unit once, in tasks, and wait for the end.

    Args:
        unit_function: `module:name` of a function `(folder, unit)` in a module that the
            workers can import. It writes the unit's outputs whole or not at all and skips
            what is there.
        folder: Where the units work; on a cluster, on a file system that all machines share.
        units: Names of the units still to be done; with none, nothing happens.
        distribution: The tasks, and where they run.

    Raises:
        ValueError: a unit is there twice.
        ExecutorError: tasks failed, and the message says which, why, and where the logs are;
            datatrove or Ray is not installed; there is no such cluster. In every case the units
            that were finished are, and the same call without them does the rest.
    """
    # Two tasks would write the same files at the same time.
    if twice := [unit for unit, count in Counter(units).items() if count > 1]:
        raise ValueError(f"units: expected each once, got {twice[0]!r} again")
    if not units:
        return
    executor, resources = distribution.executor, distribution.resources
    for library in ("datatrove", "ray") if executor == "ray" else ("datatrove",):
        if not importlib.util.find_spec(library):
            raise ExecutorError(
                f"executor {executor}: expected {library}, found none; run: pip install "
                "'merge-nli[distributed]'"
            )
    folder = folder.resolve()
    plan = Plan(
        function=unit_function,
        folder=str(folder),
        units=tuple(units),
        tasks=min(distribution.tasks, len(units)),
        cpus=resources.cpus,
        working_folder=str(Path.cwd()),
    )
    logs = _fresh_folder(folder / "tasks")
    plan.write(logs)
    with _progress(logs / "done", len(units)):
        if executor == "local":
            failures = _run_here(logs, plan.tasks, distribution.workers, resources)
        else:
            from merge_dataset.executors import clusters

            run = clusters.run_on_ray if executor == "ray" else clusters.run_on_slurm
            failures = run(logs, plan.tasks, distribution.workers, resources)
    if failures:
        raise ExecutorError(_report(failures, plan.tasks, logs))


def _fresh_folder(parent: Path) -> Path:
    """Make the next folder of `0001`, `0002`, … and return it."""
    parent.mkdir(parents=True, exist_ok=True)
    taken = [int(path.name) for path in parent.iterdir() if path.name.isdecimal()]
    folder = parent / f"{max(taken, default=0) + 1:04}"
    folder.mkdir()
    return folder


@contextlib.contextmanager
def _progress(done: Path, total: int) -> Iterator[None]:
    """Show a progress bar over the units done, wherever they are done."""
    ended = Event()
    with tqdm(total=total, desc="units", unit="unit") as bar:

        def follow() -> None:
            last_look = False
            while not last_look:
                last_look = ended.wait(_PROGRESS_SECONDS)
                if more := sum(1 for _ in done.iterdir()) - bar.n:
                    bar.update(more)

        follower = Thread(target=follow, daemon=True)
        follower.start()
        try:
            yield
        finally:
            ended.set()
            follower.join()


def _run_here(logs: Path, tasks: int, workers: int, resources: Resources) -> dict[int, str]:
    """Run all tasks in processes of this machine, and map failed tasks to reasons.

    A task is a process of its own and not one of datatrove's pool, which stops them all when
    one fails, and waits for ever when one is killed.
    """
    from merge_dataset.executors.worker import TaskProcess

    waiting, free = deque(range(tasks)), deque(_environments(min(workers, tasks), resources.gpus))
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
    there = _gpus_here()
    if len(there) < workers * gpus:
        raise ValueError(
            f"gpus: expected at most {len(there)} on this machine, got {workers} workers with "
            f"{gpus} each"
        )
    return [
        {"CUDA_VISIBLE_DEVICES": ",".join(there[worker * gpus : (worker + 1) * gpus])}
        for worker in range(workers)
    ]


def _gpus_here() -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [gpu for gpu in visible.split(",") if gpu]
    query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return []


def _report(failures: Mapping[int, str], tasks: int, logs: Path) -> str:
    shown = [f"  task {task}: {failures[task]}" for task in sorted(failures)[:_FAILURES_SHOWN]]
    if len(failures) > len(shown):
        shown.append(f"  and {len(failures) - len(shown)} more")
    return "\n".join(
        [
            f"{len(failures)} of {tasks} tasks failed:",
            *shown,
            f"Their logs are in {logs}. What was finished is kept; the same command does the rest.",
        ]
    )
