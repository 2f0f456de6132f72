"""Parts of a store: synced before they get their names."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from generation.part_store import sound_parts, write_part


def test_parts_are_synced_before_they_are_renamed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A crash of the machine leaves no name without the bytes."""
    synced: set[int] = set()
    fsync, replace = os.fsync, Path.replace

    def noted(file: int) -> None:
        synced.add(os.fstat(file).st_ino)
        fsync(file)

    def checked(path: Path, target: Path) -> Path:
        assert path.stat().st_ino in synced, path
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "replace", checked)
    write_part(tmp_path, "part", pa.table({"n": [1, 2]}))
    assert len(list(sound_parts(tmp_path))) == 1
