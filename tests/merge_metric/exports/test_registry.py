"""An export is one function that registers itself, as CONTRIBUTING.md shows."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.commands import refused, run
from helpers.subsampled_folder import write_folder

from merge_metric.exports import registry
from merge_metric.exports.registry import new_file

ROOT = Path(__file__).parents[3]


@pytest.fixture
def text() -> Iterator[str]:
    """Register the export of CONTRIBUTING.md, yield its text, and remove it again."""
    run("export", "--help")  # registers all others before
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(@export.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    names = {name: getattr(registry, name) for name in ("FILES", "Exported", "Out", "tell")}
    exec(code, {"export": registry.export, "new_file": new_file, "Path": Path, **names})
    yield code
    registry.app.registered_commands.pop()


def test_an_export_is_one_function(text: str, tmp_path: Path) -> None:
    folder, out = write_folder(tmp_path / "data"), tmp_path / "names.txt"
    shown = run("export", "names", "--help").stdout
    assert "Names of the configurations, one per line." in shown
    assert re.search(r"--format .*How to write the result", shown)
    done = run("export", "names", folder, "--out", out)
    assert done.stdout == f"{out}: written\nNext: cat {out}\n"
    names = out.read_text().split()
    assert names == ["snli", "snli_nouns", "snli_verbs"]
    again = str(tmp_path / "b")
    shown = run("export", "names", folder, "--out", again, "--format", "json").stdout
    assert json.loads(shown) == {"out": again, "names": names, "next": f"cat {again}"}
    assert "expected no file, found one" in refused("export", "names", folder, "--out", out)


def test_every_export_is_on_the_page() -> None:
    text = (ROOT / "merge_metric/README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"merge-nli export ([\w-]+)", text))
    assert {command.name for command in registry.app.registered_commands} - shown == {"csv"}
    assert "`jsonl` and `csv`" in text
