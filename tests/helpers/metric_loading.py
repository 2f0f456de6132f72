"""The metric through the real loader of `evaluate`, in separate processes."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPACE = ROOT / "merge_metric" / "seed_variant_accuracy"

ABSENT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"transformers", "scipy"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
"""
"""Code that hides these two packages: with them, importing `evaluate` takes seconds."""

ROWS = {
    "predictions": [0, 0, 0, 1], "references": [0, 0, 0, 0], "seed_ids": [1, 1, 2, 2],
    "seed_predictions": [0, 0, 0, 0],
}  # fmt: skip
"""Two seeds; half of the second seed's variants are right."""


def start(code: str, cwd: Path, home: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a process that runs code after `import evaluate`, with `home` for caches and no Hub."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    return subprocess.Popen(
        [sys.executable, "-c", f"{ABSENT}import evaluate\n{code}", *arguments],
        cwd=cwd,
        env={
            **kept,
            "HF_HOME": str(home),
            "HF_HUB_OFFLINE": "1",
            "HF_EVALUATE_OFFLINE": "1",  # otherwise evaluate looks up the name on the Hub
            "PYTHONPATH": str(ROOT),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def python(code: str, cwd: Path, home: Path) -> str:
    process = start(code, cwd, home)
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    return output


def card_blocks(language: str) -> list[str]:
    card = (SPACE / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", card, flags=re.DOTALL)
