"""Where and in how many tasks work is done, and what a task gets; no heavy imports."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar

from merge_dataset.settings import Value, check_ranges, parse_pairs, setting

BlockT = TypeVar("BlockT")

log = logging.getLogger(__name__)

CLUSTER: Final = "Many processes, many machines"
COMMANDS: Final = "tasks"
"""Name, in settings, of all commands that deal their work to tasks."""


class ExecutorError(RuntimeError):
    """Tasks failed, or the requested executor is not available."""


def task_setting(default: Value, help: str, **declared: Any) -> Value:
    """Declare a field that is an option of all commands with tasks."""
    return setting(default, help, panel=CLUSTER, **{"commands": COMMANDS, **declared})


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources of a task; `Distribution` checks which executors support which."""

    cpus: int = task_setting(1, "CPU cores of a task.", option="--cpus-per-task", minimum=1)
    """Number of cores, and of threads unless OMP_NUM_THREADS is set."""
    gpus: int = task_setting(0, "GPUs of a task.", option="--gpus-per-task", minimum=0)
    memory_gb: int | None = task_setting(None, "Memory of a task (ray, slurm).", minimum=1)
    """Memory in GB; by default the cluster's default."""
    time: str | None = task_setting(None, "Time limit of a task, such as 2:00:00 (slurm).")
    partition: str | None = task_setting(None, "Partition (slurm).")
    sbatch: Mapping[str, str] = task_setting(
        {},
        "Other options of sbatch, as KEY=VALUE; may be repeated.",
        parse=partial(parse_pairs, form="KEY=VALUE"),
        repeated=True,
    )
    """Further options of sbatch, without dashes: `{"gres": "gpu:a100:1"}`."""
    setup: str = task_setting("", "Commands before a task, such as 'module load cuda' (slurm).")
    address: str | None = task_setting(
        None, "Address of the Ray cluster; by default RAY_ADDRESS.", option="--ray-address"
    )
    """Address of a Ray cluster; without it and RAY_ADDRESS, the cluster on this machine."""

    def __post_init__(self) -> None:
        """Raise ValueError for numbers out of range."""
        check_ranges(self)


class Executor(NamedTuple):
    """An executor, whose function is not imported before it is needed."""

    path: str
    """`module:function`, called with the folder of the plan and of logs, the number of tasks, how
    many run at a time, and the resources of each; it returns the tasks that failed, and why."""
    needs: str = ""
    """The library that it takes."""
    options: tuple[str, ...] = ()
    """Names of resources that not every executor has."""
    is_here: bool = False
    """Whether its tasks run on this machine."""


EXECUTORS: Final[Mapping[str, Executor]] = {
    "local": Executor("merge_dataset.executors.worker:run_on_this_machine", is_here=True),
    "ray": Executor("merge_dataset.executors.clusters:run_on_ray", "ray", ("address",)),
    "slurm": Executor(
        "merge_dataset.executors.clusters:run_on_slurm",
        options=("time", "partition", "sbatch", "setup"),
    ),
}
"""Executors by name; to add one, write a function and an entry here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Options, beside `Resources`, of commands whose work can be dealt to tasks."""

    executor: Literal[*EXECUTORS] | None = task_setting(  # type: ignore[valid-type]
        None, "Where tasks share the work; by default one process does it."
    )
    tasks: int | None = task_setting(
        None, "How many tasks; by default as many as workers.", minimum=1
    )
    workers: int = task_setting(1, "How many tasks at a time.", commands="workers", minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Where and in how many tasks work is done."""

    executor: str
    """Name in `EXECUTORS`: local processes, a running Ray cluster, or Slurm through sbatch."""
    tasks: int = 1
    """Number of tasks that share the work; a task does its blocks one by one."""
    workers: int = 1
    """Number of tasks that run at a time."""
    resources: Resources = field(default_factory=Resources)

    def __post_init__(self) -> None:
        """Raise ValueError for a resource that only other executors have."""
        own = EXECUTORS[self.executor].options
        for executor, entry in EXECUTORS.items():
            for name in (option for option in entry.options if option not in own):
                if getattr(self.resources, name) != getattr(Resources(), name):
                    raise ValueError(
                        f"{name}: expected with the executor {executor}, got it with "
                        f"{self.executor}"
                    )

    def without_gpus(self) -> Self:
        """Return the same distribution without GPUs, for work that does not use them."""
        if self.resources.gpus:
            log.info("this step has no use for GPUs, so its tasks get none")
        return replace(self, resources=replace(self.resources, gpus=0))


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
