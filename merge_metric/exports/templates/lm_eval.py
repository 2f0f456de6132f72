"""Functions of the tasks beside this file, for lm-evaluation-harness.

Written by `merge-nli export lm-eval`. Needs NumPy and datasets, which the harness brings.
Figures are those of `merge-nli score`, averaged over the subsamples.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))  # the harness loads this file alone

from merge_nli_metric import task_answers as answers

FIGURES: tuple[str, ...] = ()
THRESHOLDS: tuple[int, ...] = ()

_last: tuple[list[dict[str, Any]], dict[str, float]] = ([], {})


def load(
    *,
    dataset: str,
    config: str,
    revision: str | None = None,
    limit_seeds: int | None = None,
    rng_seed: int = 0,
    **_: Any,
) -> dict[str, Any]:
    """Load the problems; `limit_seeds` and `rng_seed` come from --metadata."""
    problems = answers.load_problems(
        dataset, config, revision=revision, limit_seeds=limit_seeds, rng_seed=rng_seed
    )
    return {"test": problems}


def process_results(doc: dict[str, Any], results: list[tuple[float, bool]]) -> dict[str, Any]:
    """Return the answer under the name of every figure."""
    answer = answers.answer(doc, [log_prob for log_prob, _ in results])
    return dict.fromkeys(FIGURES, answer)


def _figure(items: list[dict[str, Any]], name: str) -> float:
    """Compute a figure of all answers; the harness asks for one after the other."""
    global _last
    if _last[0] != items:
        _last = (items, answers.figures(items, THRESHOLDS))
    return _last[1][name]
