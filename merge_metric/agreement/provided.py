"""What each masked LM provides of a dataset or run: alone, and together with which others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from merge_dataset.files import read_row_groups
from merge_metric.tables import Column, Table

_MLMS: Final = "_mlms"
"""Ending of the columns that say who validated a replacement in which text."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Provided:
    """Counts over the replacements of a dataset or run."""

    what: str
    """For people."""
    unit: str
    """What is counted: variants or replacements."""
    mlms: tuple[str, ...]
    """Sorted."""
    n_problems: int
    shared: NDArray[np.float64]
    """(M, M) replacements of a problem that two masked LMs have in common, and on the diagonal
    those that one has alone, on average over problems (paper, figure 11)."""
    lost: Mapping[str, tuple[int, int]]
    """Masked LM → what would go without it: replacements, and problems with none left."""


def provided(
    paths: Sequence[Path],
    *,
    what: str,
    unit: str,
    sources: Collection[str] = (),
    without: Collection[str] = (),
) -> Provided:
    """Count over a dataset's files of variants or a run's `replacements.parquet`.

    Args:
        paths: The files.
        what: What they are, for people.
        unit: What a row is, in the plural.
        sources: Leave out others; by default none.
        without: As if these masked LMs had not been asked.

    Raises:
        ValueError: they hold no replacement that a masked LM validated.
    """
    columns = {path: mlm_columns(path) for path in paths}
    mlms = sorted({name for path in paths for name in _names(path, columns[path])} - {*without})
    together = np.zeros((len(mlms), len(mlms)), np.int64)
    goes = np.zeros(len(mlms), np.int64)
    stays: dict[str, Bools] = {}
    for path in paths:
        for table in read_row_groups(path, ["seed_id", "source", *columns[path]]):
            if sources:
                table = table.filter(pc.is_in(table["source"], pa.array(sorted(sources))))
            seed_ids, texts = _members(table, columns[path], mlms)
            has, needs = _any(texts, 1), _any(_alone(texts), 1)
            in_common = has.T.astype(np.int64) @ has
            np.fill_diagonal(in_common, _alone(has).sum(axis=0))
            together += in_common
            goes += needs.sum(axis=0)
            for seed_id, left in _by_seed(seed_ids, ~needs):
                stays[seed_id] = stays.get(seed_id, False) | left
    if not stays:
        raise ValueError(f"{what}: expected replacements that masked LMs validated, found none")
    gone = (~np.stack(list(stays.values()))).sum(axis=0)
    return Provided(
        what=what,
        unit=unit,
        mlms=tuple(mlms),
        n_problems=len(stays),
        shared=together / len(stays),
        lost={mlm: (int(goes[i]), int(gone[i])) for i, mlm in enumerate(mlms)},
    )


def shared_table(found: Provided) -> Table:
    """The matrix of figure 11."""
    numbers = [str(n) for n in range(1, len(found.mlms) + 1)]
    return Table(
        name="shared",
        title=f"{found.unit.capitalize()} of a problem that two masked LMs have in common",
        columns=(
            Column("number", ""),
            Column("mlm", "masked LM"),
            *(Column(mlm, n, "number") for n, mlm in zip(numbers, found.mlms, strict=True)),
        ),
        rows=tuple(
            {"number": n, "mlm": mlm, **dict(zip(found.mlms, row, strict=True))}
            for n, mlm, row in zip(numbers, found.mlms, found.shared.tolist(), strict=True)
        ),
        notes=(
            f"On average over the {found.n_problems:,} problems of {found.what}; on the diagonal "
            "those that no other masked LM has.",
        ),
    )


def mlm_columns(path: Path) -> list[str]:
    """The columns that say who validated a replacement in which text."""
    with pq.ParquetFile(path) as file:
        return [name for name in file.schema_arrow.names if name.endswith(_MLMS)]


def _names(path: Path, columns: Sequence[str]) -> set[str]:
    return {
        name
        for table in read_row_groups(path, columns)
        for column in columns
        for name in pc.list_flatten(table[column]).unique().to_pylist()
    }


def _members(
    table: pa.Table, columns: Sequence[str], mlms: Sequence[str]
) -> tuple[list[str], Bools]:
    """Seeds of the rows, and (n, texts, M) who validated them in which text.

    Rows that nobody among `mlms` validated in some text are left out.
    """
    members = np.zeros((len(table), len(columns), len(mlms)), np.bool_)
    names = pa.array(mlms, pa.string())
    for number, column in enumerate(columns):
        lists = table[column].combine_chunks()
        which = pc.fill_null(pc.index_in(pc.list_flatten(lists), names), -1).to_numpy()
        rows = pc.list_parent_indices(lists).to_numpy()
        members[rows[which >= 0], number, which[which >= 0]] = True
    left = ~_any(~_any(members, 2), 1)
    return table["seed_id"].filter(pa.array(left)).to_pylist(), members[left]


def _alone(members: Bools) -> Bools:
    """Who is a set's only member, along the last axis."""
    alone: Bools = members & (members.sum(axis=-1, keepdims=True) == 1)
    return alone


def _any(members: Bools, axis: int) -> Bools:
    return np.asarray(members.any(axis=axis), np.bool_)


def _by_seed(seed_ids: Sequence[str], rows: Bools) -> Iterator[tuple[str, Bools]]:
    """Of each run of rows of one seed whether any holds, by column."""
    starts = [i for i, name in enumerate(seed_ids) if not i or seed_ids[i - 1] != name]
    for start, end in pairwise([*starts, len(seed_ids)]):
        yield seed_ids[start], _any(rows[start:end], 0)
