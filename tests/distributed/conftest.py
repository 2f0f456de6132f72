"""What the executors' tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def workers_can_import_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting `pythonpath` of pytest does not reach other processes."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS.parent), str(TESTS)]))
