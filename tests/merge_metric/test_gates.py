"""`merge-nli score`: limits, figures by hand, clusters; errors."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import run
from helpers.dataset_files import write_source
from helpers.pages import commands, section
from helpers.scored_folder import SEEDS, VARIANTS, E, predicted, problem_row
from typer.testing import Result

from merge_metric.score import fails, failures, read_gates


@pytest.fixture
def files(folder: Path, tmp_path: Path) -> tuple[Path, str, str]:
    """Predictions for both sources of the small dataset: S is 2/3 on `snli`, 1 on `demo`."""
    pq.write_table(pa.Table.from_pylist(predicted()), path := tmp_path / "p.parquet")
    return path, "--dataset", str(folder)


def score(*words: object, code: int = 0) -> Result:
    return run("score", *words, "--n-bootstrap", 0, code=code)


def test_a_figure_below_its_limit_fails(files: tuple[Path, str, str]) -> None:
    gates = ("seed_accuracy=0.7", "variant_accuracy=0.75", "sv_at_51=0.9", "holding_threshold=52")
    limits = (word for gate in gates for word in ("--require", gate))
    result = score(*files, "--config", "snli", *limits, code=1)
    assert result.stderr.splitlines()[-3:] == [
        "snli: seed_accuracy is 0.6667, wanted 0.7 or more",
        "snli: sv_at_51 is 0.5, wanted 0.9 or more",
        "snli: holding_threshold is 50, wanted 52 or more",
    ]
    assert result.stdout.startswith("snli, averaged over 2 subsamples")


def test_what_is_reached_passes(files: tuple[Path, str, str]) -> None:
    score(*files, "--require", "seed_accuracy=0.6666666666666667")
    (gate,) = read_gates(["agreement=0.7"])
    assert not fails(gate, 0.7 - 1e-12)
    range_ = {"matching_threshold_low": 1.0, "matching_threshold_high": 5.0}
    (line,) = failures({"x": {"agreement": 0.699996, **range_}}, [gate])
    assert line == "x: agreement is 0.699996, wanted 0.7 or more"


def test_undefined_figures_are_refused(folder: Path, tmp_path: Path) -> None:
    """The gate neither passes nor fails: exit code 2."""
    rows = predicted("demo")
    wrong = [{**row, "prediction": E} for row in rows]
    pq.write_table(pa.Table.from_pylist(wrong), path := tmp_path / "p.parquet")
    gate = ("--require", "strict_fooling_rate=0.5")
    result = score(path, "--dataset", folder, *gate, code=2)
    assert "error: demo: strict_fooling_rate is undefined, so it cannot be" in result.stderr
    pq.write_table(pa.Table.from_pylist(rows), path)
    result = score(path, "--dataset", folder, "--require", "matching_threshold=40", code=2)
    assert "demo: matching_threshold is undetermined (1–100), so it cannot" in result.stderr


@pytest.mark.slow
def test_quiet(files: tuple[Path, str, str]) -> None:
    """With --quiet, warnings are shown but no progress, wherever the option is given."""
    command = [sys.executable, "-m", "generation", "score", *map(str, files), "--quiet"]
    command += ["--per-seed", "seeds.csv"]
    done = subprocess.run(command, cwd=files[0].parent, capture_output=True, text=True, check=True)
    assert "seeds.csv: written" not in done.stderr
    assert "fewer than 30 seeds" in done.stderr
    assert done.stdout.startswith("demo, averaged")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The small dataset folder in the working directory, with predictions of two models."""
    monkeypatch.chdir(tmp_path)
    for name in ("bert", "other"):
        pq.write_table(pa.Table.from_pylist(predicted("snli")), tmp_path / f"{name}.parquet")
    texts = {"premise": "A dog runs.", "hypothesis": "An animal runs."}
    seeds, variants = (
        [problem_row(name) | texts for name in names if name.startswith("snli")]
        for names in (SEEDS, VARIANTS)
    )
    write_source(tmp_path / "merge-nli", seeds, variants)


@pytest.mark.usefixtures("here")
def test_the_pipeline_of_the_readme() -> None:
    (words,) = commands(section("merge_metric/README.md", "In a pipeline"))
    result = run(*words, code=1)
    assert "snli: seed_variant_accuracy is 0.3333, wanted 0.7 or more" in result.stderr
    assert "snli: relaxed_fooling_rate is 0.5, wanted 0.4 or less" in result.stderr
