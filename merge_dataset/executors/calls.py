"""Blocks of work in tasks, with results; and blocks shared by processes of one command.

A command needs names of blocks, and a function that does a block:

    def count_block(folder: Path, block: str) -> int:
        return len(read_table(folder / plan_of(folder)["files"][block]))

    counts = run_blocks("module:count_block", folder, blocks, distribution, {"files": …})
"""

import contextlib
import pkgutil
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, TypeVar

from tqdm import tqdm

from merge_dataset.executors import EXECUTORS, RESULTS, Distribution, ExecutorError
from merge_dataset.files import read_json, write_json

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
    ended = Event()
    with tqdm(total=total, desc="blocks", unit="block") as bar:

        def follow() -> None:
            last_look = False
            while not last_look:
                last_look = ended.wait(1.0)
                if more := sum(1 for _ in results.glob("*.json")) - bar.n:
                    bar.update(more)

        follower = Thread(target=follow, daemon=True)
        follower.start()
        try:
            yield
        finally:
            ended.set()
            follower.join()


Block = TypeVar("Block")
ResultT = TypeVar("ResultT")

_work: Callable[[Any], Any] | None = None
"""The function that a worker process applies to blocks; never set in the main process."""


def map_blocks(
    blocks: Iterable[Block], open_work: Callable[[], Callable[[Block], ResultT]], *, workers: int
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
