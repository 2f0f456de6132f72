from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers.dataset_files import write_source
from helpers.tiny_models import sentences

Problem = tuple[str, str, int]
"""Premise, hypothesis, gold label."""


def problem_row(variant_id: str, problem: Problem, word_class: str | None = None) -> dict[str, Any]:
    """A row of the dataset; of `variant_id` what is before the first slash is the seed's id."""
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
    """Write a dataset folder of problems by id: `snli:1`, `snli:1/noun/0` and the like."""
    for source in {name.partition(":")[0] for name in problems}:
        rows = [
            problem_row(name, problem, name.split("/")[1] if "/" in name else None)
            for name, problem in problems.items()
            if name.startswith(f"{source}:")
        ]
        seeds, variants = ([row for row in rows if (row["word_class"] is None) == bare]
                           for bare in (True, False))  # fmt: skip
        write_source(folder, seeds, variants)
    return folder


def many_problems(seeds: int, variants: int, source: str = "snli") -> dict[str, Problem]:
    texts = sentences(300)
    problems = {}
    for i in range(seeds):
        for j in range(variants + 1):
            name = f"{source}:{i}/{('noun', 'verb')[j % 2]}/{j}" if j else f"{source}:{i}"
            premise, hypothesis = texts[(7 * i + j) % 200], texts[(3 * i + j % 3) % 100]
            problems[name] = (premise, hypothesis, i % 3)
    return problems
