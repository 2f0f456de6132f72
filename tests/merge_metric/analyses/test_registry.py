"""An analysis is added in one place: CONTRIBUTING.md's example, in a separate process."""

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.analysed import answered, random_dataset, write_answers, write_dataset

ROOT = Path(__file__).parents[3]

MODULE = """
from merge_metric.analyses.measures import identity, measures, titled
from merge_metric.tables.plots import bar_panels

def asked(request, *, top=None):
    rows = [identity(frame) | measures(frame.counts) for frame in request.frames()]
    return titled("asked", rows[:top])

def plot_asked(table):
    return bar_panels(table, {"seeds": "seed_accuracy"}, "accuracy, %")
"""

PROGRAM = """
import json, sys
from typer.testing import CliRunner

{example}

from generation.cli import app

runner = CliRunner()
results = [runner.invoke(app, arguments) for arguments in json.load(sys.stdin)]
print(json.dumps([[result.exit_code, result.stdout, result.stderr] for result in results]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset, the predictions of two models, and the module of the example."""
    folder = tmp_path_factory.mktemp("registry")
    rng = random.Random(3)
    rows = answered(random_dataset(rng, seeds=12), rng, 0.5)
    write_dataset(folder / "merge-nli", rows)
    for name in ("a", "b"):
        write_answers(folder / f"{name}.parquet", rows)
    (folder / "my_asked.py").write_text(MODULE)
    return folder


@pytest.mark.slow
def test_the_example_is_an_analysis_like_all_others(folder: Path) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(\[analyses\..*?)```", page, flags=re.DOTALL)
    example = (
        "import my_asked, tomllib\nfrom merge_metric.analyses import registry\n"
        "sys.modules['merge_metric.analyses.asked'] = my_asked\n"
        f"registry.ANALYSES.update(registry.read_catalogue(tomllib.loads({example!r})))\n"
    )
    files = ["a.parquet", "b.parquet", "--dataset", "merge-nli"]
    commands = [
        ["analyse", "--help"],
        ["analyse", "asked", *files],
        ["analyse", "asked", *files, "--format", "json", "--top", "1", "--out", "seeds.svg"],
        ["analyse", "asked", *files, "--bins", "3"],
        ["analyse", "askd", *files],
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(example=example)], cwd=folder,
        input=json.dumps(commands),
        env={"PYTHONPATH": f"{ROOT}:{folder}", "COLUMNS": "120", "PATH": ""}, capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown, text, as_json, refused, unknown = json.loads(done.stdout.splitlines()[-1])
    assert "asked how many seeds a model was asked about (figure 0)" in " ".join(shown[1].split())
    assert "hardest, asked: number of seeds." in " ".join(shown[1].replace("│", " ").split())
    assert text[:2] == [0, text[1]], text[2]
    assert text[1].splitlines()[2].split() == ["source", "model", "seeds", "S", "var.acc", "SV@90"]
    assert [row["model"] for row in json.loads(as_json[1])["rows"]] == ["a"]
    assert (folder / "seeds.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert refused[0] == 2
    assert (
        "--bins: expected with signals, calibration, got it with asked, which takes --top"
        in refused[2]
    )
    assert "expected the name of an analysis, got 'askd'; did you mean 'asked'?" in unknown[2]
