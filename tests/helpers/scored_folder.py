"""A dataset folder small enough to score by hand, and a model's predictions for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from merge_dataset.schema import CONFIG_SUFFIXES, LABELS, arrow_schema

E, N, C = range(3)

SEEDS = {"snli:a": (E, E), "snli:b": (N, N), "snli:c": (C, E), "demo:d": (N, N)}
"""Seed → gold label, prediction."""

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
"""Variant → subsamples that drew it, prediction, masked LMs that suggested it."""

Rows = list[dict[str, Any]]


def seed_of(problem: str) -> str:
    """The seed of a problem, by its id."""
    return problem.partition("/")[0]


def write_folder(folder: Path) -> Path:
    """Write the dataset folder: sources `snli` (nouns, verbs) and `demo` (nouns)."""
    for source in ("snli", "demo"):
        (folder / source).mkdir(parents=True)
        (folder / source / "provenance.json").write_text("{}")
        seeds = [seed for seed in SEEDS if seed.startswith(source)]
        write_rows(folder / source / "seeds.parquet", map(problem_row, seeds))
        for word_class in ("noun", "verb"):
            names = [v for v in VARIANTS if v.startswith(source) and f"/{word_class}/" in v]
            if names:
                class_folder = folder / source / CONFIG_SUFFIXES[word_class]
                class_folder.mkdir()
                eligible = dict.fromkeys(map(seed_of, names))
                write_rows(class_folder / "seeds.parquet", map(problem_row, eligible))
                write_rows(class_folder / "variants.parquet", map(problem_row, names))
    return folder


def write_rows(path: Path, rows: Any) -> None:
    """Write rows in the columns of the dataset."""
    pq.write_table(pa.Table.from_pylist(list(rows), schema=arrow_schema()), path)


def problem_row(problem: str) -> dict[str, Any]:
    """A row of the dataset; columns that scoring does not read are empty."""
    seed = seed_of(problem)
    row = {"variant_id": problem, "seed_id": seed, "label": SEEDS[seed][0], "subsamples": []}
    if problem in VARIANTS:
        subsamples, _, mlms = VARIANTS[problem]
        row |= {"word_class": problem.split("/")[1], "subsamples": subsamples, "mlms": mlms}
    return row


def predicted(source: str = "") -> Rows:
    """The predictions file's rows for all problems of a source, labels as ints."""
    answers = {seed: prediction for seed, (_, prediction) in SEEDS.items()}
    answers |= {variant: prediction for variant, (_, prediction, _) in VARIANTS.items()}
    return [
        {
            "variant_id": problem,
            "seed_id": seed_of(problem),
            "label": SEEDS[seed_of(problem)][0],
            "prediction": prediction,
        }
        for problem, prediction in answers.items()
        if problem.startswith(source)
    ]


def without(rows: Rows, *problems: str) -> Rows:
    """The rows of all other problems."""
    return [row for row in rows if row["variant_id"] not in problems]


def named(rows: Rows) -> Rows:
    """The rows with names of labels."""
    return [
        {**row, "label": LABELS[row["label"]], "prediction": LABELS[row["prediction"]]}
        for row in rows
    ]
