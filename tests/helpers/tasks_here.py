import pkgutil
from pathlib import Path
from typing import Any, cast

import pytest

from merge_dataset.executors import EXECUTORS, Distribution, worker
from merge_dataset.files import read_json, write_json


class TasksHere:
    """In place of the local executor: does tasks in this process, and keeps what was asked for."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        patch.setitem(cast(dict[str, str], EXECUTORS), "local", f"{__name__}:here.run")
        patch.setattr(f"{__name__}.here", self, raising=False)
        self.blocks: list[str] = []
        self.distribution: Distribution | None = None
        self.failing: tuple[str, ...] = ()
        """Blocks that fail in later calls."""
        self._function = ""

    def run(self, logs: Path, tasks: int, distribution: Distribution) -> dict[int, str]:
        plan = read_json(logs / "plan.json")
        self.blocks, self.distribution = plan["blocks"], distribution
        self._function = plan["function"]
        write_json(logs / "plan.json", plan | {"function": f"{__name__}:here.do"})
        failures = {}
        for task in range(tasks):
            try:
                worker.main(logs, task)
            except SystemExit as failed:
                failures[task] = str(failed)
        return failures

    def do(self, folder: Path, block: str) -> Any:
        if block in self.failing:
            raise OSError("no room")
        return pkgutil.resolve_name(self._function)(folder, block)
