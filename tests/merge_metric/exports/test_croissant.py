"""The metadata name every file and column; tests/harnesses loads them in mlcroissant."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from helpers.subsampled_folder import write_folder

from merge_dataset.checks import check_dataset
from merge_metric.exports.croissant import FILE, export_croissant
from merge_metric.exports.registry import Exported


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "merge-nli")


def read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def test_version_and_date(folder: Path) -> None:
    export_croissant(Exported(folder=folder))
    assert "version" not in read(folder / FILE)
    again = Exported(folder=folder, overwrite=True)
    export_croissant(again, "1.0.0", datetime(2026, 1, 31))
    metadata = read(folder / FILE)
    assert (metadata["version"], metadata["datePublished"]) == ("1.0.0", "2026-01-31")


def test_the_folder_stays_a_good_dataset(folder: Path) -> None:
    before = check_dataset(folder)
    export_croissant(Exported(folder=folder))
    assert check_dataset(folder) == before
    card = folder / "README.md"
    card.write_text(card.read_text().replace("\nlicense:", "\nterms:"))
    with pytest.raises(ValueError, match=r"README\.md: expected a card .*, got 'license'; `merge"):
        export_croissant(Exported(folder=folder, overwrite=True))
