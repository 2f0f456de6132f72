"""Calls of blocks of work in tasks, with results; and blocks shared by processes of one command.

A command needs a plan, names of blocks, and a function that does a block:

    @keeps_result
    def count_block(folder: Path, block: str) -> int:
        return len(read_table(plan_of(folder)["files"][block]))

    counts = call_tasks("module:count_block", folder, blocks, distribution, {"files": …})
"""

import contextlib
import functools
import pkgutil
import shutil
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, TypeVar

import pyarrow as pa
from tqdm import tqdm

from merge_dataset.executors import EXECUTORS, Distribution, ExecutorError
from merge_dataset.files import digest_of, read_json, read_table, write_json, write_table

_PLAN: Final = "call.json"
_RESULTS: Final = "results"
_TABLES: Final = "tables"

_FAILURES_SHOWN: Final = 5


def call_tasks(
    function: str,
    folder: Path,
    blocks: Sequence[str],
    distribution: Distribution,
    plan: Mapping[str, Any],
) -> dict[str, Any]:
    """Run blocks in tasks, all of them anew, and return the result of each block, in order.

    The caller removes the folder. What should not be done twice is for an `AnswerStore`.

    Raises:
        ExecutorError: some blocks failed; the error has the results of the others.
    """
    for name in (_RESULTS, _TABLES):
        shutil.rmtree(folder / name, ignore_errors=True)
    write_json(folder / _PLAN, plan)

    def results() -> dict[str, Any]:
        paths = {block: _result(folder, block) for block in blocks}
        return {block: read_json(path) for block, path in paths.items() if path.is_file()}

    try:
        run_blocks(function, folder, blocks, distribution)
    except ExecutorError as error:
        error.results = results()
        raise
    done = results()
    if lost := [block for block in blocks if block not in done]:
        raise ExecutorError(
            f"{folder}: expected the result of {lost[0]}, found none; give the same command again"
        )
    return done


def keeps_result(function: Callable[[Path, str], Any]) -> Callable[[Path, str], None]:
    """Decorate a function that does a block, so that it stores its JSON-able return value."""

    @functools.wraps(function)
    def do(folder: Path, block: str) -> None:
        write_json(_result(folder, block), function(folder, block))

    return do


def plan_of(folder: Path) -> Any:
    """Read the plan of a call."""
    return read_json(folder / _PLAN)


def write_block_table(folder: Path, name: str, table: pa.Table) -> str:
    """Write a table that a block made; return its file name, which the block returns, too."""
    write_table(folder / _TABLES / f"{name}.parquet", table)
    return f"{name}.parquet"


def read_block_table(folder: Path, name: str) -> pa.Table:
    """Read the table whose file name a block returned."""
    return read_table(folder / _TABLES / name)


def _result(folder: Path, block: str) -> Path:
    return folder / _RESULTS / f"{digest_of(block)[:16]}.json"


def run_blocks(
    function: str, folder: Path, blocks: Sequence[str], distribution: Distribution
) -> None:
    """Run `module:name` on the folder and each block, in tasks, and wait; or raise ExecutorError.

    The function must write a block's outputs whole or not at all, and skip existing ones. On a
    cluster, all machines share the folder. After an error, call it again without the finished
    blocks. Each call has its own folder of logs, `tasks/0001`, ….
    """
    if not blocks:
        return
    folder = folder.resolve()
    parent = folder / "tasks"
    parent.mkdir(parents=True, exist_ok=True)
    taken = [int(path.name) for path in parent.iterdir() if path.name.isdecimal()]
    logs, tasks = parent / f"{max(taken, default=0) + 1:04}", min(distribution.tasks, len(blocks))
    for name in ("done", "ended"):  # blocks, and tasks
        (logs / name).mkdir(parents=True)
    plan = {
        "function": function,
        "folder": str(folder),
        "blocks": list(blocks),
        "tasks": tasks,
        "cpus": distribution.cpus,
        "working_folder": str(Path.cwd()),
    }
    write_json(logs / "plan.json", plan)
    run = pkgutil.resolve_name(EXECUTORS[distribution.executor])
    with _progress(logs / "done", len(blocks)):
        failures = run(logs, tasks, distribution)
    if failures:
        lines = [f"  task {task}: {failures[task]}" for task in sorted(failures)]
        if more := len(lines) - _FAILURES_SHOWN:
            lines[_FAILURES_SHOWN:] = [f"  and {more} more"] * (more > 0)
        listed = "\n".join(lines)
        raise ExecutorError(
            f"{len(failures)} of {tasks} tasks failed:\n{listed}\n"
            f"Their logs are in {logs}. Models' answers are kept; give the same command again."
        )


@contextlib.contextmanager
def _progress(done: Path, total: int) -> Iterator[None]:
    ended = Event()
    with tqdm(total=total, desc="blocks", unit="block") as bar:

        def follow() -> None:
            last_look = False
            while not last_look:
                last_look = ended.wait(1.0)
                if more := sum(1 for _ in done.iterdir()) - bar.n:
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
