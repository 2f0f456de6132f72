"""A published dataset as a benchmark of the Hub: `eval.yaml`, whose tasks Inspect runs.

Inspect's `pattern` scorer searches an answer for a regular expression, and compares its groups with
the gold letter. Ours reads the last line "ANSWER: LETTER" as `merge-nli predict --answers words`
reads it, or not at all; a label's name alone cannot be compared with a letter.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Final

import yaml

from merge_dataset.card import environment, title_of
from merge_dataset.files import read_record
from merge_dataset.layout import PROVENANCE, collections, format_in
from merge_dataset.provenance import REPLACEMENTS, kind_of

BENCHMARK_FILE: Final = "eval.yaml"


def benchmark(folder: Path) -> bytes | None:
    """Return the content of `eval.yaml`: the folder's own file, or one with a task per source.

    None if no source has a task. Single word classes, ablations and paraphrases, which one NLI
    model chose, have no tasks. The Hub (docs: hub/eval-results) requires one of
    EVALUATION_FRAMEWORKS in packages/tasks/src/eval.ts of huggingface.js. Inspect's tasks need
    columns, solvers and scorers (HFTask in inspect_ai/_eval/task/hf.py), and measure accuracy on
    variants.
    """
    own = folder / BENCHMARK_FILE
    if own.is_file():
        return own.read_bytes()
    made = {
        name: read_record(folder / name / PROVENANCE, verify=False) for name in collections(folder)
    }
    formats = {
        name: format_in(folder, name)
        for name, record in made.items()
        if kind_of(record) == REPLACEMENTS and record.get("ablation") in (None, "paper")
    }
    if not formats:
        return None
    template = environment(Path(__file__).parent).get_template(f"{BENCHMARK_FILE}.j2")
    given = {"formats": formats, "letters": ascii_uppercase, "answer_pattern": answer_pattern}
    written = yaml.safe_load(template.render(given, title=title_of(folder)))
    return str(yaml.safe_dump(written, sort_keys=False, width=math.inf)).encode("ascii")


def task_ids(folder: Path) -> list[str]:
    """List the ids of tasks in the `eval.yaml` that `benchmark` returns."""
    try:
        value = yaml.safe_load(benchmark(folder) or b"tasks: []")
        return [str(task["id"]) for task in value["tasks"]]
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise ValueError(
            f"{folder / BENCHMARK_FILE}: expected a list `tasks` of tasks with an `id`, got "
            f"something else ({type(error).__name__}: {error}); mend or delete it"
        ) from error


def answer_pattern(fields: Sequence[str], labels: Sequence[str]) -> str:
    r"""Write the expression for a problem format; it has a group for each letter.

    >>> pattern = answer_pattern(["premise", "hypothesis"], ["entailment", "neutral"])
    >>> text = "They agree.\n**ANSWER:** (A) Entailment\n\nPremise: It rains.\nANSWER: B"
    >>> re.search(pattern, text, re.IGNORECASE).groups()
    ('A', None)
    """
    template = environment(Path(__file__).parent).get_template("answer_pattern.j2")
    expression = template.render(
        first=re.escape(fields[0].replace("_", " ")),
        letters=ascii_uppercase[: len(labels)],
        names=[re.escape(label) for label in labels],
    )
    return expression.replace("\n", "")
