"""Files of datasets and predictions from rows: the one builder of all tests' folders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from merge_dataset.schema import PARAPHRASE, arrow_schema, config_files, config_name

Row = Mapping[str, Any]


def write_rows(path: Path, rows: Iterable[Row], schema: pa.Schema | None = None) -> Path:
    """Write rows in the columns of the dataset, those that a row lacks null; makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist([dict(row) for row in rows], schema=schema or arrow_schema())
    pq.write_table(table, path)
    return path


def write_source(
    folder: Path,
    seeds: Sequence[Row],
    variants: Sequence[Row],
    *,
    provenance: Row | None = None,
    paraphrase_provenance: Row | None = None,
) -> Path:
    """Write a source's configurations into a dataset folder, rows in the order given.

    Args:
        folder: Of the dataset; other sources may be there.
        seeds: Of one source; those that have only paraphrases are only theirs.
        variants: With `word_class`.
        provenance: Of the replacements.
        paraphrase_provenance: Of the paraphrases.
    """
    source = seeds[0]["seed_id"].partition(":")[0]
    classes: dict[str, set[str]] = {row["seed_id"]: set() for row in seeds}
    by_class: dict[str, list[Row]] = {}
    for row in variants:
        classes[row["seed_id"]].add(row["word_class"])
        if row["word_class"] is not None:  # such rows a test puts where it wants them
            by_class.setdefault(row["word_class"], []).append(row)
    if whole := [row for row in seeds if classes[row["seed_id"]] != {PARAPHRASE}]:
        path = write_rows(folder / source / "seeds.parquet", whole)
        path.with_name("provenance.json").write_text(json.dumps(provenance or {}))
    for word_class, rows in by_class.items():
        files = config_files(config_name(source, word_class))
        eligible = [row for row in seeds if word_class in classes[row["seed_id"]]]
        path = write_rows(folder / files["seeds"][0], eligible)
        write_rows(folder / files["variants"][0], rows)
        if word_class == PARAPHRASE:
            text = json.dumps(paraphrase_provenance or {})
            path.with_name("provenance.json").write_text(text)
    return folder


def write_predictions(path: Path, rows: Iterable[Row], description: Row | None = None) -> Path:
    """Write a predictions file that says, if given, what its model is; each problem once."""
    distinct = {row["variant_id"]: dict(row) for row in rows}
    table = pa.Table.from_pylist(list(distinct.values()))
    if description is not None:
        table = table.replace_schema_metadata({b"merge_nli": json.dumps(description).encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path
