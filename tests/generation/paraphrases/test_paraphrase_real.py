"""A real generator and a real NLI model, from SNLI's problems to fooling rates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.gguf_files import smollm2
from typer.testing import CliRunner

from generation.cli import app
from generation.paraphrases.rounds import normalise


def invoke(*words: str | Path) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.real
@pytest.mark.slow
def test_from_problems_to_fooling_rates(
    shared_data: Path, shared_models: Path, tmp_path: Path
) -> None:
    """The NLI model's answer changes for hypotheses that it holds to be equivalent."""
    judge, out = shared_models / "minilm-l6-nli", tmp_path / "merge-nli"
    invoke(
        "paraphrase", "--source", "snli", "--data", shared_data / "snli_test.jsonl",
        "--limit", "8", "--generator", smollm2(), "--model", judge, "--k", "3", "--max-rounds", "2",
        "--beams", "8", "--groups", "4", "--run", tmp_path / "run", "--out", out,
    )  # fmt: skip
    assert invoke("check", out).endswith(": good\n")
    rows = pq.read_table(tmp_path / "run" / "paraphrases.parquet").to_pylist()
    kept = [row for row in rows if row["reason"] == "kept"]
    assert len(kept) >= 5
    assert all(row["entailed"] > 1 / 3 < row["entailing"] for row in kept)
    assert all(normalise(row["text"]) != normalise(row["hypothesis"]) for row in kept)
    file = tmp_path / "minilm.parquet"
    invoke("predict", "--model", judge, "--dataset", out, "--out", file)
    scored: dict[str, Any] = json.loads(
        invoke("score", file, "--dataset", out, "--format", "json")
    )["results"]["snli_paraphrases"]
    assert scored["seed_accuracy"] == 1
    assert 0 <= scored["strict_fooling_rate"] <= scored["relaxed_fooling_rate"] < 1
    assert scored["n_variants"] == sum(
        len(pq.read_table(path)) for path in out.glob("snli_paraphrases/variants.parquet")
    )
