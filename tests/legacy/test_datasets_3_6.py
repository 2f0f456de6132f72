"""The dataset under datasets 3.6, which still runs loading scripts; `make test-legacy`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.format_run import READING, write_format_run
from helpers.paraphrase_run import write_paraphrase_run

from generation import Config, generate
from merge_dataset.export import export_dataset

pytestmark = pytest.mark.legacy
READER = Path(__file__).with_name("read_rows.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of the bundled problems, paraphrases, and problems that are not of NLI."""
    base = tmp_path_factory.mktemp("legacy")
    run = generate(Config.from_recipe("demo", run=str(base / "run"), limit=24))
    export_dataset(run.path, base / "merge-nli")
    export_dataset(write_paraphrase_run(base / "paraphrases", "anli-r1"), base / "merge-nli")
    export_dataset(write_format_run(base / "reading", READING, source="snli"), base / "merge-nli")
    return base / "merge-nli"


def rows(python: str, folder: Path, way: str) -> dict[str, object]:
    """Rows that an interpreter reads, with an empty cache of its own."""
    command = [python, str(READER), str(folder), way]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("way", ["folder", "script"])
def test_rows_agree_with_the_newest_datasets(folder: Path, way: str) -> None:
    """Every configuration, row by row, from the folder and by the script's path."""
    legacy = os.environ.get("MERGE_NLI_LEGACY_PYTHON")
    if legacy is None:
        pytest.skip("run: make test-legacy")
    new = rows(sys.executable, folder, "folder")
    assert {"demo", "demo_nouns", "anli-r1_paraphrases", "snli_nouns"} <= new.keys()
    assert rows(legacy, folder, way) == new
