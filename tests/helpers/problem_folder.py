"""A dataset folder with problems that models can be asked about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from helpers.tiny_models import sentences
from merge_dataset.schema import CONFIG_SUFFIXES, arrow_schema

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
        problems: By id: `snli:1` for a seed, `snli:1/noun/0` for its variant.
    """
    for source in {name.partition(":")[0] for name in problems}:
        own = {name: it for name, it in problems.items() if name.startswith(f"{source}:")}
        variants = {name: name.split("/")[1] for name in own if "/" in name}
        (folder / source).mkdir(parents=True)
        (folder / source / "provenance.json").write_text("{}")
        rows = [problem_row(name, it) for name, it in own.items() if name not in variants]
        write_rows(folder / source / "seeds.parquet", rows)
        for word_class in set(variants.values()):
            place = folder / source / CONFIG_SUFFIXES[word_class]
            place.mkdir()
            names = [name for name, each in variants.items() if each == word_class]
            seeds = dict.fromkeys(name.partition("/")[0] for name in names)
            write_rows(place / "seeds.parquet", (problem_row(n, own[n]) for n in seeds))
            write_rows(
                place / "variants.parquet", (problem_row(n, own[n], word_class) for n in names)
            )
    return folder


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
