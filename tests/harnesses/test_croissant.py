import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.harness import run
from helpers.processes import python_of
from helpers.subsampled_folder import write_folder

from merge_dataset.layout import split_files
from merge_metric.exports.croissant import export_croissant
from merge_metric.exports.registry import Exported

pytestmark = pytest.mark.harness

READER = Path(__file__).with_name("read_croissant.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_folder(tmp_path / "merge-nli")
    export_croissant(Exported(folder=folder), version="1.0.0", published=datetime(2026, 1, 31))
    return folder


def records(folder: Path, *names: str) -> Any:
    command = [python_of("MERGE_NLI_LM_EVAL_PYTHON"), str(READER)]
    return json.loads(run([*command, str(folder / "croissant.json"), *names], folder))


def test_records_are_the_rows(folder: Path) -> None:
    names = ["snli/seeds", "snli/variants", "snli_verbs/seeds", "snli_verbs/variants"]
    result = records(folder, *names, "labels")
    for name in names:
        config, _, split = name.partition("/")
        files = split_files(folder, config)[split]
        rows = [row for file in files for row in pq.ParquetFile(folder / file).read().to_pylist()]
        assert result[name] == rows
    assert len(result["snli/variants"]) == 72
    assert result["labels"] == [
        {"code": 0, "name": "entailment"},
        {"code": 1, "name": "neutral"},
        {"code": 2, "name": "contradiction"},
    ]


def test_other_content_is_noticed(folder: Path) -> None:
    path = folder / "snli/verbs/variants.parquet"
    pq.write_table(pq.ParquetFile(path).read().slice(1), path)
    with pytest.raises(AssertionError, match=r"[Hh]ash"):
        records(folder, "snli_verbs/variants")
