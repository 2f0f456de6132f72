"""Tasks on a Ray cluster and on Slurm; the only module that uses either."""

import contextlib
import logging
import os
import re
import shlex
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

from merge_dataset.card import environment
from merge_dataset.executors import Distribution, ExecutorError
from merge_dataset.executors.worker import last_line, run_apart
from merge_dataset.files import digest_of, write_text

log = logging.getLogger(__name__)

# --- Ray ---


def run_on_ray(logs: Path, tasks: int, distribution: Distribution) -> dict[int, str]:
    """Run all tasks of a plan on a running Ray cluster; map failures to reasons."""
    # Ray must not send usage statistics.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        error.args = (*error.args, "distributed")  # the extra that installs it
        raise
    memory = (distribution.memory_gb or 0) * 2**30
    failures: dict[int, str] = {}
    with contextlib.ExitStack() as stack:
        # Ray prints events of workers to stdout, which is for results.
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        if not ray.is_initialized():
            address = distribution.address or os.environ.get("RAY_ADDRESS", "auto")
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            stack.callback(ray.shutdown)
        wanted = {"CPU": distribution.cpus, "GPU": distribution.gpus, "memory": memory}
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(all(node.get(k, 0) >= v for k, v in wanted.items()) for node in nodes):
            log.warning("no machine of the Ray cluster has %s yet; waiting for one", wanted)
        run = ray.remote(
            num_cpus=distribution.cpus, num_gpus=distribution.gpus, memory=memory or None
        )(run_apart)
        waiting = deque(range(tasks))
        running: dict[Any, int] = {}
        while waiting or running:
            while waiting and len(running) < distribution.workers:
                task = waiting.popleft()
                running[run.remote(logs, task)] = task
            for ended in ray.wait([*running])[0]:
                task = running.pop(ended)
                try:
                    failures[task] = ray.get(ended)
                except ray.exceptions.RayError as error:
                    failures[task] = f"its Ray worker died: {last_line(str(error))}"
    return {task: reason for task, reason in failures.items() if reason}


# --- Slurm ---


def run_on_slurm(logs: Path, tasks: int, distribution: Distribution) -> dict[int, str]:
    """Submit tasks as an array job, wait, and map failures to reasons; Ctrl+C cancels the job."""
    name = f"merge-nli-{digest_of(str(logs.parent))[:12]}"
    if alive := _ask("squeue", "--noheader", "--array", f"--name={name}").splitlines():
        raise ExecutorError(
            f"expected no job for {logs.parents[1]} in Slurm's queue, found {len(alive)} tasks "
            f"of an earlier command; wait for them, or run: scancel --name {name}"
        )
    most = re.search(r"^MaxArraySize\s*=\s*(\d+)", _ask("scontrol", "show", "config"), re.MULTILINE)
    elements = min(tasks, int(most[1]) if most else 1001)
    template = environment(Path(__file__).parent).get_template("slurm_job.sh.j2")
    script = template.render(
        name=name,
        given=distribution,
        elements=elements,
        last=tasks - 1,
        logs=str(logs),
        python=sys.executable,
        path=Path(sys.executable).parent,  # the tasks run in this Python environment
        quote=shlex.quote,
    )
    write_text(logs / "job.sh", script)
    try:
        job = _ask("sbatch", "--wait", "--parsable", str(logs / "job.sh")).split(";")[0].strip()
    except BaseException:
        subprocess.run(["scancel", "--name", name], check=False, capture_output=True)
        raise
    states: dict[str, str] = {}
    with contextlib.suppress(ExecutorError):  # what the tasks left tells most
        listed = _ask("squeue", "--noheader", "--array", "--states=all", f"--jobs={job}",
                      "--format=%K %T")  # fmt: skip
        states = dict(line.split() for line in listed.splitlines())
    failures = {}
    for task in range(tasks):
        state = states.get(str(task % elements), "left Slurm's queue without finishing")
        if state == "COMPLETED" or (logs / "ended" / f"{task:05}").is_file():
            continue
        path = logs / f"task_{task:05}.log"
        output = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        failures[task] = f"{state}, {last_line(output) or 'no output'}"
    return failures


def _ask(*command: str) -> str:
    """Return what a command of Slurm prints, even if it fails then, as `sbatch --wait` does."""
    answer = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if answer.returncode and not answer.stdout:
        problem = " ".join(answer.stderr.split())
        raise ExecutorError(f"expected an answer of {command[0]}, got: {problem}")
    return answer.stdout
