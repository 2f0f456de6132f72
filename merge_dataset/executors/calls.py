"""Calls of units of work by an executor of `plan.EXECUTORS`, with results; parallel blocks.

Each run has its own folder, `tasks/0001`, …, with datatrove's logs and completion markers, so no
marker outlives its plan. A command needs a plan, names of units, and a function that does a unit:

    @keeps_result
    def count_unit(folder: Path, unit: str) -> int:
        return len(read_table(plan_of(folder)["files"][unit]))

    counts = call_tasks("module:count_unit", folder, units, distribution, {"files": …}).all()
"""

import contextlib
import functools
import importlib.util
import pkgutil
import shutil
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from merge_dataset.executors.plan import EXECUTORS, Distribution, ExecutorError, Plan
from merge_dataset.files import atomic, digest_of, read_json, write_json
from merge_dataset.part_store import append_record, is_sound, read_records, write_part

_PLAN: Final = "call.json"
_RESULTS: Final = "results"
_TABLES: Final = "tables"

_PROGRESS_SECONDS: Final = 1.0
_FAILURES_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class UnitResults:
    """Results of the units that are done."""

    records: dict[str, Any]
    error: ExecutorError | None

    def all(self) -> list[Any]:
        """Return the results of all units in order; raise `ExecutorError` if some failed."""
        if self.error is not None:
            raise self.error
        return list(self.records.values())


def call_tasks(
    function: str,
    folder: Path,
    units: Sequence[str],
    distribution: Distribution,
    plan: Mapping[str, Any],
) -> UnitResults:
    """Run in tasks the units that have no result for this plan; the caller removes the folder."""
    path = folder / _PLAN
    if not path.is_file() or digest_of(read_json(path)) != digest_of(plan):
        shutil.rmtree(folder / _RESULTS, ignore_errors=True)
        write_json(path, plan)
    there, error = set(_results(folder, units)), None
    missing = [unit for unit in units if unit not in there]
    forget(folder, missing)  # damaged ones
    try:
        run_units(function, folder, missing, distribution)
    except ExecutorError as failed:
        error = failed
    found = _results(folder, units)
    if error is None and (lost := [unit for unit in units if unit not in found]):
        error = ExecutorError(
            f"{folder}: expected the result of {lost[0]}, found none, or a damaged one; give the "
            "same command again, and it is made again"
        )
    return UnitResults(found, error)


def keeps_result(function: Callable[[Path, str], Any]) -> Callable[[Path, str], None]:
    """Decorate a function that does a unit, so that it stores its JSON-able return value."""

    @functools.wraps(function)
    def do(folder: Path, unit: str) -> None:
        result = function(folder, unit)
        with atomic(_result(folder, unit)) as temporary, temporary.open("wb") as file:
            append_record(file, result)

    return do


def plan_of(folder: Path) -> Any:
    """Read the plan of a call."""
    return read_json(folder / _PLAN)


def forget(folder: Path, units: Iterable[str]) -> None:
    """Delete the results of units, so that the same call does them again."""
    for unit in units:
        _result(folder, unit).unlink(missing_ok=True)


def write_unit_table(folder: Path, name: str, table: pa.Table) -> str:
    """Write a table that a unit made; return its file name, which the unit returns, too."""
    return write_part(folder / _TABLES, name, table).name


def read_unit_tables(folder: Path, unit: str, names: Sequence[str]) -> list[pa.Table]:
    """Read the tables whose file names a unit returned."""
    paths = [folder / _TABLES / name for name in names]
    if damaged := [path for path in paths if not path.is_file() or not is_sound(path)]:
        forget(folder, [unit])
        raise ValueError(
            f"{damaged[0]}: expected it as its task wrote it, got other contents or none; give "
            "the same command again, and it is made again"
        )
    return [pq.ParquetFile(path).read() for path in paths]


def _results(folder: Path, units: Iterable[str]) -> dict[str, Any]:
    """Read the results of the units that have one."""
    return {unit: record for unit in units for record in read_records(_result(folder, unit))}


def _result(folder: Path, unit: str) -> Path:
    """Return the path of a unit's result, a list of one record."""
    return folder / _RESULTS / digest_of(unit)[:16]


# --- Running them ---


def run_units(
    unit_function: str, folder: Path, units: Sequence[str], distribution: Distribution
) -> None:
    """Run `module:name` on the folder and each unit, in tasks, and wait; or raise ExecutorError.

    The function must write a unit's outputs whole or not at all, and skip existing ones. On a
    cluster, all machines share the folder. After an error, call it again without the finished
    units.
    """
    if not units:
        return
    entry = EXECUTORS[distribution.executor]
    for library in entry.needs:
        if not importlib.util.find_spec(library):
            raise ExecutorError(
                f"executor {distribution.executor}: expected {library}, found none; run: pip "
                "install 'merge-nli[distributed]'"
            )
    folder = folder.resolve()
    plan = Plan(
        function=unit_function,
        folder=str(folder),
        units=tuple(units),
        tasks=min(distribution.tasks, len(units)),
        cpus=distribution.resources.cpus,
        working_folder=str(Path.cwd()),
    )
    parent = folder / "tasks"
    parent.mkdir(parents=True, exist_ok=True)
    taken = [int(path.name) for path in parent.iterdir() if path.name.isdecimal()]
    logs = parent / f"{max(taken, default=0) + 1:04}"
    (logs / "done").mkdir(parents=True)
    write_json(logs / "plan.json", asdict(plan))
    executor = pkgutil.resolve_name(entry.path)(distribution.workers, distribution.resources)
    with _progress(logs / "done", len(units)):
        failures: dict[int, str] = executor.run(logs, plan.tasks)
    if failures:
        shown = [f"  task {task}: {failures[task]}" for task in sorted(failures)[:_FAILURES_SHOWN]]
        if len(failures) > len(shown):
            shown.append(f"  and {len(failures) - len(shown)} more")
        listed = "\n".join(shown)
        raise ExecutorError(
            f"{len(failures)} of {plan.tasks} tasks failed:\n{listed}\n"
            f"Their logs are in {logs}. What was finished is kept; the same command does the rest."
        )


@contextlib.contextmanager
def _progress(done: Path, total: int) -> Iterator[None]:
    """Show a progress bar over the units done on any machine."""
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
