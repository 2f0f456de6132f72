"""Calls: units of work that read from a plan what to do, and say what they did.

This is all that a command needs to run as tasks: a plan, names of units, and a function that does
one of them:

    @says
    def count_unit(folder: Path, unit: str) -> int:
        return len(read_table(plan_of(folder)["files"][unit]))

    counts = call_tasks("module:count_unit", folder, units, distribution, {"files": …}).all()

What was said is kept until the call is over, so the same call again does only the other units.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from merge_dataset.executors.dispatch import run_units
from merge_dataset.executors.plan import Distribution, ExecutorError
from merge_dataset.files import digest_of, read_json, write_json

_PLAN: Final = "call.json"
_SAID: Final = "said"


@dataclass(frozen=True, slots=True)
class Said:
    """Records of the units that are done."""

    records: dict[str, Any]
    """By unit."""
    error: ExecutorError | None
    """Tasks that failed."""

    def all(self) -> list[Any]:
        """Return what all units said, in their order.

        Raises:
            ExecutorError: some failed.
        """
        if self.error is not None:
            raise self.error
        return list(self.records.values())


def call_tasks(
    function: str,
    folder: Path,
    units: Sequence[str],
    distribution: Distribution,
    plan: Mapping[str, Any],
) -> Said:
    """Have tasks do the units that have not said anything yet, and wait for the end.

    Args:
        function: `module:name` of a function under `says`.
        folder: What the call keeps; the caller removes it when it has made use of it.
        units: Their names; of several calls in one folder, different ones.
        distribution: The tasks.
        plan: What units have to know, as JSON: see `plan_of`. With another plan than before all
            units are done again.
    """
    path = folder / _PLAN
    if not path.is_file() or digest_of(read_json(path)) != digest_of(plan):
        shutil.rmtree(folder / _SAID, ignore_errors=True)
        write_json(path, plan)
    missing = [unit for unit in units if not _record(folder, unit).is_file()]
    error = None
    try:
        run_units(function, folder, missing, distribution)
    except ExecutorError as failed:
        error = failed
    done = {unit: _record(folder, unit) for unit in units}
    return Said({unit: read_json(path) for unit, path in done.items() if path.is_file()}, error)


def says(function: Callable[[Path, str], Any]) -> Callable[[Path, str], None]:
    """Write down what a function that does a unit returns, which is JSON, once it is done."""

    @functools.wraps(function)
    def do(folder: Path, unit: str) -> None:
        write_json(_record(folder, unit), function(folder, unit))

    return do


def plan_of(folder: Path) -> Any:
    """Read the plan of a call."""
    return read_json(folder / _PLAN)


def forget(folder: Path, units: Iterable[str]) -> None:
    """Forget what units said, so that the same call does them again."""
    for unit in units:
        _record(folder, unit).unlink(missing_ok=True)


def _record(folder: Path, unit: str) -> Path:
    """Name the file in which a unit says what it did."""
    return folder / _SAID / f"{digest_of(unit)[:16]}.json"
