"""`merge-nli analyse` of paraphrases: each model with a dataset of its own; options, errors."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers.dataset_files import write_predictions
from helpers.sensitivity_data import answer_rows, write_lines
from matplotlib.image import imread
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

from generation.cli import app
from merge_metric.analyses import overlap

REPLACED = ("E E EEE", "N N NC", "C C CN", "E N NN")
OWN = {"a": ("E E EC", "N N NN", "C C CCC"), "b": ("E E EE", "N N NE", "C C N")}
"""Model → problems with its own paraphrases."""

NAMES = ("fooling", "sizes", "shift", "confidence", "overlap", "kinds")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Replacements for all, paraphrases for each of two models, and their predictions."""
    folder = tmp_path_factory.mktemp("sensitivity")
    for source in ("snli", "anli-r1", "anli-r2"):
        write_lines(folder / "merge-nli", source, REPLACED, "noun")
        for model, lines in OWN.items():
            write_lines(folder / f"{model}-own", source, lines)
    for number, (model, lines) in enumerate(OWN.items(), start=1):
        metadata = {"name": model, "parameters": number * 10**6, "architecture": "BertModel"}
        rows = {
            "replaced": [*answer_rows("snli", REPLACED, "noun")],
            "own": [row for s in ("snli", "anli-r1", "anli-r2") for row in answer_rows(s, lines)],
        }
        for name, own in rows.items():
            write_predictions(folder / f"{model}-{name}.parquet", own, metadata)
        bare = answer_rows("snli", lines, probabilities=False)
        write_predictions(folder / f"{model}-bare.parquet", bare)
    return folder


@pytest.fixture
def analyse(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command in that folder."""
    monkeypatch.chdir(folder)
    return lambda *arguments: CliRunner().invoke(app, ["analyse", *arguments])


FILES = ("a-own.parquet@a-own", "b=b-own.parquet@b-own")
BOTH = ("--dataset", "merge-nli", "a-replaced.parquet", "b-replaced.parquet")


def rows_of(result: Result) -> list[dict[str, Any]]:
    """Rows of a table in JSON."""
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout)["rows"])


@pytest.mark.slow(but=("sizes",))
@pytest.mark.parametrize("name", NAMES)
def test_every_analysis_makes_its_table_and_its_plots(
    name: str, analyse: Callable[..., Result], tmp_path: Path
) -> None:
    """From files that name their dataset, in every format; the rest is of the same rows."""
    files = (*FILES, *(BOTH if name == "kinds" else ()))
    rows = rows_of(analyse(name, *files, "--format", "json", "--out", str(tmp_path / "x.png")))
    assert rows
    assert imread(tmp_path / "x.png").std() > 0.01
    text = analyse(name, *files, "--out", str(tmp_path / "x.svg"))
    assert ElementTree.parse(tmp_path / "x.svg").getroot().tag.endswith("svg")
    title, _, heading, *_ = text.stdout.splitlines()
    assert heading.startswith("source")
    markdown = analyse(name, *files, "--format", "markdown").stdout
    assert markdown.startswith(f"**{title[:10]}")
    assert sum(line.startswith("| ") for line in markdown.splitlines()) == 2 + len(rows)
    assert r"\begin{longtable}" in analyse(name, *files, "--format", "latex").stdout
    table = list(csv.DictReader(io.StringIO(analyse(name, *files, "--format", "csv").stdout)))
    assert [row["config"] for row in table] == [row["config"] for row in rows]
    scalars = {k for row in rows for k, v in row.items() if isinstance(v, str | int | float)}
    assert scalars <= set(table[0])


def test_each_model_is_read_beside_its_own_paraphrases(analyse: Callable[..., Result]) -> None:
    """Rates by hand: a is fooled on one of three seeds, b on two."""
    rows = rows_of(analyse("fooling", *FILES, "--format", "json", "--n-bootstrap", "10"))
    found = {(row["model"], row["config"]): row for row in rows}
    for source in ("snli", "anli-r1", "anli-r2"):
        a, b = (found[model, f"{source}_paraphrases"] for model in "ab")
        assert (a["n_right"], a["relaxed_fooling_rate"], a["strict_fooling_rate"]) == (
            3,
            1 / 3,
            1 / 3,
        )
        assert (b["n_right"], b["relaxed_fooling_rate"], b["strict_fooling_rate"]) == (
            3,
            2 / 3,
            1 / 3,
        )
    assert found["(mean)", "(all paraphrases)"]["relaxed_fooling_rate"] == pytest.approx(0.5)
    one = rows_of(analyse("fooling", *FILES, "--config", "snli_paraphrases", "--format", "json"))
    assert [row["config"] for row in one] == ["snli_paraphrases"] * 3


def test_kinds_are_read_from_two_datasets(analyse: Callable[..., Result]) -> None:
    """Replacements of a common one, paraphrases of each model's own."""
    rows = rows_of(analyse("kinds", *FILES, *BOTH, "--format", "json", "--n-bootstrap", "5"))
    assert [(row["model"], row["group"]) for row in rows] == [
        (model, group) for model in "ab" for group in ("replacement", "paraphrase")
    ]
    assert [row["n_seeds"] for row in rows] == [3] * 4
    assert [row["relaxed_fooling_rate"] for row in rows] == [2 / 3, 1 / 3, 2 / 3, 2 / 3]


def test_an_encoder_adds_distances(
    analyse: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Loaded by the name that is given."""
    asked = []

    def load(name: str) -> Callable[[list[str]], NDArray[np.float64]]:
        asked.append(name)
        return lambda texts: np.array([[len(text), text.count("now")] for text in texts], float)

    monkeypatch.setattr(overlap, "load_encoder", load)
    plot = tmp_path / "x.svg"
    more = ("--encoder", "org/some", "--format", "json", "--out", str(plot))
    rows = rows_of(analyse("overlap", *FILES, *more))
    assert asked == ["org/some"]
    assert all(row["distance_changed"] > 0 for row in rows)
    assert plot.stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fooling"], "fooling: expected predictions files, got none"),
        (["overlap"], "overlap: expected a dataset folder, got none; add --dataset FOLDER"),
        (["fooling", FILES[0], "b-own.parquet"], "or name it for every file: FILE@FOLDER"),
        (["curves", "a-own.parquet"], "curves: expected a dataset folder, got none; add --data"),
        (
            ["fooling", FILES[0], "a=b-own.parquet@b-own"],
            "got 'a-own' and 'b-own' for 'a' on anli-r1_paraphrases; name them apart",
        ),
        (["confidence", "a-bare.parquet@a-own"], "`merge-nli predict` writes them"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], message: str, analyse: Callable[..., Result]
) -> None:
    """Exit code 2 and what was expected; no table."""
    result = analyse(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr.splitlines()[-1]
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("missing", "more", "extra"),
    [
        ("rapidfuzz", [], "overlap"),
        ("matplotlib", ["--out", "x.png"], "overlap"),
        ("sentence_transformers", ["--encoder", "org/some"], "embeddings"),
    ],
)
def test_missing_packages_are_told(
    missing: str,
    more: list[str],
    extra: str,
    analyse: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the extra that brings them."""
    import sys

    monkeypatch.setitem(sys.modules, missing, None)
    result = analyse("overlap", "--dataset", "a-own", *more)
    assert result.exit_code == 2
    assert f"needs {missing}; run: pip install 'merge-nli[{extra}]'" in result.stderr
