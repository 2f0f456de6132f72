"""A dataset folder small enough to be scored by hand, and predictions of a model."""

from pathlib import Path
from typing import Any

from helpers.dataset_files import write_problems
from merge_dataset.schema import LABELS

E, N, C = range(3)

SEEDS = {"snli:a": (E, E), "snli:b": (N, N), "snli:c": (C, E), "demo:d": (N, N)}
"""Seed → gold label and prediction."""

VARIANTS = {
    "snli:a/noun/1": ([0, 1], E, ["x/big", "y/small"]),
    "snli:a/noun/2": ([0], C, ["x/big"]),
    "snli:a/noun/3": ([1], E, ["y/small"]),
    "snli:b/noun/1": ([0, 1], N, ["x/big"]),
    "snli:b/noun/2": ([0, 1], N, ["y/small"]),
    "snli:b/verb/1": ([0, 1], N, ["x/big"]),
    "snli:b/verb/2": ([0], E, ["x/big"]),
    "snli:b/verb/3": ([1], N, ["x/big"]),
    "snli:c/verb/1": ([0, 1], C, ["x/big"]),
    "snli:c/verb/2": ([0, 1], E, ["x/big"]),
    "demo:d/noun/1": ([0, 1], N, ["x/big"]),
}
"""Variant → its subsamples, its prediction, and the masked LMs that suggested it."""

Rows = list[dict[str, Any]]


def seed_of(problem: str) -> str:
    return problem.partition("/")[0]


def write_folder(folder: Path) -> Path:
    """Write the dataset folder: sources `snli` (nouns, verbs) and `demo` (nouns)."""
    return write_problems(folder, list(map(problem_row, [*SEEDS, *VARIANTS])))


def problem_row(problem: str) -> dict[str, Any]:
    seed = seed_of(problem)
    row = {"variant_id": problem, "seed_id": seed, "label": SEEDS[seed][0], "subsamples": []}
    if problem in VARIANTS:
        subsamples, _, mlms = VARIANTS[problem]
        row |= {"word_class": problem.split("/")[1], "subsamples": subsamples, "mlms": mlms}
    return row


def predicted(source: str = "") -> Rows:
    answers = {seed: prediction for seed, (_, prediction) in SEEDS.items()}
    answers |= {variant: prediction for variant, (_, prediction, _) in VARIANTS.items()}
    return [
        {
            "variant_id": problem, "seed_id": seed_of(problem), "label": SEEDS[seed_of(problem)][0],
            "prediction": prediction,
        }
        for problem, prediction in answers.items()
        if problem.startswith(source)
    ]  # fmt: skip


def without(rows: Rows, *problems: str) -> Rows:
    return [row for row in rows if row["variant_id"] not in problems]


def named(rows: Rows) -> Rows:
    return [
        {**row, "label": LABELS[row["label"]], "prediction": LABELS[row["prediction"]]}
        for row in rows
    ]
