"""The plan of a call: units of work, the tasks that share them, and the resources of a task.

Imports nothing heavy: the command line and every worker read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, Self

from merge_dataset.files import read_json, write_json

Executor = Literal["local", "ray", "slurm"]


class ExecutorError(RuntimeError):
    """Tasks failed, or the executor that was asked for is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources of a task; each executor ignores those that do not apply to it."""

    cpus: int = 1
    """Cores, and threads unless OMP_NUM_THREADS says otherwise."""
    memory_gb: int | None = None
    """Ray, Slurm: by default what the cluster gives."""
    gpus: int = 0
    time: str | None = None
    """Slurm: limit per task, as `2:00:00` or `1-12:00:00`."""
    partition: str | None = None
    """Slurm."""
    sbatch: Mapping[str, str] = field(default_factory=dict)
    """Slurm: further options of sbatch, without their dashes: `{"gres": "gpu:a100:1"}`."""
    setup: str = ""
    """Slurm: shell commands before a task, such as `module load cuda`."""
    address: str | None = None
    """Ray: address of the cluster; by default RAY_ADDRESS, or the cluster on this machine."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, value, least in (
            ("cpus", self.cpus, 1),
            ("memory_gb", self.memory_gb, 1),
            ("gpus", self.gpus, 0),
        ):
            if value is not None and value < least:
                raise ValueError(f"{name}: expected at least {least}, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The units of a call, the function that runs one, and how many tasks share them."""

    function: str
    """`module:name`, called as `name(folder, unit)`."""
    folder: str
    units: tuple[str, ...]
    tasks: int
    cpus: int
    """Threads that a task may use."""

    @classmethod
    def read(cls, logs: Path) -> Self:
        """Read the plan that `write` left in a folder of logs."""
        values = read_json(logs / "plan.json")
        return cls(**values | {"units": tuple(values["units"])})

    def write(self, logs: Path) -> None:
        """Write the plan where every worker finds it."""
        (logs / "done").mkdir()
        write_json(logs / "plan.json", asdict(self))

    def share(self, task: int) -> dict[int, str]:
        """Map numbers to units for the share of a task: unit i goes to task i modulo `tasks`.

        >>> Plan(function="m:f", folder="x", units=("a", "b", "c"), tasks=2, cpus=1).share(0)
        {0: 'a', 2: 'c'}
        """
        return dict(list(enumerate(self.units))[task :: self.tasks])
