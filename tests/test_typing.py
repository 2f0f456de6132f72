import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

PROGRAM = """
from pathlib import Path
from typing import assert_type

from generation import Config, RunFolder, build, generate
from merge_dataset import check_dataset
from merge_metric import (
    Comparison,
    Evaluation,
    Frame,
    Table,
    compare_models,
    evaluate_model,
    read_frames,
    score_file,
)


def overlap(pairs: list[tuple[str, str]]) -> list[str]:
    return ["neutral" for _ in pairs]


run = generate(Config.from_recipe("demo", run="runs/mine", limit=24))
assert_type(run, RunFolder)
assert_type(build(run.path, ablation="union").variants, Path)
assert_type(check_dataset(Path("merge-nli")), list[str])
result = evaluate_model(overlap, "merge-nli", config="snli_nouns", limit_seeds=100)
assert_type(result, Evaluation)
assert_type(result.summary(), Table)
assert_type(result.summary().to_html(), str)
assert_type(result.compare(result), dict[str, Comparison])
assert_type(result.report("out.html"), Path)
assert_type(result.log("wandb", step=3), str)
assert_type(result.frames, tuple[Frame, ...])
for row in result.per_seed().to_pylist():
    print(row["seed_id"])
for figures in score_file("a.parquet", "merge-nli").values():
    print(figures["seed_accuracy"])
assert_type(compare_models(["a.parquet", "b.parquet"], "merge-nli"), dict[str, Comparison])
print(list(read_frames("a.parquet", "merge-nli")))

result.log("comet")  # type: ignore[arg-type]
evaluate_model(overlap, "merge-nli", limit="100")  # type: ignore[call-arg]
"""


@pytest.mark.slow
def test_a_program_of_a_user(tmp_path: Path) -> None:
    for package in ("generation", "merge_dataset", "merge_metric"):
        assert (ROOT / package / "py.typed").is_file()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*command, str(program)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.stdout.startswith("Success"), done.stdout + done.stderr
