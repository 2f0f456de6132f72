"""Shared fixtures: everything runs offline, in an empty home of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"
"""Real data and models; absent in most checkouts."""

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_EVALUATE_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "real" in item.keywords and not SHARED.is_dir():
            item.add_marker(pytest.mark.skip(reason=f"needs {SHARED}"))


@pytest.fixture
def shared_data() -> Path:
    """The folder of real SNLI and MultiNLI files."""
    return SHARED / "data"


@pytest.fixture
def shared_models() -> Path:
    """The folder of small real models."""
    return SHARED / "models"
