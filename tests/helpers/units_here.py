import pkgutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from merge_dataset.executors.plan import Distribution, ExecutorError


class UnitsHere:
    """Runs units in this process as `calls.run_units` does, and keeps its last arguments."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr("merge_dataset.executors.calls.run_units", self.run_units)
        self.units: list[str] = []
        self.distribution: Distribution | None = None
        self.failing: tuple[str, ...] = ()
        """Units that fail in later calls."""

    def run_units(
        self, function: str, folder: Path, units: Sequence[str], distribution: Distribution
    ) -> None:
        self.units, self.distribution = list(units), distribution
        failed = []
        for number, unit in enumerate(units):
            if unit in self.failing:
                failed.append(f"task {number}: 1 of 1 units failed: {unit}: OSError: no room")
            else:
                pkgutil.resolve_name(function)(folder, unit)
        if failed:
            head = f"{len(failed)} of {len(units)} tasks failed:"
            raise ExecutorError("\n".join([head, *failed]))
