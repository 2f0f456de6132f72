"""A dataset folder as one of the Hub's benchmarks: the file `eval.yaml`.

The Hub's specification (docs: hub/eval-results) wants a name, a description, tasks with ids, and
an `evaluation_framework` out of its own list (EVALUATION_FRAMEWORKS in packages/tasks/src/eval.ts
of huggingface.js). For Inspect, `inspect-ai`, tasks also need columns, solvers and scorers, out of
those that Inspect allows (HFTask in inspect_ai/_eval/task/hf.py); then
`inspect eval hf/OWNER/NAME/TASK` runs a task. Inspect's own metrics give the accuracy on variants,
but not seed-variant accuracy, so models are listed by what `merge-nli publish results` computes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from merge_dataset.layout import all_configurations, format_in
from merge_dataset.schema import ProblemFormat

BENCHMARK_FILE: Final = "eval.yaml"

BENCHMARK_THRESHOLD: Final = 90
"""Correctness threshold, in percent, of the figure that models are listed by."""

FRAMEWORK: Final = "inspect-ai"

_DESCRIPTION: Final = f"""\
Tests whether a model that answers a natural language inference problem right also answers minimal \
variants of it right. The value is seed-variant accuracy in percent, as merge-nli computes it: the \
share of seed problems of which at least {BENCHMARK_THRESHOLD} % of the variants are classified \
correctly. Higher is better. Inspect itself reports another figure: accuracy on variants.\
"""

_IDS: Final = ("variant_id", "seed_id")
"""Columns that name a problem in Inspect's logs."""


def benchmark(folder: Path) -> bytes:
    """Write `eval.yaml`: a task per configuration, over its variants."""
    value: dict[str, Any] = {
        "name": "MERGE-NLI",
        "description": _DESCRIPTION,
        "evaluation_framework": FRAMEWORK,
        "tasks": [_task(name, format_in(folder, name)) for name in all_configurations(folder)],
    }
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
    return text.encode()


def _task(config: str, problem_format: ProblemFormat) -> dict[str, Any]:
    # Inspect gives templates its input as {prompt}, and other columns by their names.
    fields = problem_format.fields
    asked = "prompt" if "prompt" in fields else fields[-1]
    others = [name for name in fields if name != asked]
    texts = [
        f"{name.replace('_', ' ').capitalize()}: {{{'prompt' if name == asked else name}}}"
        for name in fields
    ]
    # Labels are numbers, as Inspect reads them from the column.
    codes = [f"{code} for {label}" for code, label in enumerate(problem_format.labels)]
    question = f"Which label is right: {', '.join(codes[:-1])} or {codes[-1]}?"
    form = 'The last line of your response should be of the form "ANSWER: NUMBER", without quotes.'
    template = "\n".join([*texts, "", question, form])
    return {
        "id": config,
        "config": config,
        "split": "variants",
        "field_spec": {"input": asked, "target": "label", "metadata": [*others, *_IDS]},
        "solvers": [
            {"name": "prompt_template", "args": {"template": template}},
            {"name": "generate"},
        ],
        "scorers": [{"name": "answer", "args": {"pattern": "word"}}],
    }
