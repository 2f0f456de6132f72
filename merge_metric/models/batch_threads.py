"""Batches side by side on a CPU's threads, each computed by one thread.

Where threads share a product, its rounding depends on their number and on the number of rows. With
one thread per batch neither matters, and small products take less time.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from threading import Barrier
from typing import Final, TypeVar

import torch

_Batch = TypeVar("_Batch")
_Result = TypeVar("_Result")

_AHEAD: Final = 2
"""Batches handed out per thread, so that none waits for a longer batch before its own."""


def on_single_threads(
    compute: Callable[[_Batch], _Result], batches: Iterable[_Batch], device: str
) -> Iterator[_Result]:
    """Yield the result for each batch, in order; on a CPU torch's threads take a batch each.

    There `compute` must be thread-safe, and gets later batches before earlier results are yielded.
    """
    threads = torch.get_num_threads() if device == "cpu" else 1
    if threads == 1:
        yield from map(compute, batches)
        return
    waiting = deque[Future[_Result]]()
    try:
        for batch in batches:
            waiting.append(_pool(threads).submit(compute, batch))
            if len(waiting) >= _AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for each in waiting:
            each.cancel()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    def begin() -> None:
        torch.get_num_threads()  # the first call in a thread takes the number of the process
        torch.set_num_threads(1)

    pool, started = ThreadPoolExecutor(threads, "batches", begin), Barrier(threads + 1)
    for _ in range(threads):
        pool.submit(started.wait)
    started.wait()
    torch.set_num_threads(threads)  # also for threads that others start later
    return pool


if hasattr(os, "register_at_fork"):  # a forked process has none of the threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
