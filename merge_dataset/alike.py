"""Variants of different problems with the same texts, which problems that differ by a word have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from merge_dataset.files import read_row_groups, read_table
from merge_dataset.repeats import Digests, digests_of


def describe_alike(parts: Sequence[Path], fields: Sequence[str]) -> str:
    """Say which variants have the texts of another problem's, and what to do; else nothing.

    Those of problems that are themselves alike, word for word, are left out, as `merge-nli check`
    leaves them out. Memory takes 16 bytes per variant, and the problems of one part.

    Args:
        parts: Folders of seeds and variants: a run, or its slices.
        fields: Columns of texts.
    """
    found = [np.empty((0, 2), np.uint64)]
    for part in parts:
        table = read_table(part / "seeds.parquet", ["seed_id", *fields])
        problems = dict(
            zip(table["seed_id"].to_pylist(), _digests(table, fields).tolist(), strict=True)
        )
        for table in read_row_groups(part / "variants.parquet", ["seed_id", *fields]):
            own = [problems.get(name, 0) for name in table["seed_id"].to_pylist()]
            found.append(np.column_stack([_digests(table, fields), np.array(own, np.uint64)]))
    texts, times = np.unique(np.unique(np.concatenate(found), axis=0)[:, 0], return_counts=True)
    alike = texts[times > 1]
    if not len(alike):
        return ""
    examples: list[str] = []
    for part in parts:
        for table in read_row_groups(part / "variants.parquet", ["variant_id", *fields]):
            rows = np.flatnonzero(_digests(table, fields) == alike[0])
            examples += table["variant_id"].take(rows).to_pylist()
    return (
        f"texts that stand in variants of several problems: {len(alike):,}, such as that of "
        f"{' and '.join(examples[:2])}; `merge-nli check` and `register` will refuse the dataset: "
        f"of problems that differ by one word, leave one out of the data"
    )


def _digests(table: pa.Table, fields: Sequence[str]) -> Digests:
    """Digest the texts of each row to 64 bits."""
    rows = zip(*(table[name].to_pylist() for name in fields), strict=True)
    return digests_of(map("\0".join, rows))
