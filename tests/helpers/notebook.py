"""Run the quick start's notebook and keep its outputs: `cd tests && python -m helpers.notebook`."""

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient

NOTEBOOK: Final = Path(__file__).resolve().parents[2] / "merge_metric" / "quickstart.ipynb"
SKIPPED: Final = "skip-execution"


def run_notebook(folder: Path) -> Any:
    """Run the notebook in a folder, offline, with an empty cache; raise if a cell fails."""
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code" and SKIPPED not in cell.metadata.get("tags", ()):
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        skip_cells_with_tag=SKIPPED,
        resources={"metadata": {"path": str(folder)}},
    )
    paths = (str(Path(sys.executable).parent), os.environ["PATH"])
    ours = {"HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    client.execute(env={**os.environ, **ours, "PATH": os.pathsep.join(paths)})
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "text" in output:  # output of a command
                output.text = output.text.replace(str(folder), "this folder")
    return notebook


def keep(notebook: Any) -> None:
    """Write the notebook with its outputs, without the parts that differ from run to run."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.write(notebook, NOTEBOOK)


def texts(notebook: Any) -> list[str]:
    """Outputs of each code cell: streams, HTML if there is any, kinds of pictures."""
    result = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        parts = []
        for output in cell.outputs:
            if output.get("name") == "stderr":
                continue  # progress and notes
            data = output.get("data", {})
            pictures = [kind for kind in data if kind.startswith("image/")]
            shown = output.get("text") or data.get("text/html") or data.get("text/plain", "")
            parts.append(", ".join(pictures) or shown)
        result.append(re.sub(r"0x[0-9a-f]+", "0x…", "".join(parts)))
    return result


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        keep(run_notebook(Path(place)))
    print(f"{NOTEBOOK}: run")
