"""Executors: where and in how many tasks work is done, and which blocks are a task's.

A *block* is done as a whole; a *task* does its share of the blocks in a process of its own.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, Self, TypeVar

from merge_dataset.settings import Value, check_settings, parse_pairs, setting

BlockT = TypeVar("BlockT")

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

_OF_ONE: Final = {
    "address": "ray",
    **dict.fromkeys(("time", "partition", "sbatch", "setup"), "slurm"),
}
"""Setting of `Distribution` → the one executor that has it."""


class ExecutorError(RuntimeError):
    """Tasks failed, or the requested executor is not available."""

    results: Mapping[str, Any] = {}
    """Block → result, of those that did not fail: see `run_blocks`."""


def _setting(default: Value, help: str, **declared: Any) -> Value:
    panel = "Many processes, many machines"
    return setting(default, help, panel=panel, **{"commands": COMMANDS, **declared})


_UNSET: Final[Any] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Where and in how many tasks work is done, and what a task gets."""

    executor: Literal[*EXECUTORS] = _setting(  # type: ignore[valid-type]
        _UNSET, "Where tasks share the work; by default one process does it."
    )
    tasks: int = _setting(_UNSET, "How many tasks; by default as many as workers.", minimum=1)
    workers: int = _setting(1, "How many tasks at a time.", commands="workers", minimum=1)
    cpus: int = _setting(1, "CPU cores of a task.", option="--cpus-per-task", minimum=1)
    """Number of cores, and of threads unless OMP_NUM_THREADS is set."""
    gpus: int = _setting(0, "GPUs of a task.", option="--gpus-per-task", minimum=0)
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
        for name, executor in _OF_ONE.items():
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
