"""A dataset folder with problems that models can be asked about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from helpers.tiny_models import sentences
from merge_dataset.schema import PARAPHRASE, arrow_schema, config_files, config_name

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
    """Write a dataset folder.

    Args:
        folder: Where.
        problems: By id: `snli:1` for a seed, `snli:1/noun/0` for its variant, or
            `snli:1/paraphrase/0`; seeds that have only paraphrases are only theirs.
    """
    for source in {name.partition(":")[0] for name in problems}:
        own = {name: it for name, it in problems.items() if name.startswith(f"{source}:")}
        variants = {name: name.split("/")[1] for name in own if "/" in name}
        classes_of: dict[str, set[str]] = {name: set() for name in own if name not in variants}
        for name, variant_class in variants.items():
            classes_of[name.partition("/")[0]].add(variant_class)
        if whole := [name for name, classes in classes_of.items() if classes != {PARAPHRASE}]:
            _write_split(folder / f"{source}/seeds.parquet", whole, own)
            (folder / source / "provenance.json").write_text("{}")
        for variant_class in set(variants.values()):
            files = config_files(config_name(source, variant_class))
            seeds = [name for name, classes in classes_of.items() if variant_class in classes]
            names = [name for name, each in variants.items() if each == variant_class]
            _write_split(folder / files["seeds"][0], seeds, own)
            _write_split(folder / files["variants"][0], names, own, variant_class)
            if variant_class == PARAPHRASE:
                (folder / files["seeds"][0]).with_name("provenance.json").write_text("{}")
    return folder


def _write_split(
    path: Path, names: Iterable[str], problems: Mapping[str, Problem], word_class: str | None = None
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_rows(path, (problem_row(name, problems[name], word_class) for name in names))


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows in the columns of the dataset."""
    pq.write_table(pa.Table.from_pylist(list(rows), schema=arrow_schema()), path)


def many_problems(seeds: int, variants: int, source: str = "snli") -> dict[str, Problem]:
    """Seeds with variants, in sentences of different lengths."""
    texts = sentences(300)
    problems = {}
    for i in range(seeds):
        for j in range(variants + 1):
            name = f"{source}:{i}/{('noun', 'verb')[j % 2]}/{j}" if j else f"{source}:{i}"
            premise, hypothesis = texts[(7 * i + j) % 200], texts[(3 * i + j % 3) % 100]
            problems[name] = (premise, hypothesis, i % 3)
    return problems
