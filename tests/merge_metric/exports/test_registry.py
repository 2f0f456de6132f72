"""An export is one function that registers itself, as CONTRIBUTING.md shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pytest
from typer.testing import CliRunner

from generation.cli import app as merge_nli
from merge_dataset.commands.command_line import option
from merge_metric.exports.registry import FILES, Exported, Folder, Out, app, export

ROOT = Path(__file__).parents[3]


@pytest.fixture
def names() -> Iterator[str]:
    """Register an export of configuration names, and take it back."""

    @export("names", panel=FILES)
    def write_names(
        folder: Folder = Path("merge-nli"),
        out: Out = Path("names.txt"),
        upper: Annotated[bool, option("In capitals.", "--upper")] = False,
    ) -> Exported:
        """Names of the configurations, one per line."""
        if not folder.is_dir():
            raise ValueError(f"{folder}: expected a folder, found none")
        text = "\n".join(sorted(path.name for path in folder.iterdir()))
        out.write_text(text.upper() if upper else text, encoding="utf-8")
        return Exported(out, {"bytes": out.stat().st_size}, f"{out}: written", f"cat {out}")

    yield "names"
    app.registered_commands.pop()


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(merge_nli, ["export", *arguments], env={"COLUMNS": "100"})
    return done.exit_code, done.output


def test_an_export_is_one_function(names: str, tmp_path: Path) -> None:
    """Help, options, both formats of the result and errors come with the registration."""
    folder, out = tmp_path / "data", tmp_path / "names.txt"
    (folder / "snli").mkdir(parents=True)
    code, text = run(names, "--help")
    assert code == 0
    assert "Names of the configurations, one per line." in text
    assert re.search(r"--upper .*In capitals", text)
    assert re.search(r"--format .*How to write the result", text)
    assert run(names, str(folder), "--out", str(out), "--upper") == (
        0,
        f"{out}: written\nNext: cat {out}\n",
    )
    assert out.read_text() == "SNLI"
    code, text = run(names, str(folder), "--out", str(out), "--format", "json")
    assert json.loads(text) == {"out": str(out), "bytes": 4, "next": f"cat {out}"}
    assert run(names, "nowhere") == (2, "error: nowhere: expected a folder, found none\n")


def test_every_export_is_in_the_readme() -> None:
    """The commands that the README shows are those that are registered."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"merge-nli export ([\w-]+)", text))
    assert {command.name for command in app.registered_commands} - shown == {"csv"}
    assert "`jsonl` and `csv`" in text
