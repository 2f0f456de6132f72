"""`merge-nli score`: figures by hand, as text and as JSON; errors."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import refused, run
from helpers.dataset_files import write_plain as write
from helpers.scored_folder import predicted, without

from merge_metric.score import score_file


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    return write(tmp_path / "p.parquet", predicted("snli"))


def some_of(result: dict[str, Any], *keys: str) -> list[Any]:
    return [result[key] for key in keys]


def test_a_variant_counts_under_each_of_its_models(predictions: Path, folder: Path) -> None:
    """Big suggested 1 and 2 of a's three variants, small 1 and 3."""
    (nouns,) = score_file(predictions, folder, ["snli_nouns"], by=["mlms"]).values()
    groups = nouns["by_group"]["mlms"]
    assert [groups[name]["n_variants"] for name in ("x/big", "y/small")] == [3, 3]
    big = groups["x/big"]
    assert big["variant_accuracy"] == pytest.approx((2 / 3 + 1) / 2)
    assert big["relaxed_fooling_rate"] == 0.25
    assert groups["y/small"]["variant_accuracy"] == 1.0


def test_options_reach_the_metric(predictions: Path, folder: Path) -> None:
    (snli,) = score_file(
        str(predictions), str(folder), correctness_threshold=75, n_bootstrap=20, rng_seed=3
    ).values()
    assert snli["seed_variant_accuracy"] == pytest.approx(0.5)
    assert snli["signature"].startswith("ct:75|subsamples:2|")
    assert "|bootstrap:20|rng_seed:3|" in snli["signature"]


def test_allow_missing(tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without the option, an error; with it, complete seeds, and the number left out."""
    path = write(tmp_path / "p.jsonl", without(predicted("snli"), "snli:a/noun/2", "snli:b/verb/1"))
    told = refused("score", path, "--dataset", folder)
    assert f"error: {path}: snli: predictions are missing for 2" in told
    assert "--allow-missing scores the complete seeds, 1 of 3" in told
    result = run("score", path, "--dataset", folder, "--allow-missing", "--format", "json")
    (snli,) = json.loads(result.stdout)["results"].values()
    assert some_of(snli, "n_seeds", "n_seeds_left_out", "seed_accuracy", "variant_accuracy") == [
        1, 2, 0.0, 0.5,
    ]  # fmt: skip
    assert [m for m in caplog.messages if m.startswith("snli: 2 of 3 seeds are left out")]
    text = run("score", path, "--dataset", folder, "--allow-missing").stdout
    assert "; 2 seeds left out, as predictions are missing\n" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "snli"], "expected a dataset folder with --config, got none"),
        (["--by", "mlms"], "expected a dataset folder with --by, got none"),
        (["--allow-missing"], "expected a dataset folder with --allow-missing, got none"),
    ],
)  # fmt: skip
def test_usage_errors(arguments: list[str], message: str, predictions: Path) -> None:
    assert message in refused("score", predictions, *arguments)


def test_probabilities_in_another_order(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = predicted("snli")
    for row in rows:
        row["probabilities"] = [0.9 if row["prediction"] == i else 0.05 for i in range(3)]
    rows[0]["probabilities"] = [0.495, 0.5, 0.005]
    path = write(tmp_path / "p.parquet", rows)
    score_file(path, folder)
    unverified, *others = caplog.messages
    assert not any("most probable" in message for message in others)
    assert unverified.startswith(f"{path}: nothing in it says for which texts these")
    caplog.clear()
    rows[1]["probabilities"] = [0.9, 0.1, 0.0]
    score_file(write(path, rows), folder)
    assert caplog.messages[:1] == [
        f"{path}: in 1 of 13 rows another label than the prediction is the most probable one; "
        "are the probabilities in the order entailment, neutral, contradiction?"
    ]


def test_tables_for_papers_and_programs(folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "p.parquet", predicted("snli"))
    told = ["--dataset", folder, "--n-bootstrap", 9]
    whole = run("score", path, *told, "--format", "json")
    results = json.loads(whole.stdout)["results"]
    rows = list(csv.DictReader(run("score", path, *told, "--format", "csv").stdout.splitlines()))
    assert {row["config"] for row in rows} == set(results)
    for row in rows:
        if row["of"] == "all":
            result = results[row["config"]]
            assert float(row["seed_accuracy"]) == pytest.approx(result["seed_accuracy"])
            assert float(row["variant_accuracy_ci_low"]) == result["variant_accuracy_ci"][0]
    for form, mark in (("markdown", "| seeds / variants |"), ("latex", r"\caption{")):
        result = run("score", path, *told, "--format", form)
        assert result.stdout.count(mark) >= len(results)


def test_what_figures_mean_is_told_on_request(folder: Path, predictions: Path) -> None:
    told = ["--dataset", folder, "--n-bootstrap", 0]
    meaning = "S: Share of the seeds themselves answered right."
    assert meaning in run("score", predictions, *told, "--explain").stdout
    short = run("score", predictions, *told).stdout
    assert meaning not in short
    assert short.endswith("In percent. What the figures mean: --explain.\n")


@pytest.mark.slow
@pytest.mark.parametrize("quiet", [True, False])
def test_quiet(quiet: bool, folder: Path, predictions: Path) -> None:
    """With --quiet, warnings are shown but no progress, wherever the option is given."""
    command = [sys.executable, "-m", "generation", "score", str(predictions)]
    command += ["--quiet"] * quiet
    command += ["--dataset", str(folder), "--per-seed", "seeds.csv"]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=True)
    assert ("seeds.csv: written, a row per seed" in done.stderr) == (not quiet)
    assert "fewer than 30 seeds" in done.stderr
    assert done.stdout.startswith("snli")
