"""Commands without what Windows and macOS lack; these systems themselves were not tried."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.processes import PATIENCE, PYTHON_PATH

import generation
import merge_metric

LACKING = """
import os, sys
sys.modules["fcntl"] = None
del os.killpg, os.getpgrp
"""
MODEL = Path(merge_metric.__file__).parent / "demo/bert-tiny-nli"
COMMANDS = (
    "generate --source mine --data pairs.csv --recipe try --run r --out d",
    "build --run r --into two --executor local --tasks 2",
    "check d",
    f"predict --model {MODEL} --dataset d --out p.parquet --executor local --tasks 2",
    "report p.parquet --dataset d --out r.html --allow-missing",
    "publish dataset d me/mine",
)


@pytest.mark.slow
def test_without_fcntl_process_groups_and_utf_8(tmp_path: Path) -> None:
    """Locks and tasks work; files are read and written as UTF-8, never in the locale's encoding."""
    (tmp_path / "sitecustomize.py").write_text(LACKING)
    lines = ["premise,hypothesis,label", "A pianist plays in a café.,A pianist “plays”.,neutral",
             "A sailor repairs a net.,A sailor works on a net.,entailment"]  # fmt: skip
    (tmp_path / "pairs.csv").write_text("\n".join(lines), encoding="utf-8")
    environment = {"PYTHONPATH": f"{tmp_path}:{PYTHON_PATH}", "LC_ALL": "C", "PYTHONUTF8": "0"}
    environment |= {"PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "cp1252", "HF_HUB_OFFLINE": "1"}
    environment |= {"HOME": str(tmp_path), "OMP_NUM_THREADS": "1", "PATH": ""}
    ours = str(Path(generation.__file__).parents[1])
    for command in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-X", "warn_default_encoding", "-m", "generation", *command.split()],
            cwd=tmp_path, env=environment, capture_output=True, encoding="cp1252", check=False,
            timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        warned = [line for line in done.stderr.splitlines() if "EncodingWarning" in line]
        assert [line for line in warned if line.startswith(ours) and "site-pack" not in line] == []
    for run in ("r", "r/two"):
        rows = pq.read_table(tmp_path / run / "variants.parquet")
        assert any("café" in text for text in rows["premise"].to_pylist())
    assert (tmp_path / "r/variants.parquet").read_bytes() == (
        tmp_path / "r/two/variants.parquet"
    ).read_bytes()
    assert "café" in (tmp_path / "r.html").read_text(encoding="utf-8")
