"""Functions of the tasks beside this file, for lm-evaluation-harness.

Written by `merge-nli export lm-eval`. Needs NumPy and datasets, which the harness brings.
Figures are those of `merge-nli score`, averaged over the subsamples.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))  # the harness loads this file alone

from merge_nli_metric import task_answers as answers

SETTINGS = answers.TaskSettings.read()
FIGURES = answers.figure_names(SETTINGS.thresholds)

_last: tuple[list[dict[str, Any]], dict[str, float]] = ([], {})


def load(
    *,
    config: str,
    limit_seeds: int | None = None,
    rng_seed: int = 0,
    **_: Any,
) -> dict[str, Any]:
    """Load the problems; `limit_seeds` and `rng_seed` come from --metadata."""
    problems = answers.load_problems(SETTINGS, config, limit_seeds=limit_seeds, rng_seed=rng_seed)
    return {"test": problems}


def process_results(doc: dict[str, Any], results: list[Any]) -> dict[str, Any]:
    """Return the answer under the name of every figure."""
    prompt = SETTINGS.prompts[doc[answers.CONFIG]]
    # The harness does not tell which texts were cut.
    given = results[0] if SETTINGS.is_in_words else [log_prob for log_prob, _ in results]
    return dict.fromkeys(FIGURES, answers.answer(doc, prompt, given))


def __getattr__(name: str) -> Callable[[list[dict[str, Any]]], float]:
    """Make the function of a figure for the task's YAML, such as `sv_90` of sv@90."""
    functions = {figure.replace("@", "_"): partial(_compute, figure) for figure in FIGURES}
    if name not in functions:
        raise AttributeError(name)
    return functions[name]


def _compute(figure: str, items: list[dict[str, Any]]) -> float:
    """Compute a figure of all answers; the harness asks for one after the other."""
    global _last
    if _last[0] != items:
        _last = (items, answers.figures(items, SETTINGS))
    return _last[1][figure]
