"""Executors: where and in how many tasks work is done, and blocks of work in these tasks.

A *block* is done as a whole; a *task* does every n-th block in a process of its own. A command
needs names of blocks, and a function that does a block:

    def count_block(folder: Path, block: str) -> int:
        return len(read_table(folder / plan_of(folder)["files"][block]))

    counts = run_blocks("module:count_block", folder, blocks, distribution, {"files": …})
"""

import contextlib
import logging
import pkgutil
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any, Final, Literal, Self, TypeVar

from merge_dataset.files import read_json, write_json
from merge_dataset.settings import Value as Value
from merge_dataset.settings import check_settings, parse_pairs, setting

BlockT = TypeVar("BlockT")
ResultT = TypeVar("ResultT")

log = logging.getLogger(__name__)

COMMANDS: Final = "tasks"
"""Name, in settings, of all commands that deal their work to tasks."""

EXECUTORS: Final[Mapping[str, str]] = {
    "local": "merge_dataset.executors.worker:run_on_this_machine",
    "ray": "merge_dataset.executors.clusters:run_on_ray",
    "slurm": "merge_dataset.executors.clusters:run_on_slurm",
}
"""Executor → its `module:function`, called with the folder of the plan and of logs, the number of
tasks, and the `Distribution`; it returns the tasks that failed, and why."""

RESULTS: Final = "results"
"""Folder, in that of logs, with the results of blocks, by their numbers."""


class ExecutorError(RuntimeError):
    """Tasks failed, or the requested executor is not available."""

    results: Mapping[str, Any] = {}
    """Block → result, of those that did not fail: see `run_blocks`."""


_setting: Final[Any] = partial(
    setting, panel="Many processes, many machines", commands=COMMANDS, rare=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Where and in how many tasks work is done, and what a task gets."""

    executor: Literal[*EXECUTORS] = _setting(  # type: ignore[valid-type]
        None, "Where tasks share the work; by default one process does it."
    )
    tasks: int = _setting(None, "How many tasks; by default as many as workers.", minimum=1)
    workers: int = _setting(1, "How many tasks at a time.", commands="workers", minimum=1)
    cpus: int = _setting(1, "CPU cores of a task.", option="--cpus-per-task", minimum=1)
    """Number of cores, and of threads unless OMP_NUM_THREADS is set."""
    gpus: int = _setting(0, "GPUs of a task.", option="--gpus-per-task", minimum=0)
    devices: tuple[str, ...] = ()
    """Numbers of the GPUs that local tasks get; by default all that are visible."""
    memory_gb: int | None = _setting(None, "Memory of a task (ray, slurm).", minimum=1)
    time: str | None = _setting(None, "Time limit of a task, such as 2:00:00 (slurm).")
    partition: str | None = _setting(None, "Partition (slurm).")
    sbatch: Mapping[str, str] = _setting(
        {},
        "Other options of sbatch, as KEY=VALUE; may be repeated.",
        parse=partial(parse_pairs, form="KEY=VALUE"),
        repeated=True,
    )
    setup: str = _setting("", "Commands before a task, such as 'module load cuda' (slurm).")
    address: str | None = _setting(
        None, "Address of the Ray cluster; by default RAY_ADDRESS.", option="--ray-address"
    )

    def __post_init__(self) -> None:
        """Raise ValueError for numbers out of range, and a setting of another executor."""
        object.__setattr__(self, "executor", self.executor or "local")
        object.__setattr__(self, "tasks", self.tasks or self.workers)
        check_settings(self)
        of_slurm = dict.fromkeys(("time", "partition", "sbatch", "setup"), "slurm")
        for name, executor in {"address": "ray", **of_slurm}.items():
            if getattr(self, name) and executor != self.executor:
                raise ValueError(
                    f"{name}: expected with the executor {executor}, got it with {self.executor}"
                )

    def without_gpus(self) -> Self:
        """Return the same distribution without GPUs, for work that does not use them."""
        if self.gpus:
            log.info("this step has no use for GPUs, so its tasks get none")
        return replace(self, gpus=0)


@dataclass(frozen=True, slots=True)
class Task:
    """The share of work that one of `count` processes does: number `index`, from 0."""

    index: int = 0
    count: int = 1

    @classmethod
    def all(cls, count: int) -> list[Self]:
        """List the tasks that divide the work among them."""
        return [cls(index, count) for index in range(count)]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a task, written "index/count".

        >>> Task.parse("1/3"), str(Task(1, 3))
        (Task(index=1, count=3), '1/3')
        """
        return cls(*map(int, text.split("/")))

    def __str__(self) -> str:
        """Write the task as "index/count"."""
        return f"{self.index}/{self.count}"

    def of(self, blocks: Sequence[BlockT]) -> Sequence[BlockT]:
        """Deal blocks to tasks, every n-th to each of n; return those of this task."""
        return blocks[self.index :: self.count]


# --- Blocks of work in tasks ---

_PLAN: Final = "call.json"
_FAILURES_SHOWN: Final = 5


def plan_of(folder: Path) -> Any:
    """Read the plan of a call."""
    return read_json(folder / _PLAN)


def run_blocks(
    function: str,
    folder: Path,
    blocks: Sequence[str],
    distribution: Distribution,
    plan: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run `module:name` on the folder and each block, in tasks, and return the results in order.

    Results are JSON-able; a block's other outputs are written whole or not at all. All blocks are
    done anew: what should not be done twice is for an `AnswerStore`. On a cluster, all machines
    share the folder. Each call has its own folder of logs, `tasks/0001`, ….

    Raises:
        ExecutorError: some blocks failed; the error has the results of the others.
    """
    if not blocks:
        return {}
    folder = folder.resolve()
    parent = folder / "tasks"
    parent.mkdir(parents=True, exist_ok=True)
    taken = [int(path.name) for path in parent.iterdir() if path.name.isdecimal()]
    logs, tasks = parent / f"{max(taken, default=0) + 1:04}", min(distribution.tasks, len(blocks))
    for name in (RESULTS, "ended"):  # of blocks, and tasks
        (logs / name).mkdir(parents=True)
    if plan is not None:
        write_json(folder / _PLAN, plan)
    call = {
        "function": function,
        "folder": str(folder),
        "blocks": list(blocks),
        "tasks": tasks,
        "cpus": distribution.cpus,
        "working_folder": str(Path.cwd()),
    }
    write_json(logs / "plan.json", call)
    run = pkgutil.resolve_name(EXECUTORS[distribution.executor])
    with _progress(logs / RESULTS, len(blocks)):
        failures = run(logs, tasks, distribution)
    paths = {block: logs / RESULTS / f"{n:06}.json" for n, block in enumerate(blocks)}
    results = {block: read_json(path) for block, path in paths.items() if path.is_file()}
    if not failures and len(results) == len(blocks):
        return results
    lines = [f"  task {task}: {failures[task]}" for task in sorted(failures)]
    if more := len(lines[_FAILURES_SHOWN:]):
        lines[_FAILURES_SHOWN:] = [f"  and {more} more"]
    lost = "" if failures else f", but {len(blocks) - len(results)} blocks have no result"
    first = f"{len(failures)} of {tasks} tasks failed{lost}:"
    last = f"Their logs are in {logs}. Models' answers are kept; give the same command again."
    error = ExecutorError("\n".join([first, *lines, last]))
    error.results = results
    raise error


@contextlib.contextmanager
def _progress(results: Path, total: int) -> Iterator[None]:
    from tqdm import tqdm

    ended = Event()

    def follow() -> None:
        with tqdm(total=total, desc="blocks", unit="block") as bar:
            is_last = False
            while not is_last:
                is_last = ended.wait(1.0)
                bar.update(sum(1 for _ in results.glob("*.json")) - bar.n)

    with ThreadPoolExecutor(1) as follower:
        follower.submit(follow)
        try:
            yield
        finally:
            ended.set()


# --- Blocks in processes of one command ---

_work: Callable[[Any], Any] | None = None
"""The function that a worker process applies to blocks; never set in the main process."""


def map_blocks(
    blocks: Iterable[BlockT], open_work: Callable[[], Callable[[BlockT], ResultT]], *, workers: int
) -> Iterator[ResultT]:
    """Map over picklable blocks in their order; each process calls `open_work` once."""
    if workers == 1:
        yield from map(open_work(), blocks)
        return
    # Forking a process that runs BLAS or torch threads can hang; spawning cannot.
    pool = ProcessPoolExecutor(
        workers, get_context("spawn"), initializer=_start, initargs=(open_work,)
    )
    waiting: deque[Future[ResultT]] = deque()
    try:
        for block in blocks:
            waiting.append(pool.submit(_work_here, block))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl+C the rest is not needed


def _start(open_work: Callable[[], Callable[[Any], Any]]) -> None:
    from threadpoolctl import threadpool_limits

    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the main process handles Ctrl+C
    _work = open_work()
    # After `open_work`, as limits apply only to libraries that are loaded.
    threadpool_limits(1)


def _work_here(block: Any) -> Any:
    assert _work is not None
    return _work(block)
