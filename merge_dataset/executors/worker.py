"""Workers: a task runs its share of a plan's units one after the other; tasks on this machine.

A task follows datatrove's rules: it has a log, and a completion marker only if all of its units
succeeded. As a program, this module runs one task in a separate process.
"""

import contextlib
import logging
import os
import pkgutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, Final, Literal

from datatrove.executor.local import LocalPipelineExecutor
from datatrove.pipeline.base import PipelineStep

from merge_dataset.executors.plan import Plan, Resources

_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """Executor with a process per task; datatrove's pool would wait for ever for killed ones."""

    workers: int
    resources: Resources

    def run(self, logs: Path, tasks: int) -> dict[int, str]:
        """Run all tasks, and map those that failed to reasons."""
        workers, gpus, there = min(self.workers, tasks), self.resources.gpus, list[str]()
        if gpus and (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
            there = [gpu for gpu in visible.split(",") if gpu]
        elif gpus:
            query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                asked = subprocess.run(query, capture_output=True, encoding="utf-8", check=True)
                there = asked.stdout.split()
        if len(there) < workers * gpus:
            raise ValueError(
                f"gpus: expected at most {len(there)} on this machine, got {workers} workers with "
                f"{gpus} each"
            )
        shares = [there[worker * gpus : (worker + 1) * gpus] for worker in range(workers)]
        # Each worker has its own GPUs.
        free = deque({"CUDA_VISIBLE_DEVICES": ",".join(own)} if own else {} for own in shares)
        waiting = deque(range(tasks))
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


log = logging.getLogger(__name__)

_WATCH_SECONDS: Final = 0.2


class UnitsFailed(RuntimeError):
    """Some units of a task failed; the message is one line."""


def run_share(logs: Path, task: int) -> None:
    """Run all units of a task; then raise `UnitsFailed`, which names the first that failed."""
    plan = Plan.read(logs)
    # Set before the unit's module imports libraries that read it, as workers share the cores.
    os.environ.setdefault("OMP_NUM_THREADS", str(plan.cpus))
    with contextlib.suppress(OSError):  # a folder that exists only on the caller's machine
        os.chdir(plan.working_folder)
    run_unit = pkgutil.resolve_name(plan.function)
    share, failed = plan.share(task), []
    for number, unit in share.items():
        try:
            run_unit(Path(plan.folder), unit)
        except Exception as error:
            log.exception("unit %s failed", unit)
            failed.append(f"{unit}: {type(error).__name__}: {' '.join(str(error).split())}")
        else:
            # Only the progress bar reads these; on a full disk the unit itself fails.
            with contextlib.suppress(OSError):
                (logs / "done" / f"{number:06}").touch()
    if failed:
        raise UnitsFailed(f"{len(failed)} of {len(share)} units failed: {failed[0]}")


class RunUnits(PipelineStep):  # type: ignore[misc]
    """The only step of our pipelines, which runs the units of the task with the given rank."""

    type = "MERGE-NLI"
    name = "units"

    def __init__(self, logs: Path, *, apart: bool = False) -> None:
        """Make the step for the plan in `logs`; if `apart`, units run in a separate process.

        On Ray, datatrove waits for ever for one of its own processes that was killed; the process
        of `apart` is ours.
        """
        super().__init__()
        self.logs, self.apart = logs, apart

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Any:
        """Run the task `rank`; pass on no documents."""
        if not self.apart:
            run_share(self.logs, rank)
            return ()
        parent = os.getppid()
        process = TaskProcess("units", self.logs, rank)
        try:
            while not process.has_ended():
                if os.getppid() != parent:
                    # The process that waits for the task is gone; another task will replace it.
                    raise UnitsFailed(f"task {rank}: its parent process died")
                time.sleep(_WATCH_SECONDS)
            if failure := process.failure():
                raise UnitsFailed(f"task {rank}: {failure}")
        finally:
            process.kill()
        return ()


class TaskProcess:
    """A task in a process group that ends with this process, and whose last output is kept."""

    def __init__(
        self,
        what: Literal["task", "units"],
        logs: Path,
        task: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the process."""
        self._last_words = logs / "logs" / f"task_{task:05}.stderr"
        self._process = subprocess.Popen(
            # -P: do not import a folder with the name of a library.
            [sys.executable, "-P", "-m", __name__, what, str(logs), str(task)],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,  # closes when this process ends: see `_end_with_parent`
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self._lines: deque[str] = deque(maxlen=200)
        self._reader = Thread(target=self._lines.extend, args=(self._process.stderr,), daemon=True)
        self._reader.start()

    def has_ended(self) -> bool:
        """Return whether the process is over, without waiting."""
        return self._process.poll() is not None

    def failure(self) -> str | None:
        """Return the reason why an ended process failed, in one line; None if it did not."""
        self.kill()
        status = self._process.returncode
        if status == 0:
            return None
        # On a full disk only the output in memory is available.
        with contextlib.suppress(OSError):
            self._last_words.parent.mkdir(exist_ok=True)
            self._last_words.write_text("".join(self._lines), encoding="utf-8")
        if status == -signal.SIGKILL:
            return "killed by SIGKILL, as the system does when memory runs out"
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        return last_line(self._lines) or f"exit status {status}, no message"

    def kill(self) -> None:
        """End the process, and all processes that it started."""
        stdin, stderr = self._process.stdin, self._process.stderr
        assert stdin
        assert stderr
        if stdin.closed:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        stdin.close()
        stderr.close()


def last_line(lines: deque[str] | list[str]) -> str:
    """Return the last line that is not blank, or an empty string."""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _end_with_parent() -> None:
    os.read(0, 1)  # returns when the parent's end of the pipe is closed, even if it was killed
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _main(what: str, logs: Path, task: int) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    try:
        if what == "units":
            run_share(logs, task)
        else:
            LocalPipelineExecutor(
                [RunUnits(logs)],
                tasks=Plan.read(logs).tasks,
                local_tasks=1,
                local_rank_offset=task,
                workers=1,
                logging_dir=str(logs),
            ).run()
    except UnitsFailed as error:
        sys.exit(str(error))


if __name__ == "__main__":
    # So that datatrove can store it: a step of an importable module.
    from merge_dataset.executors.worker import _main as main

    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
