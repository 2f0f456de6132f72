"""Fixtures that the executors' tests share."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def workers_can_import_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting `pythonpath` of pytest does not reach other processes."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS.parent), str(TESTS)]))


@pytest.fixture
def ray_folder() -> Iterator[str]:
    """For Ray's own files; the path of a socket may have a hundred characters."""
    folder = tempfile.mkdtemp(prefix="ray-")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
