"""Executors are entries: another one needs no change elsewhere."""

from __future__ import annotations

from typing import Any, cast

import pytest

from merge_dataset.executors.plan import EXECUTORS, Distribution, ExecutorEntry, Resources
from merge_metric.models.readiness import machine_for


def test_another_executor_is_a_class_and_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is taken, its options are checked, and its machines are not taken for this one."""
    entry = ExecutorEntry("cloud:Cloud", ("datatrove",), ("partition",))
    monkeypatch.setitem(cast(dict[str, Any], EXECUTORS), "cloud", entry)
    dealt = Distribution(executor="cloud", resources=Resources(memory_gb=3))
    assert machine_for(dealt, "cpu").memory_bytes == 3 * 2**30
    with pytest.raises(ValueError, match="partition: expected with the executor slurm, got it wit"):
        Distribution(executor="cloud", resources=Resources(partition="gpu"))
