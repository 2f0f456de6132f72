"""Masked LMs to drop: what would go with each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset.files import read_row_groups
from merge_metric.agreement.judgements import Bools, Judgements, mlm_columns
from merge_metric.agreement.shares import newcombe, wilson
from merge_metric.tables import Column, Table

DROP: Final = "drop"
KEEP: Final = "keep"
UNKNOWN: Final = "unknown"

FEWEST: Final = 10
"""Judged variants that have to go, and to stay, for a verdict: a single bad one is none."""

_RULE: Final = (
    f"Verdict: {DROP} where the whole interval of the difference lies below zero, else {KEEP}; "
    f"{UNKNOWN} where fewer than {FEWEST} judged variants go, or stay. Each masked LM is looked at "
    f"as if the others stayed, and what two of them share goes with neither: after dropping one, "
    f"look again with --without-mlm."
)


@dataclass(frozen=True, slots=True, eq=False)
class Provided:
    """Counts over the replacements of a dataset or run."""

    what: str
    """Name of the dataset or run, for people."""
    unit: str
    """Name of what is counted: variants or replacements."""
    lost: Mapping[str, tuple[int, int]]
    """Masked LM → replacements that would go without it, and problems with none left."""


# --- What to drop ---


def drop_table(judgements: Judgements, provided: Provided | None = None) -> Table:
    """Tabulate what would go with each masked LM, a row for each.

    Raises:
        ValueError: nothing is known of the variants.
    """
    if judgements.items is None:
        raise ValueError("expected what is known of the variants, got answers alone")
    mlms = sorted({mlm for item in judgements.items for mlm in item.mlms})
    rows = [{"mlm": mlm, **_row(judgements, mlm)} for mlm in mlms]
    if provided:
        for row in rows:
            row["variants_lost"], row["seeds_lost"] = provided.lost.get(row["mlm"], (0, 0))
    return Table(
        name="mlms",
        title="Which masked LM to drop",
        columns=(
            Column("mlm", "masked LM"),
            Column("n_validated", "validated", "count"),
            Column("validated", "good, %", "share", "validated_ci"),
            Column("n_goes", "goes", "count"),
            Column("goes", "good, %", "share", "goes_ci"),
            Column("n_stays", "stays", "count"),
            Column("stays", "good, %", "share", "stays_ci"),
            Column("difference", "difference", "points", "difference_ci"),
            *(
                [
                    Column("variants_lost", f"{provided.unit} lost", "count"),
                    Column("seeds_lost", "seeds lost", "count"),
                ]
                if provided
                else []
            ),
            Column("verdict", "verdict"),
        ),
        rows=tuple(rows),
        notes=(
            "Validated: judged variants that it validated in a text. Goes: those that would not be "
            "there without it, as in one of their texts no other validated them. Stays: all other "
            "judged variants. Difference: good of what goes less good of what stays, in "
            "percentage points.",
            "In brackets 95 % intervals: of shares Wilson's, of differences Newcombe's, which hold "
            "where few variants go and where all of them are bad; resampling them would not. Both "
            "take variants of a seed for independent.",
            _RULE,
            *(
                [
                    f"Lost: {provided.unit} of {provided.what} that need it, and seeds of which "
                    "none would be left. More seeds may fall below the number of replacements "
                    "that makes them eligible; the build says so."
                ]
                if provided
                else []
            ),
        ),
    )


def dropped(table: Table) -> list[str]:
    """List the masked LMs whose verdict is to drop them."""
    return [row["mlm"] for row in table.rows if row["verdict"] == DROP]


def _row(judgements: Judgements, mlm: str) -> dict[str, Any]:
    """Compare the variants that need a masked LM with all others."""
    parts = {
        "validated": judgements.where(lambda item: mlm in item.mlms),
        "goes": judgements.where(lambda item: mlm in item.sole_validators),
        "stays": judgements.where(lambda item: mlm not in item.sole_validators),
    }
    row: dict[str, Any] = {}
    for name, part in parts.items():
        n, good = len(part.variant_ids), int(part.good.sum())
        row |= {f"n_{name}": n, f"n_good_{name}": good}
        row |= {name: good / n if n else None, f"{name}_ci": wilson(good, n) if n else None}
    if not (row["n_goes"] and row["n_stays"]):
        return row | {"difference": None, "difference_ci": None, "verdict": UNKNOWN}
    bounds = newcombe(row["n_good_goes"], row["n_goes"], row["n_good_stays"], row["n_stays"])
    verdict = DROP if bounds[1] < 0 else KEEP
    if min(row["n_goes"], row["n_stays"]) < FEWEST:
        verdict = UNKNOWN
    difference = {"difference": row["goes"] - row["stays"], "difference_ci": bounds}
    return row | difference | {"verdict": verdict}


# --- What a dataset or run would lose ---


def count_provided(
    paths: Sequence[Path],
    *,
    what: str,
    unit: str,
    sources: Collection[str] = (),
    without: Collection[str] = (),
) -> Provided:
    """Count over a dataset's files of variants or a run's `replacements.parquet`.

    Raises:
        ValueError: they hold no replacement that a masked LM validated.
    """
    columns = {path: mlm_columns(path) for path in paths}
    mlms = sorted({name for path in paths for name in mlm_names(path)} - {*without})
    goes = np.zeros(len(mlms), np.int64)
    stays: dict[str, Bools] = {}
    for path in paths:
        for table in read_row_groups(path, ["seed_id", "source", *columns[path]]):
            if sources:
                table = table.filter(pc.is_in(table["source"], pa.array(sorted(sources))))
            texts = validators(table, columns[path], mlms)
            left: Bools = np.all(np.any(texts, axis=2), axis=1)
            seed_ids = table["seed_id"].filter(pa.array(left)).to_pylist()
            texts = texts[left]
            alone: Bools = np.any(alone_in(texts), axis=1)
            goes += alone.sum(axis=0)
            # Rows of a seed are adjacent.
            starts = [i for i, seed in enumerate(seed_ids) if not i or seed_ids[i - 1] != seed]
            for start, end in pairwise([*starts, len(seed_ids)]):
                seed = seed_ids[start]
                stays[seed] = stays.get(seed, False) | ~np.all(alone[start:end], axis=0)
    if not stays:
        raise ValueError(f"{what}: expected replacements that masked LMs validated, found none")
    gone = (~np.stack(list(stays.values()))).sum(axis=0)
    return Provided(
        what=what,
        unit=unit,
        lost={mlm: (int(goes[i]), int(gone[i])) for i, mlm in enumerate(mlms)},
    )


def mlm_names(path: Path) -> list[str]:
    """List the masked LMs that validated a replacement in a file, sorted."""
    columns = mlm_columns(path)
    found = {
        name
        for table in read_row_groups(path, columns)
        for column in columns
        for name in pc.list_flatten(table[column]).unique().to_pylist()
    }
    return sorted(found)


def validators(table: pa.Table, columns: Sequence[str], mlms: Sequence[str]) -> Bools:
    """Read who validated each row in which text, (n, texts, M); others than `mlms` do not count."""
    members = np.zeros((len(table), len(columns), len(mlms)), np.bool_)
    names = pa.array(mlms, pa.string())
    for number, column in enumerate(columns):
        lists = table[column].combine_chunks()
        which = pc.fill_null(pc.index_in(pc.list_flatten(lists), names), -1).to_numpy()
        rows = pc.list_parent_indices(lists).to_numpy()
        members[rows[which >= 0], number, which[which >= 0]] = True
    return members


def alone_in(members: Bools) -> Bools:
    """Mark each set's only member, along the last axis."""
    alone: Bools = members & (members.sum(axis=-1, keepdims=True) == 1)
    return alone
