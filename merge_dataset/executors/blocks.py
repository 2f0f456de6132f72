"""Map a function over blocks of problems, in this process or in several."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

Block = TypeVar("Block")
ResultT = TypeVar("ResultT")

_work: Callable[[Any], Any] | None = None
"""The function that a worker process applies to blocks; never set in the main process."""


def map_blocks(
    blocks: Iterable[Block], open_work: Callable[[], Callable[[Block], ResultT]], *, workers: int
) -> Iterator[ResultT]:
    """Map over blocks, and yield the results in the order of the blocks.

    Blocks do not depend on the number of workers, so the results do not either.

    Args:
        blocks: Read as they are needed; picklable where there are several workers.
        open_work: Called once in each process to make the function, so that each process reads
            its files and loads its models by itself; picklable likewise.
        workers: Processes; with one, this one does it all.
    """
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
        pool.shutdown(cancel_futures=True)  # after Ctrl+C nobody wants the rest


def _start(open_work: Callable[[], Callable[[Any], Any]]) -> None:
    from threadpoolctl import threadpool_limits

    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the main process to handle
    _work = open_work()
    # Afterwards, as limits are set on the libraries that are loaded.
    threadpool_limits(1)


def _work_here(block: Any) -> Any:
    assert _work is not None
    return _work(block)
