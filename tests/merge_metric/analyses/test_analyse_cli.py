"""`merge-nli analyse`: from files to tables and plots, options, errors."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.analysed import answered, random_dataset, write_answers, write_dataset
from helpers.metric_oracle import Row
from typer.testing import CliRunner, Result

from generation.cli import app
from merge_metric.analyses import ANALYSES

MAP = '[a]\nequivalent = ["bert"]\nsize = ["bert-large"]\n[b]\nequivalent = ["albert"]\nsize = []\n'


@pytest.fixture(scope="module")
def models() -> dict[str, list[Row]]:
    """Two models on 60 seeds."""
    rng = random.Random(8)
    rows = random_dataset(rng, seeds=60)
    return {"a": answered(rows, rng, 0.3), "b": answered(rows, rng, 0.6)}


@pytest.fixture(scope="module")
def folder(models: dict[str, list[Row]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two dataset folders, predictions for each, test predictions, a mapping to MLMs."""
    folder = tmp_path_factory.mktemp("analysed")
    for name in ("merge-nli", "merge-nli-union"):
        write_dataset(folder / name, models["a"])
    for name, rows in models.items():
        write_answers(folder / f"{name}.parquet", rows)
        write_answers(folder / f"{name}-union.parquet", rows, name=name)
        answers = {row.seed_id: (row.gold, row.own) for row in rows}
        answers |= {f"s:other-{n}": ("neutral", "neutral") for n in range(40)}
        table = [
            {"variant_id": seed, "seed_id": seed, "label": gold, "prediction": own}
            for seed, (gold, own) in answers.items()
        ]
        pq.write_table(pa.Table.from_pylist(table), folder / f"{name}-test.parquet")
    (folder / "mlms.toml").write_text(MAP)
    return folder


def analyse(folder: Path, name: str, *more: str) -> Result:
    """Run the command on both models; `more` may name files in braces of the folder."""
    files = [str(folder / "a.parquet"), str(folder / "b.parquet")]
    options = [text.replace("{}", str(folder)) for text in more]
    arguments = ["analyse", name, *files, *options, "--dataset", str(folder / "merge-nli")]
    return CliRunner().invoke(app, arguments)


EXTRA: dict[str, list[str]] = {
    "accuracy": ["--test", "a={}/a-test.parquet", "--test", "b={}/b-test.parquet"],
    "mlms": ["--mlm-map", "{}/mlms.toml"],
    "ablations": [
        "{}/a-union.parquet@{}/merge-nli-union",
        "b={}/b-union.parquet@{}/merge-nli-union",
    ],
    "hardest": ["--top", "5"],
    "classes": ["--n-bootstrap", "20"],
    "curves": ["--n-bootstrap", "20", "--rng-seed", "3"],
    "stability": ["--seeds", "30", "--draws", "5"],
}


SENSITIVITY = {"fooling", "sizes", "shift", "confidence", "overlap", "kinds"}
"""Analyses with a module of tests of their own, test_sensitivity_cli."""


OF_FLAGS = {"labels"}
"""Analyses of label flags, in test_doubtful_labels."""


OF_RUNS = {name for name, each in ANALYSES.items() if "run" in each.options}
"""Analyses of run folders, which have tests of their own."""


@pytest.mark.slow(but=("accuracy", "matching"))
@pytest.mark.parametrize(
    "name", [name for name in ANALYSES if name not in SENSITIVITY | OF_RUNS | OF_FLAGS]
)
def test_every_analysis_makes_its_table_and_its_plot(name: str, folder: Path) -> None:
    """From files, in every format; the text is that of the same rows."""
    plot = folder / f"{name}.svg"
    extra = EXTRA.get(name, [])
    told = analyse(folder, name, *extra, "--format", "json", "--out", str(plot))
    assert told.exit_code == 0, told.output
    table = json.loads(told.stdout)
    assert table["name"] == name
    assert table["rows"]
    assert plot.read_text().startswith("<?xml")
    text = analyse(folder, name, *extra)
    assert text.stdout.splitlines()[0] == table["title"]
    assert analyse(folder, name, *extra, "--format", "latex").stdout.startswith(r"\begingroup")
    lines = analyse(folder, name, *extra, "--format", "markdown").stdout.splitlines()
    assert sum(line.startswith("| ") for line in lines) == 2 + len(table["rows"])
    lines = analyse(folder, name, *extra, "--format", "csv").stdout.splitlines()
    assert len(lines) == 1 + len(table["rows"])
    assert lines[0].startswith(",".join(table["columns"])[:30])


def rows_of(result: Result) -> list[dict[str, Any]]:
    """Rows of a table in JSON."""
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout)["rows"])


def test_the_best_and_the_worst_of_a_group(folder: Path) -> None:
    """Groups are columns; with three models one is the worst, and one in between is left out."""
    for copy, name in (("c", "a"), ("d", "b")):
        shutil.copy(folder / f"{name}.parquet", folder / f"{copy}.parquet")
    more = ["{}/c.parquet", "{}/d.parquet", "--test", "c={}/a-test.parquet"]
    more += ["--test", "d={}/b-test.parquet", *EXTRA["accuracy"]]
    grouped = [*more, *(word for name in "abcd" for word in ("--group", f"{name}=S"))]
    rows = rows_of(analyse(folder, "accuracy", *grouped, "--format", "json"))
    assert {row["model"]: row["place"] for row in rows} == {
        "a": None, "b": "best", "c": "worst", "d": "best"
    }  # fmt: skip
    for name in ("accuracy", "curves", "matching"):
        found = rows_of(analyse(folder, name, *grouped, "--best-and-worst", "--format", "json"))
        assert [(row["model"], row["group"]) for row in found] == [
            ("b", "S"), ("d", "S"), ("c", "S")
        ]  # fmt: skip
    assert "place" not in rows_of(analyse(folder, "curves", *more, "--format", "json"))[0]


def test_the_help_lists_the_analyses() -> None:
    """Each by its name, with what it is."""
    shown = CliRunner().invoke(app, ["analyse", "--help"], env={"COLUMNS": "100"}).stdout
    flat = " ".join(shown.split())
    for analysis in ANALYSES.values():
        assert f"{analysis.name} {analysis.summary}" in flat
    assert "[mine]" in flat


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        (
            "curves",
            ["--top", "3"],
            "--top: expected with hardest",
        ),
        (
            "matching",
            ["--matched"],
            "got it with matching, which takes --best-and-worst, --group, --test",
        ),
        ("matching", ["--best-and-worst"], "expected the training groups of models, as"),
        (
            "curves",
            ["--group", "c=S"],
            "--group: expected those of models with predictions, a, b, got one of 'c'",
        ),
        (
            "curves",
            ["--group", "a"],
            "--group: expected the training group of a model as NAME=GROUP",
        ),
        (
            "matching",
            [
                "--best-and-worst",
                "--group",
                "a=S",
                "--group",
                "b=S",
                "--test",
                "a={}/a-test.parquet",
            ],
            "predictions for all test problems, got none of b; add --test b=FILE",
        ),
        ("classes", ["--config", "s_nouns"], "expected a configuration of several word classes"),
        ("curves", ["--out", "plot.jpg"], "expected a plot's file to end in .png, .svg, .pdf"),
        (
            "curves",
            ["{}/a-union.parquet@{}/merge-nli-union"],
            "FILE@DATASET only for accuracy, ablations, fooling",
        ),
        (
            "curves",
            ["{}/a-union.parquet"],
            "to answer different problems, as all are of the model a, got",
        ),
        ("ablations", [], "expected predictions for two data sets or more"),
        ("accuracy", ["--test", "{}/a-test.parquet"], "got those of 'a-test'; name them alike"),
        ("mlms", [], "got none of a, b among BERT-B-S"),
        ("mlms", ["--mlm-map", "{}/none.toml"], "none.toml"),
    ],
)
def test_errors_are_one_line(name: str, more: list[str], message: str, folder: Path) -> None:
    """Exit code 2 and what was expected; no table."""
    result = analyse(folder, name, *more)
    assert result.exit_code == 2
    assert message in result.stderr.splitlines()[-1]
    assert result.stdout == ""


def test_a_missing_matplotlib_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables do without it; a plot says what to install."""
    import sys

    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    assert analyse(folder, "matching").exit_code == 0
    result = analyse(folder, "matching", "--out", str(folder / "x.png"))
    assert result.exit_code == 2
    assert "pip install 'merge-nli[plots]'" in result.stderr
