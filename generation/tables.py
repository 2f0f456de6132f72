"""Records ↔ the tables of a run folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from generation.records import Exclusion, Replacement, Seed

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
    ]
)
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
    """The problems as `suggest` read them, in the order of the source."""
    return _table(seeds, PROBLEMS)


def read_problems(path: Path) -> list[Seed]:
    """The inverse of `problem_table`."""
    rows = pq.read_table(path).to_pylist()
    return [Seed(**{**row, "annotator_labels": tuple(row["annotator_labels"])}) for row in rows]


def replacement_table(replacements: Iterable[Replacement]) -> pa.Table:
    """One row per replacement, sorted by seed, class, word and replacement."""
    ordered = sorted(replacements, key=lambda r: (r.seed_id, r.word_class, r.word, r.replacement))
    return _table(ordered, REPLACEMENTS)


def read_replacements(path: Path) -> list[Replacement]:
    """The inverse of `replacement_table`."""
    rows = pq.read_table(path).to_pylist()
    return [
        Replacement(
            **{
                **row,
                "premise_mlms": tuple(row["premise_mlms"]),
                "hypothesis_mlms": tuple(row["hypothesis_mlms"]),
            }
        )
        for row in rows
    ]


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
