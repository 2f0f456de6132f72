from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa

from generation.records import replacement_schema


@dataclass(frozen=True, kw_only=True)
class Replacement:
    seed_id: str = "s:1"
    source: str = "s"
    word: str
    word_class: str
    replacement: str
    premise_mlms: tuple[str, ...] = ("m",)
    hypothesis_mlms: tuple[str, ...] = ("m",)
    log_odds: float = 1.0


@dataclass(frozen=True)
class Variant:
    replacement: Replacement
    subsamples: tuple[int, ...]


def table_of(replacements: Iterable[Replacement]) -> pa.Table:
    rows = [
        asdict(r) | {"mlm_count": len({*r.premise_mlms, *r.hypothesis_mlms})} for r in replacements
    ]
    return pa.Table.from_pylist(rows, schema=replacement_schema())


def replacements_in(table: pa.Table) -> list[Replacement]:
    """Convert a table to records, without signals and optional columns."""
    return [
        Replacement(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()})
        for row in table.select([field.name for field in fields(Replacement)]).to_pylist()
    ]


def variants_in(table: pa.Table) -> list[Variant]:
    subsamples: list[Any] = table["subsamples"].to_pylist()
    return [
        Variant(replacement, tuple(numbers))
        for replacement, numbers in zip(
            replacements_in(table.drop_columns("subsamples")), subsamples, strict=True
        )
    ]


def variant_table(variants: Iterable[Variant]) -> pa.Table:
    variants = list(variants)
    numbers = pa.array([list(v.subsamples) for v in variants], pa.list_(pa.int32()))
    return table_of(v.replacement for v in variants).append_column("subsamples", numbers)
