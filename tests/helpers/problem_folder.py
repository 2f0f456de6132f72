from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers.dataset_files import write_problems
from helpers.tiny_models import sentences

Problem = tuple[str, str, int]
"""Premise, hypothesis, gold label."""


def problem_row(variant_id: str, problem: Problem, word_class: str | None = None) -> dict[str, Any]:
    """A row of the dataset; the seed's id is `variant_id` up to the first slash."""
    premise, hypothesis, label = problem
    return {
        "variant_id": variant_id,
        "seed_id": variant_id.partition("/")[0],
        "source": variant_id.partition(":")[0],
        "premise": premise,
        "hypothesis": hypothesis,
        "label": label,
        "word_class": word_class,
    }


def write_folder(folder: Path, problems: Mapping[str, Problem]) -> Path:
    """Write a dataset folder of problems by id, such as `snli:1` or `snli:1/noun/0`."""
    classes = {name: name.split("/")[1] if "/" in name else None for name in problems}
    return write_problems(folder, [problem_row(n, problems[n], classes[n]) for n in problems])


def many_problems(seeds: int, variants: int, source: str = "snli") -> dict[str, Problem]:
    texts = sentences(300)
    problems = {}
    for i in range(seeds):
        for j in range(variants + 1):
            name = f"{source}:{i}/{('noun', 'verb')[j % 2]}/{j}" if j else f"{source}:{i}"
            premise, hypothesis = texts[(7 * i + j) % 200], texts[(3 * i + j % 3) % 100]
            problems[name] = (premise, hypothesis, i % 3)
    return problems
