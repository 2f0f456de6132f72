"""Executors of tasks on a Ray cluster or on Slurm; the only module that uses either."""

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from datatrove.executor.ray import RayPipelineExecutor
from datatrove.executor.slurm import SlurmPipelineExecutor
from datatrove.utils.logging import logger as datatrove_log
from datatrove.utils.logging import setup_default_logger

from merge_dataset.executors.plan import ExecutorError, Resources
from merge_dataset.executors.worker import RunUnits, UnitsFailed, last_line
from merge_dataset.files import digest_of

log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 5.0
_OVER: Final = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
     "PREEMPTED", "TIMEOUT"}
)  # fmt: skip
"""Slurm's final states of jobs."""


def _is_complete(logs: Path, task: int) -> bool:
    return (logs / "completions" / f"{task:05}").is_file()


@contextlib.contextmanager
def _datatrove_messages() -> Iterator[list[str]]:
    """Collect datatrove's messages in this process instead of showing them."""
    messages: list[str] = []
    datatrove_log.remove()
    datatrove_log.add(messages.append, level="DEBUG", format="{message}")
    try:
        yield messages
    finally:
        setup_default_logger()


# --- Ray ---


@dataclass(frozen=True, slots=True)
class RayExecutor:
    """Executor of tasks on a running Ray cluster."""

    workers: int
    resources: Resources

    def run(self, logs: Path, tasks: int) -> dict[int, str]:
        """Run all tasks, and map those that failed to reasons."""
        resources = self.resources
        # Ray must not send usage statistics.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        with contextlib.ExitStack() as stack:
            # Ray prints events of workers to stdout, which is for results.
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
            if not ray.is_initialized():
                address = resources.address or os.environ.get("RAY_ADDRESS", "auto")
                try:
                    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
                except ConnectionError as error:
                    raise ExecutorError(
                        f"expected a Ray cluster at address {address}, found none; start one with: "
                        "ray start --head"
                    ) from error
                stack.callback(ray.shutdown)
            _check_ray(ray, resources)
            messages = stack.enter_context(_datatrove_messages())
            RayPipelineExecutor(
                [RunUnits(logs, apart=True)],
                tasks=tasks,
                workers=min(self.workers, tasks),
                logging_dir=str(logs),
                cpus_per_task=resources.cpus,
                mem_per_cpu_gb=(resources.memory_gb or 0) / resources.cpus,
                gpus_per_task=resources.gpus,
            ).run()
        text = "".join(messages)
        said = dict(re.findall(r"UnitsFailed: task (\d+): (.*)", text))
        return {
            task: said.get(str(task)) or f"its Ray worker died: {last_line(text.splitlines())}"
            for task in range(tasks)
            if not _is_complete(logs, task)
        }


def _check_ray(ray: Any, resources: Resources) -> None:
    """Raise for missing resources or packages, for which datatrove would silently wait."""
    wanted = {"CPU": resources.cpus, "GPU": resources.gpus,
              "memory": (resources.memory_gb or 0) * 2**30}  # fmt: skip
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(all(node.get(k, 0) >= v for k, v in wanted.items()) for node in nodes):
        log.warning("no machine of the Ray cluster has %s yet; waiting for one", wanted)
    try:
        ray.get(ray.remote(num_cpus=0)(_is_complete).remote(Path(), 0))
    except ray.exceptions.RayError as error:
        raise ExecutorError(
            "expected merge-nli[distributed] on the machines of the Ray cluster, got: "
            f"{last_line(str(error).splitlines())}"
        ) from error


# --- Slurm ---


class _SlurmJob(SlurmPipelineExecutor):  # type: ignore[misc]
    """datatrove's job, but with the cluster's defaults for unset resources and no second job."""

    def __init__(self, *arguments: Any, memory_gb: int | None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.memory_gb = memory_gb

    def get_sbatch_args(self, max_array: int = 1) -> dict[str, Any]:
        options = super().get_sbatch_args(max_array)
        del options["mem-per-cpu"]
        if self.memory_gb:
            options.setdefault("mem", f"{self.memory_gb}G")
        return {name: value for name, value in options.items() if value is not None}

    def launch_merge_stats(self) -> None:
        """Launch nothing, as this job would stay in the queue for ever if a task failed."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """An element of an array job that is, or recently was, in Slurm's queue."""

    job: int
    index: int
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class SlurmExecutor:
    """Executor of tasks as array jobs of Slurm."""

    workers: int
    resources: Resources

    def run(self, logs: Path, tasks: int) -> dict[int, str]:
        """Submit tasks, wait, and map failed ones to reasons; Ctrl+C cancels them."""
        resources = self.resources
        if not shutil.which("sbatch"):
            raise ExecutorError("executor slurm: expected the command sbatch, found none")
        if "SLURM_ARRAY_TASK_ID" in os.environ:
            raise ExecutorError("executor slurm: expected a login node, got a task of an array job")
        name = f"merge-nli-{digest_of(str(logs.parent))[:12]}"
        before = _queue(name)
        if alive := [entry for entry in before if entry.state not in _OVER]:
            raise ExecutorError(
                f"expected no job for {logs.parents[1]} in Slurm's queue, found {len(alive)} tasks "
                f"of an earlier command; wait for them, or run: scancel --name {name}"
            )
        config = subprocess.run(["scontrol", "show", "config"], capture_output=True,
                                encoding="utf-8", check=True).stdout  # fmt: skip
        most = re.search(r"^MaxArraySize\s*=\s*(\d+)", config, re.MULTILINE)
        job = _SlurmJob(
            [RunUnits(logs)],
            tasks=tasks,
            workers=min(self.workers, tasks),
            logging_dir=str(logs),
            job_name=name,
            time=resources.time,
            partition=resources.partition,
            qos=None,
            cpus_per_task=resources.cpus,
            memory_gb=resources.memory_gb,
            gpus_per_task=resources.gpus,
            sbatch_args=dict(resources.sbatch),
            # The tasks run in this Python environment.
            env_command=f"{resources.setup}\nexport PATH={Path(sys.executable).parent}:$PATH",
            max_array_size=int(most[1]) if most else 1001,
            with_srun=False,  # one process on one machine needs no job step
        )
        try:
            with _datatrove_messages():
                job.run()
            entries = _wait(name, {entry.job for entry in before})
        except BaseException as error:
            subprocess.run(["scancel", "--name", name], check=False, capture_output=True)
            if isinstance(error, subprocess.CalledProcessError):
                raise ExecutorError(
                    f"Slurm refused the job: sbatch said why above ({error})"
                ) from error
            raise
        jobs = sorted({entry.job for entry in entries})
        found = {
            entry.index + jobs.index(entry.job) * job.max_array_size: entry for entry in entries
        }  # if there are more tasks than an array may have, several arrays
        return {
            task: _slurm_failure(logs, found.get(task))
            for task in range(tasks)
            # On a network file system the marker may appear with a delay.
            if not _is_complete(logs, task)
            and (task not in found or found[task].state != "COMPLETED")
        }


def _slurm_failure(logs: Path, entry: _Entry | None) -> str:
    if entry is None:
        return "left Slurm's queue without finishing"
    output = logs / "slurm_logs" / f"{entry.job}_{entry.index}.out"
    lines = (
        output.read_text(encoding="utf-8", errors="replace").splitlines()
        if output.is_file()
        else []
    )
    words = last_line(lines).removeprefix(f"{UnitsFailed.__module__}.{UnitsFailed.__name__}: ")
    return f"{entry.state}, {words or 'no output'}"


def _wait(name: str, not_these: set[int]) -> list[_Entry]:
    """Wait until all jobs of that name have ended, and return their final entries."""
    before = ""
    while True:
        time.sleep(_POLL_SECONDS)
        try:
            entries = [entry for entry in _queue(name) if entry.job not in not_these]
        except ExecutorError as error:
            # The jobs continue without the controller's answer, so we keep waiting.
            log.warning("%s; asking again", error)
            continue
        alive = [entry for entry in entries if entry.state not in _OVER]
        if not alive:
            return entries
        states = {
            f"{e.state.lower()}{'' if e.reason == 'None' else f' ({e.reason})'}" for e in alive
        }
        if (now := ", ".join(sorted(states))) != before:
            log.info("Slurm job %s: %s", name, now)
            before = now


def _queue(name: str) -> list[_Entry]:
    """List the queue's jobs of that name, including ended ones."""
    asked = subprocess.run(
        ["squeue", "--noheader", "--array", "--states=all", f"--name={name}",
         "--format=%F %K %T %r"],
        capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    if asked.returncode:
        said = " ".join(asked.stderr.split())
        raise ExecutorError(f"expected an answer of squeue, got: {said}")
    rows = (line.split(maxsplit=3) for line in asked.stdout.splitlines())
    return [_Entry(int(job), int(index), state, reason) for job, index, state, reason in rows]
