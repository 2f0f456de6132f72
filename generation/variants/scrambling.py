"""Replacements whose letters are shuffled (ablation `scrambled`, D13)."""

from __future__ import annotations

import pyarrow as pa

from generation.signals.automatic import AGREEMENT, zipf_frequencies
from generation.variants.filters import match_case
from generation.variants.rows import scramble


def scrambled(table: pa.Table, rng_seed: int) -> pa.Table:
    """The same replacements with their letters shuffled, each outcome once."""
    first: dict[tuple[str, ...], int] = {}
    names = ("seed_id", "word_class", "word", "replacement")
    columns = (table[name].to_pylist() for name in names)
    for row, (*word_of_seed, text) in enumerate(zip(*columns, strict=True)):
        seed_id, _, word = word_of_seed
        shuffled = match_case(scramble(text.lower(), f"{rng_seed}\n{seed_id}"), word)
        first.setdefault((*word_of_seed, shuffled), row)
    column = table.schema.get_field_index("replacement")
    texts = pa.array([shuffled for *_, shuffled in first], pa.string())
    rows = pa.array(first.values(), pa.int64())
    table = table.take(rows).set_column(column, table.schema.field(column), texts)
    return as_no_words(table)


def as_no_words(table: pa.Table) -> pa.Table:
    """With the signals of what is no word: a frequency, but nothing that it could agree in."""
    new = {"zipf_frequency": zipf_frequencies(table["replacement"])}
    new |= {name: pa.nulls(len(table), pa.bool_()) for name in AGREEMENT}
    return pa.table({name: new.get(name, table[name]) for name in table.column_names}, table.schema)
