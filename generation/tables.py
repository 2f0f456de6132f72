"""The tables of a run folder, and the records some of them are made of."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from generation.records import Exclusion, Seed
from merge_dataset.schema import SIGNALS, arrow_schema

_NAMES = pa.list_(pa.string())

PROBLEMS = pa.schema(
    [
        ("seed_id", pa.string()),
        ("source", pa.string()),
        ("premise", pa.string()),
        ("hypothesis", pa.string()),
        ("label", pa.string()),
        ("annotator_labels", _NAMES),
    ]
)
REPLACEMENTS = pa.schema(
    [
        ("seed_id", pa.string()),
        ("source", pa.string()),
        ("word", pa.string()),
        ("word_class", pa.string()),
        ("replacement", pa.string()),
        ("premise_mlms", _NAMES),
        ("hypothesis_mlms", _NAMES),
        ("log_odds", pa.float32()),
        *((name, arrow_schema().field(name).type) for name in SIGNALS),
    ]
)
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


def problem_table(seeds: Iterable[Seed]) -> pa.Table:
    """One row per problem, in the order given."""
    return _table(seeds, PROBLEMS)


def sorted_replacements(*tables: pa.Table) -> pa.Table:
    """Replacements in one piece, sorted by seed, class, word and replacement."""
    table = pa.concat_tables(tables or [REPLACEMENTS.empty_table()])
    order = [(name, "ascending") for name in REPLACEMENT_KEY]
    # One chunk per column, as the bytes of a Parquet file depend on the chunks.
    return table.sort_by(order).combine_chunks()


def exclusion_table(exclusions: Iterable[Exclusion]) -> pa.Table:
    """One row per exclusion, sorted by seed, class and word."""
    ordered = sorted(
        exclusions, key=lambda e: (e.seed_id, e.word_class or "", e.word or "", e.reason)
    )
    return _table(ordered, EXCLUSIONS)


def _table(records: Iterable[object], schema: pa.Schema) -> pa.Table:
    """One row per record, one column per field of the same name."""
    rows = list(records)
    columns = {name: [getattr(row, name) for row in rows] for name in schema.names}
    return pa.table(columns, schema=schema)
