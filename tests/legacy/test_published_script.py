"""The branch `script` of a published dataset, under datasets 3.6; `make test-legacy`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.hub.publishing import desk_at_a_hub

from generation import Config, generate
from merge_dataset.export import export_dataset
from merge_dataset.layout import split_files

pytestmark = pytest.mark.legacy

NAME = "somebody/merge-nli"
CODE = f"""
import datasets, json, sys
loaded = datasets.load_dataset("{NAME}", "demo_nouns", **json.loads(sys.argv[1]))
print(json.dumps({{split: rows.to_list() for split, rows in loaded.items()}}))
"""


def test_script_and_tag_load(tmp_path: Path) -> None:
    """From the script where scripts still run, and from the tagged data, the folder's rows."""
    legacy = os.environ.get("MERGE_NLI_LEGACY_PYTHON")
    if legacy is None:
        pytest.skip("run: make test-legacy")
    run = generate(Config.from_recipe("demo", run=str(tmp_path / "run"), limit=24))
    folder = tmp_path / "merge-nli"
    export_dataset(run.path, folder)
    expected = {
        split: [row for file in files for row in pq.read_table(folder / file).to_pylist()]
        for split, files in split_files(folder, "demo_nouns").items()
    }
    assert len(expected["variants"]) > 100
    with desk_at_a_hub() as desk:
        desk.good("dataset", "--repo", NAME, folder, "--yes")

        def load(**options: Any) -> Any:
            kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
            home = tmp_path / options["revision"]
            done = subprocess.run(
                [legacy, "-c", CODE, json.dumps(options)],
                env=kept | desk.hub.environment(None) | {"HF_HOME": str(home)},
                cwd=run.path,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        assert load(revision="script", trust_remote_code=True) == expected
        assert load(revision="v1.0.0") == expected
