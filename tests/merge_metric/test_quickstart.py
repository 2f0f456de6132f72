"""The notebook `merge_metric/quickstart.ipynb`: its outputs are those of a new run."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "merge_metric" / "quickstart.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    result = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [
        item | {"source": "".join(item["source"])} for item in result if item["cell_type"] == kind
    ]


def test_links_and_extras_are_there() -> None:
    links = re.findall(r"\]\(([^)]+)\)", "\n".join(cell["source"] for cell in cells("markdown")))
    assert len(links) > 3
    for link in links:
        assert (NOTEBOOK.parent / link).is_file(), link
    (extras,) = {
        tuple(result.split(","))
        for cell in cells("code")
        for result in re.findall(r"pip install [^[\n]*\[(.*?)\]", cell["source"])
    }
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(extras) <= set(pyproject["project"]["optional-dependencies"])


def test_outputs_are_kept_without_this_machine() -> None:
    install, *others = cells("code")
    assert install["metadata"]["tags"] == ["skip-execution"]
    assert [item["source"].splitlines()[0] for item in others if not item["outputs"]] == []
    kinds = {output["output_type"] for item in others for output in item["outputs"]}
    assert kinds == {"stream", "execute_result"}
    text = json.dumps([item["outputs"] for item in others])
    assert not re.search(r"/(root|tmp|home|work|Users)/|stderr", text)
    assert text.count('"image/png"') == 1
    assert len(NOTEBOOK.read_bytes()) < 200_000


@pytest.mark.slow
def test_it_runs_and_shows_what_is_kept(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    from helpers.notebook import run_notebook, texts

    kept = nbformat.read(NOTEBOOK, as_version=4)
    shown = texts(run_notebook(tmp_path))
    assert shown == texts(kept)
    assert "image/png" in shown
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "bert-tiny-nli.parquet").is_file()
