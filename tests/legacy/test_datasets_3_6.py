import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.format_run import READING, write_format_run
from helpers.hub.publishing import desk_at_a_hub
from helpers.paraphrase_run import write_paraphrase_run
from helpers.processes import output_of, python_of

from generation import Config, generate
from merge_dataset.export import export_dataset
from merge_dataset.layout import split_files

pytestmark = pytest.mark.legacy
READER = Path(__file__).with_name("read_rows.py")


@pytest.fixture(scope="module")
def legacy() -> str:
    return python_of("MERGE_NLI_LEGACY_PYTHON")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("legacy")
    run = generate(Config.from_recipe("demo", run=str(base / "run"), limit=24))
    export_dataset(run.path, base / "merge-nli")
    export_dataset(write_paraphrase_run(base / "paraphrases", "anli-r1"), base / "merge-nli")
    export_dataset(write_format_run(base / "reading", READING, source="snli"), base / "merge-nli")
    return base / "merge-nli"


def rows(python: str, folder: Path, way: str) -> dict[str, object]:
    return json.loads(output_of(python, READER, folder, way))


@pytest.mark.parametrize("way", ["folder", "script"])
def test_rows_agree_with_the_newest_datasets(folder: Path, way: str, legacy: str) -> None:
    new = rows(sys.executable, folder, "folder")
    assert {"demo", "demo_nouns", "anli-r1_paraphrases", "snli_nouns"} <= new.keys()
    assert rows(legacy, folder, way) == new


NAME = "somebody/merge-nli"
CODE = f"""
import datasets, json, sys
loaded = datasets.load_dataset("{NAME}", "demo_nouns", **json.loads(sys.argv[1]))
print(json.dumps({{split: rows.to_list() for split, rows in loaded.items()}}))
"""


def test_script_and_tag_load(tmp_path: Path, legacy: str) -> None:
    run = generate(Config.from_recipe("demo", run=str(tmp_path / "run"), limit=24))
    folder = tmp_path / "merge-nli"
    export_dataset(run.path, folder)
    expected = {
        split: [row for file in files for row in pq.read_table(folder / file).to_pylist()]
        for split, files in split_files(folder, "demo_nouns").items()
    }
    assert len(expected["variants"]) > 100
    with desk_at_a_hub() as desk:
        desk.good("dataset", folder, NAME, "--yes")

        def load(**options: Any) -> Any:
            there = desk.hub.environment(HF_HOME=tmp_path / options["revision"])
            asked = json.dumps(options)
            return json.loads(output_of(legacy, "-c", CODE, asked, env=there, cwd=run.path))

        assert load(revision="script", trust_remote_code=True) == expected
        assert load(revision="v1.0.0") == expected
