"""A session of annotation over the dataset made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_dataset.annotation.session import Session, open_session


@pytest.fixture
def session(dataset: Path, tmp_path: Path) -> Session:
    """All ten variants of `snli`: six nouns, three verbs, two adjectives less one."""
    return open_session(tmp_path / "study", dataset)
