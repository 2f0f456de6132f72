"""The tables of a run folder, and the records some of them are made of."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from generation.records import Exclusion, Seed
from merge_dataset.schema import NLI, ProblemFormat, arrow_schema, format_of, with_format

_NAMES = pa.list_(pa.string())

REPLACEMENT_KEY = ("seed_id", "word_class", "word", "replacement")
"""The columns that tell replacements apart, in the order by which they are sorted."""
EXCLUSIONS = pa.schema(
    [
        ("seed_id", pa.string()),
        ("source", pa.string()),
        ("word", pa.string()),
        ("word_class", pa.string()),
        ("reason", pa.string()),
        ("replacements", pa.int64()),
    ]
)


def problem_schema(problem_format: ProblemFormat = NLI) -> pa.Schema:
    """Columns of `problems.parquet`."""
    columns = [
        ("seed_id", pa.string()),
        ("source", pa.string()),
        *((field, pa.string()) for field in problem_format.fields),
        ("label", pa.string()),
        ("annotator_labels", _NAMES),
    ]
    return with_format(pa.schema(columns), problem_format)


def replacement_schema(problem_format: ProblemFormat = NLI) -> pa.Schema:
    """Columns of `replacements.parquet`."""
    of_variants = arrow_schema(problem_format)
    columns = [
        ("seed_id", pa.string()),
        ("source", pa.string()),
        ("word", pa.string()),
        ("word_class", pa.string()),
        ("replacement", pa.string()),
        *((name, _NAMES) for name in problem_format.mlms),
        ("log_odds", pa.float32()),
        *((name, of_variants.field(name).type) for name in problem_format.signals),
    ]
    return with_format(pa.schema(columns), problem_format)


def problem_table(seeds: Iterable[Seed], problem_format: ProblemFormat = NLI) -> pa.Table:
    """One row per problem, in the order given."""
    rows = list(seeds)
    columns = {
        name: [getattr(row, name) for row in rows]
        for name in ("seed_id", "source", "label", "annotator_labels")
    } | {field: [row.texts[n] for row in rows] for n, field in enumerate(problem_format.fields)}
    return pa.table(columns, schema=problem_schema(problem_format))


def seeds_in(problems: pa.Table) -> list[Seed]:
    """The inverse of `problem_table`."""
    fields = format_of(problems.schema).fields
    return [
        Seed(
            texts=tuple(row.pop(field) for field in fields),
            annotator_labels=tuple(row.pop("annotator_labels")),
            **row,
        )
        for row in problems.to_pylist()
    ]


def sorted_replacements(table: pa.Table) -> pa.Table:
    """Replacements in one piece, sorted by seed, class, word and replacement."""
    order = [(name, "ascending") for name in REPLACEMENT_KEY]
    # One chunk per column, as the bytes of a Parquet file depend on the chunks.
    return table.sort_by(order).combine_chunks()


def exclusion_table(exclusions: Iterable[Exclusion]) -> pa.Table:
    """One row per exclusion, sorted by seed, class and word."""
    ordered = sorted(
        exclusions, key=lambda e: (e.seed_id, e.word_class or "", e.word or "", e.reason)
    )
    columns = {name: [getattr(row, name) for row in ordered] for name in EXCLUSIONS.names}
    return pa.table(columns, schema=EXCLUSIONS)
