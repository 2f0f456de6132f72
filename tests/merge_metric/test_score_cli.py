"""`merge-nli score`: figures by hand, as text and as JSON; errors."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.dataset_files import write_plain as write
from helpers.scored_folder import predicted

from merge_metric.score import score_file


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    return write(tmp_path / "p.parquet", predicted("snli"))


def test_a_variant_counts_under_each_of_its_models(predictions: Path, folder: Path) -> None:
    """Big suggested 1 and 2 of a's three variants, small 1 and 3."""
    (nouns,) = score_file(predictions, folder, ["snli_nouns"], by=["mlms"]).values()
    groups = nouns["by_group"]["mlms"]
    assert [groups[name]["n_variants"] for name in ("x/big", "y/small")] == [3, 3]
    big = groups["x/big"]
    assert big["variant_accuracy"] == pytest.approx((2 / 3 + 1) / 2)
    assert big["relaxed_fooling_rate"] == 0.25
    assert groups["y/small"]["variant_accuracy"] == 1.0


@pytest.mark.slow
def test_quiet(folder: Path, predictions: Path) -> None:
    """With --quiet, warnings are shown but no progress, wherever the option is given."""
    command = [sys.executable, "-m", "generation", "score", str(predictions), "--quiet"]
    command += ["--dataset", str(folder), "--per-seed", "seeds.csv"]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=True)
    assert "seeds.csv: written" not in done.stderr
    assert "fewer than 30 seeds" in done.stderr
    assert done.stdout.startswith("snli")
