"""Tasks as processes of their own: what one does, and many on this machine.

As a program, this module does one task: `python -m merge_dataset.executors.worker LOGS TASK`.
"""

import contextlib
import logging
import os
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from threading import Event, Thread

from merge_dataset.executors import RESULTS, Distribution, Task
from merge_dataset.files import read_json, write_json

log = logging.getLogger(__name__)


def run_on_this_machine(logs: Path, tasks: int, distribution: Distribution) -> dict[int, str]:
    """Run all tasks of a plan in processes, each with GPUs of its own; map failures to reasons."""
    workers, gpus = min(distribution.workers, tasks), distribution.gpus
    devices = (list(distribution.devices) or gpus_here()) if gpus else []
    if len(devices) < workers * gpus:
        raise ValueError(
            f"gpus: expected at most {len(devices)} on this machine, got {workers} workers with "
            f"{gpus} each"
        )
    free: Queue[Mapping[str, str]] = Queue()
    for worker in range(workers):
        own = ",".join(devices[worker * gpus : (worker + 1) * gpus])
        free.put({"CUDA_VISIBLE_DEVICES": own} if gpus else {})
    stopped = Event()

    def run(task: int) -> str:
        environment = free.get()
        try:
            return run_apart(logs, task, environment, goes_on=lambda: not stopped.is_set())
        finally:
            free.put(environment)

    with ThreadPoolExecutor(workers) as pool:
        try:
            reasons = list(pool.map(run, range(tasks)))
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)
    return {task: reason for task, reason in enumerate(reasons) if reason}


def gpus_here() -> list[str]:
    """List the numbers of this machine's GPUs that this process may use."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [device for device in visible.split(",") if device]
    query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        listed = subprocess.run(query, capture_output=True, encoding="utf-8", check=True)
        return listed.stdout.split()
    return []


def run_apart(
    logs: Path,
    task: int,
    environment: Mapping[str, str] | None = None,
    *,
    goes_on: Callable[[], bool] = lambda: True,
) -> str:
    """Run a task in a process group that ends with this process; say why it failed, if it did."""
    lifeline, held = os.pipe()  # closes when this process ends: see `_end_with_parent`
    process = subprocess.Popen(
        # -P: do not import a folder with the name of a library.
        [sys.executable, "-P", "-m", __name__, str(logs), str(task)],
        env={**os.environ, **(environment or {})},
        stdin=lifeline,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    os.close(lifeline)

    def kill() -> None:
        with contextlib.suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:  # on Windows, without what the task has started
                process.kill()

    output = None
    try:
        while output is None:
            try:
                _, output = process.communicate(timeout=0.1)
            except subprocess.TimeoutExpired:
                if process.poll() is not None or not goes_on():
                    kill()  # also what the task has started, which holds its output open
    finally:
        kill()
        process.wait()
        os.close(held)
    with contextlib.suppress(OSError):  # on a full disk there is only the output in memory
        (logs / f"task_{task:05}.log").write_text(output, encoding="utf-8")
    status = process.returncode
    if status < 0:
        name = signal.Signals(-status).name
        why = ", as the system does when memory runs out" if name == "SIGKILL" else ""
        return f"killed by {name}{why}"
    return (last_line(output) or f"exit status {status}, no message") if status else ""


def last_line(text: str) -> str:
    """Return the last line that is not blank, or an empty string."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def main(logs: Path, task: int) -> None:
    """Do the blocks of a task, every n-th of n tasks; exit with a line on the first that failed."""
    plan = read_json(logs / "plan.json")
    # Set before the block's module imports libraries that read it, as workers share the cores.
    os.environ.setdefault("OMP_NUM_THREADS", str(plan["cpus"]))
    with contextlib.suppress(OSError):  # a folder that exists only on the caller's machine
        os.chdir(plan["working_folder"])
    run_block = pkgutil.resolve_name(plan["function"])
    blocks, failed = Task(task, plan["tasks"]).of(list(enumerate(plan["blocks"]))), []
    for number, block in blocks:
        try:
            result = run_block(Path(plan["folder"]), block)
            write_json(logs / RESULTS / f"{number:06}.json", result)
        except Exception as error:
            log.exception("%s failed", block)
            failed.append(f"{block}: {type(error).__name__}: {' '.join(str(error).split())}")
    if failed:
        sys.exit(f"{len(failed)} of {len(blocks)} blocks failed: {failed[0]}")


def _end_with_parent() -> None:
    os.read(0, 1)  # returns when the parent's end of the pipe is closed, even if it was killed
    if hasattr(os, "killpg"):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    # Of `run_apart`; Slurm ends its own.
    if not hasattr(os, "getpgrp") or os.getpgrp() == os.getpid():
        Thread(target=_end_with_parent, daemon=True).start()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    main(Path(sys.argv[1]), int(sys.argv[2]))
