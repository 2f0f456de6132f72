"""Figures with and without flagged variants: score, analyse labels, report; by plain reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.dataset_files import write_predictions, write_rows
from helpers.scored_folder import SEEDS, VARIANTS, predicted, seed_of, write_folder
from typer.testing import CliRunner

from generation.cli import app
from merge_dataset.dataset_columns import LABEL_FLAGS
from merge_dataset.schema import NLI
from merge_metric.analyses.parts import plot_labels
from merge_metric.score import score_file
from merge_metric.seed_variant_accuracy.figures import sv_at
from merge_metric.tables import Table, figure_column

FLAGGED = {
    "snli:a/noun/1": ["pronoun_clash"],
    "snli:a/noun/2": ["beyond_premise", "pronoun_clash"],
    "snli:b/verb/2": ["hangs_on_word"],
    "snli:c/verb/1": ["hangs_on_word"],
}
"""Variant → its flags; others have none."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`snli` has label flags and `demo` has none."""
    folder = write_folder(tmp_path / "data")
    for path in folder.rglob("*.parquet"):
        flags = LABEL_FLAGS if (folder / "snli") in path.parents else ()
        rows = pq.ParquetFile(path).read().to_pylist()
        for row in rows:
            row |= {"premise": "A dog runs.", "hypothesis": "A dog moves."}
            for name in flags:
                # What is not known flags nothing.
                row[name] = True if name in FLAGGED.get(row["variant_id"], []) else None
        write_rows(path, rows, NLI.with_optional(flags))
    return folder


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    return write_predictions(tmp_path / "model.parquet", predicted("snli"))


def expected(flag: str) -> tuple[int, float]:
    """Distinct variants with a flag, or without any, and accuracy, the mean over subsamples."""
    mine = [
        name
        for name in VARIANTS
        if name.startswith("snli")
        and (flag in FLAGGED.get(name, []) or (flag == "no flag" and name not in FLAGGED))
    ]
    shares = []
    for subsample in (0, 1):
        drawn = [name for name in mine if subsample in VARIANTS[name][0]]
        if drawn:
            right = [VARIANTS[name][1] == SEEDS[seed_of(name)][0] for name in drawn]
            shares.append(sum(right) / len(right))
    return len(mine), sum(shares) / len(shares)


def test_score_by_label_flags(folder: Path, predictions: Path) -> None:
    """A variant counts under each of its flags; of no flag, the rest."""
    result = score_file(predictions, folder, ["snli"], by=["label_flags"], n_bootstrap=0)["snli"]
    groups = result["by_group"]["label_flags"]
    assert groups.keys() == {"no flag", *LABEL_FLAGS}
    for name, group in groups.items():
        n_variants, accuracy = expected(name)
        assert group["n_variants"] == n_variants
        assert group["variant_accuracy"] == pytest.approx(accuracy)
    plain = score_file(predictions, folder, ["snli"], n_bootstrap=0)["snli"]
    assert "label_flags" not in plain["by_group"]
    assert plain["variant_accuracy"] == result["variant_accuracy"]


def analyse(*arguments: str) -> Any:
    result = CliRunner().invoke(app, ["analyse", "labels", *arguments, "--format", "json"])
    assert result.exit_code == 0, result.output
    return {row["part"]: row for row in json.loads(result.stdout)["rows"]}


def test_analyse_labels(folder: Path, predictions: Path, tmp_path: Path) -> None:
    """Counts without predictions, figures with them, and judges' doubts."""
    scores = tmp_path / "scores.csv"
    scores.write_text(
        "variant_id,annotator,fluency,reasoning\n"
        "snli:a/noun/1,ann,5,2\nsnli:b/verb/1,ann,5,5\nsnli:a/noun/2,ann,5,4\n",
        encoding="utf-8",
    )
    options = ["--dataset", str(folder), "--config", "snli"]
    alone = analyse(*options, "--annotations", str(scores))
    rows = analyse(str(predictions), *options, "--n-bootstrap", "0")
    assert list(alone) == list(rows) == ["all", "no flag", *LABEL_FLAGS]
    for name in ("no flag", *LABEL_FLAGS):
        n_variants, accuracy = expected(name)
        assert alone[name]["n_variants"] == rows[name]["n_variants"] == n_variants
        assert alone[name]["share"] == n_variants / 10
        assert rows[name]["variant_accuracy"] == pytest.approx(accuracy)
    assert (alone["all"]["n_judged"], alone["all"]["n_doubtful"]) == (3, 1)
    assert (alone["pronoun_clash"]["n_judged"], alone["pronoun_clash"]["n_doubtful"]) == (2, 1)
    assert (alone["no flag"]["n_judged"], alone["no flag"]["n_doubtful"]) == (1, 0)


def test_plot_where_all_variants_are_flagged() -> None:
    """The rest has no variants, and so no model and no bar."""
    rest = {"config": "snli", "part": "no flag", "n_variants": 0}
    every = rest | {"part": "all", "model": "m", "n_variants": 2}
    column = figure_column(sv_at(90))
    figure = plot_labels(Table("labels", "Labels", (column,), (every | {column.key: 0.5}, rest)))
    assert len(figure.axes[0].patches) == 1


def test_a_dataset_without_flags_is_told(folder: Path) -> None:
    """One line that says how to get them."""
    result = CliRunner().invoke(
        app, ["analyse", "labels", "--dataset", str(folder), "--config", "demo"]
    )
    assert result.exit_code == 2
    assert "expected label flags in demo, got none" in result.stderr
    assert "merge-nli build --label-flags" in " ".join(result.stderr.split())
