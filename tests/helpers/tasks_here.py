import pkgutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from merge_dataset.executors import Distribution, ExecutorError


class TasksHere:
    """Runs blocks in this process as `calls.run_blocks` does, and keeps its last arguments."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr("merge_dataset.executors.calls.run_blocks", self.run_blocks)
        self.blocks: list[str] = []
        self.distribution: Distribution | None = None
        self.failing: tuple[str, ...] = ()
        """Blocks that fail in later calls."""

    def run_blocks(
        self, function: str, folder: Path, blocks: Sequence[str], distribution: Distribution
    ) -> None:
        self.blocks, self.distribution = list(blocks), distribution
        failed = []
        for number, block in enumerate(blocks):
            if block in self.failing:
                failed.append(f"task {number}: 1 of 1 blocks failed: {block}: OSError: no room")
            else:
                pkgutil.resolve_name(function)(folder, block)
        if failed:
            head = f"{len(failed)} of {len(blocks)} tasks failed:"
            raise ExecutorError("\n".join([head, *failed]))
