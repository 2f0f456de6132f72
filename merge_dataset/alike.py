"""Variants of different problems with the same texts, which problems that differ by a word have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from merge_dataset.files import read_row_groups, read_table
from merge_dataset.repeats import Digests, digests_of, is_among, repeats


def describe_alike(parts: Sequence[Path], fields: Sequence[str]) -> str:
    """Say which variants have the texts of another problem's, and what to do; else nothing.

    Those of problems that are themselves alike, word for word, are left out, as `merge-nli check`
    leaves them out. Memory takes the problems of one part, and texts that stand in two rows.

    Args:
        parts: Folders of seeds and variants: a run, or its slices.
        fields: Columns of texts.
    """
    with repeats() as every:
        for part in parts:
            for table in read_row_groups(part / "variants.parquet", fields):
                every.add(_digests(table, fields))
        twice = every.found()
    if not len(twice):
        return ""
    found = [_with_problems(part, fields, twice) for part in parts]
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


def _with_problems(part: Path, fields: Sequence[str], twice: Digests) -> Digests:
    """Digest [n, 2] the texts of variants that are among some, and those of their problems."""
    table = read_table(part / "seeds.parquet", ["seed_id", *fields])
    problems = dict(
        zip(table["seed_id"].to_pylist(), _digests(table, fields).tolist(), strict=True)
    )
    found = [np.empty((0, 2), np.uint64)]
    for table in read_row_groups(part / "variants.parquet", ["seed_id", *fields]):
        digests = _digests(table, fields)
        rows = np.flatnonzero(is_among(digests, twice))
        own = [problems.get(name, 0) for name in table["seed_id"].take(rows).to_pylist()]
        found.append(np.column_stack([digests[rows], np.array(own, np.uint64)]))
    return np.concatenate(found)


def _digests(table: pa.Table, fields: Sequence[str]) -> Digests:
    """Digest the texts of each row to 64 bits."""
    rows = zip(*(table[name].to_pylist() for name in fields), strict=True)
    return digests_of(map("\0".join, rows))
