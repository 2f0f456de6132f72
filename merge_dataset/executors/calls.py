"""Calls of blocks of work in tasks, with results; and blocks shared by processes of one command.

A command needs a plan, names of blocks, and a function that does a block:

    @keeps_result
    def count_block(folder: Path, block: str) -> int:
        return len(read_table(plan_of(folder)["files"][block]))

    counts = call_tasks("module:count_block", folder, blocks, distribution, {"files": …}).all()
"""

import contextlib
import functools
import importlib.util
import logging
import pkgutil
import shutil
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, TypeVar

import pyarrow as pa
from tqdm import tqdm

from merge_dataset.executors.plan import EXECUTORS, Distribution, ExecutorError
from merge_dataset.files import (
    digest_of,
    read_json,
    read_record,
    read_table,
    write_json,
    write_record,
    write_table,
)

log = logging.getLogger(__name__)

_PLAN: Final = "call.json"
_RESULTS: Final = "results"
_TABLES: Final = "tables"

_FAILURES_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class BlockResults:
    """Results of the blocks that are done."""

    records: dict[str, Any]
    error: ExecutorError | None

    def all(self) -> list[Any]:
        """Return the results of all blocks in order; raise `ExecutorError` if some failed."""
        if self.error is not None:
            raise self.error
        return list(self.records.values())


def call_tasks(
    function: str,
    folder: Path,
    blocks: Sequence[str],
    distribution: Distribution,
    plan: Mapping[str, Any],
) -> BlockResults:
    """Run blocks in tasks, all of them anew, and read the results; the caller removes the folder.

    What should not be done twice is for an `AnswerStore`.
    """
    error = None
    for name in (_RESULTS, _TABLES):
        shutil.rmtree(folder / name, ignore_errors=True)
    write_json(folder / _PLAN, plan)
    try:
        run_blocks(function, folder, blocks, distribution)
    except ExecutorError as failed:
        error = failed
    results = _results(folder, blocks)
    if error is None and (lost := [block for block in blocks if block not in results]):
        error = ExecutorError(
            f"{folder}: expected the result of {lost[0]}, found none, or a damaged one; give the "
            "same command again"
        )
    return BlockResults(results, error)


def keeps_result(function: Callable[[Path, str], Any]) -> Callable[[Path, str], None]:
    """Decorate a function that does a block, so that it stores its JSON-able return value."""

    @functools.wraps(function)
    def do(folder: Path, block: str) -> None:
        write_record(_result(folder, block), {"result": function(folder, block)})

    return do


def plan_of(folder: Path) -> Any:
    """Read the plan of a call."""
    return read_json(folder / _PLAN)


def write_block_table(folder: Path, name: str, table: pa.Table) -> str:
    """Write a table that a block made; return its file name, which the block returns, too."""
    write_table(folder / _TABLES / f"{name}.parquet", table)
    return f"{name}.parquet"


def read_block_tables(folder: Path, block: str, names: Sequence[str]) -> list[pa.Table]:
    """Read the tables whose file names a block returned."""
    try:
        return [read_table(folder / _TABLES / name) for name in names]
    except (ValueError, FileNotFoundError) as error:
        raise ValueError(
            f"{folder}: expected the tables of {block} as its task wrote them, got other contents "
            "or none; give the same command again"
        ) from error


def _results(folder: Path, blocks: Iterable[str]) -> dict[str, Any]:
    results = {}
    for block in blocks:
        try:
            results[block] = read_record(_result(folder, block), "result")["result"]
        except FileNotFoundError:
            pass
        except ValueError:
            log.warning("%s: damaged result of %s", folder, block)
    return results


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
    executor = EXECUTORS[distribution.executor]
    if executor.needs and not importlib.util.find_spec(executor.needs):
        raise ExecutorError(
            f"executor {distribution.executor}: expected {executor.needs}, found none; run: pip "
            "install 'merge-nli[distributed]'"
        )
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
        "cpus": distribution.resources.cpus,
        "working_folder": str(Path.cwd()),
    }
    write_json(logs / "plan.json", plan)
    run = pkgutil.resolve_name(executor.path)
    with _progress(logs / "done", len(blocks)):
        failures = run(logs, tasks, distribution.workers, distribution.resources)
    if failures:
        shown = [f"  task {task}: {failures[task]}" for task in sorted(failures)[:_FAILURES_SHOWN]]
        if len(failures) > len(shown):
            shown.append(f"  and {len(failures) - len(shown)} more")
        listed = "\n".join(shown)
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
