"""Tagging proposals batch by batch, in this process or in several."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

from generation.config import Config
from generation.tagging import Substitution, Tagger
from generation.validation import Proposal

Tags = dict[tuple[int, str], tuple[str, ...] | None]
"""(side, candidate) → its tags in context, or None; see `Tagger.tags_after`."""

_tagger: Tagger | None = None
"""A worker process's own tagger; never set in the main process."""


def tag_in_order(
    batches: Iterable[Sequence[Proposal]], tagger: Tagger, config: Config
) -> Iterator[tuple[Sequence[Proposal], list[Tags]]]:
    """Each batch with the tags of its proposals, in the order of the batches.

    Batches are the same however many workers there are, so the outcome is too. Without
    the class filter nothing is tagged.

    Args:
        batches: Proposals; read as they are needed.
        tagger: Tags in this process where `config.workers` is 1.
        config: `workers`, `class_filter` and the name of the tagger.
    """
    if not config.class_filter:
        for batch in batches:
            yield batch, [{} for _ in batch]
    elif config.workers == 1:
        yield from ((batch, _tag(tagger, _substitutions(batch))) for batch in batches)
    else:
        yield from _tag_in_processes(batches, config)


def _tag_in_processes(
    batches: Iterable[Sequence[Proposal]], config: Config
) -> Iterator[tuple[Sequence[Proposal], list[Tags]]]:
    # Forking a process that runs BLAS or torch threads can hang; spawning cannot.
    pool = ProcessPoolExecutor(
        config.workers, get_context("spawn"), initializer=_start, initargs=(config.tagger,)
    )
    waiting: deque[tuple[Sequence[Proposal], Future[list[Tags]]]] = deque()
    with pool:
        for batch in batches:
            waiting.append((batch, pool.submit(_tag_here, _substitutions(batch))))
            if len(waiting) > 2 * config.workers:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()


_Keyed = list[tuple[int, str, Substitution]]


def _substitutions(batch: Sequence[Proposal]) -> list[_Keyed]:
    return [proposal.substitutions() for proposal in batch]


def _tag(tagger: Tagger, batch: list[_Keyed]) -> list[Tags]:
    tags = iter(tagger.tags_after([substitution for group in batch for *_, substitution in group]))
    return [{(side, word): next(tags) for side, word, _ in group} for group in batch]


def _start(tagger: str | None) -> None:
    from threadpoolctl import threadpool_limits

    global _tagger
    threadpool_limits(1)
    _tagger = Tagger.load(tagger)


def _tag_here(batch: list[_Keyed]) -> list[Tags]:
    assert _tagger is not None
    return _tag(_tagger, batch)
