"""Whole predictions files, with a model's answer to each problem: read, write, describe."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset.data_files import write_rows
from merge_dataset.files import RowGroupWriter, atomic, read_schema
from merge_dataset.layout import as_dataset
from merge_dataset.paths import as_path, described
from merge_dataset.schema import LABELS
from merge_metric.frame.column_checks import (
    ANSWERS,
    COLUMNS,
    FURTHER,
    PROBABILITIES,
    REQUIRED,
    check_column,
    check_further,
    require_columns,
    require_distinct,
    row_number,
)
from merge_metric.frame.prediction_columns import (
    CSV,
    DIGEST_KEY,
    METADATA_KEY,
    SUFFIXES,
    description_in,
    labelled,
    labels_of,
    open_predictions,
    place_in,
    suffix_of,
)
from merge_metric.frame.texts import TEXT_DIGEST, digest_of
from merge_metric.seed_variant_accuracy.merging import Merging
from merge_metric.seed_variant_accuracy.options import NO_LABEL


def read_predictions(
    path: str | Path,
    dataset: str | Path | None = None,
    *,
    merge_labels: str | Sequence[str] = (),
) -> pa.Table:
    """Read and check a predictions file; arguments and errors as in `open_predictions`.

    Returns:
        The columns as returned by `validate`.

    Raises:
        TypeError: a path is none.
        ValueError: also where an id comes twice.
    """
    file = as_path("path", path)
    folder = None if dataset is None else as_dataset("dataset", dataset)
    opened = open_predictions(file, folder, Merging.parse(merge_labels))
    table = pa.concat_tables(opened.tables())
    require_distinct(table["variant_id"], place_in(file), f"{file}: ")
    return table.select([name for name in COLUMNS if name in table.column_names])


# --- Writing ---


def write_predictions(path: str | Path, table: pa.Table) -> None:
    """Check predictions and write them, whole or not at all; the same bytes for the same table.

    Args:
        path: Parquet or JSON lines, by its suffix; replaced where it exists.
        table: At least the required columns; further ones are written as they are, and in
            Parquet the schema's metadata.

    Raises:
        TypeError: the path is none, or the table none of Arrow's.
        ValueError: the suffix is unknown, or `validate` finds something wrong.
    """
    path = as_path("path", path)
    suffix_of(path)
    if not isinstance(table, pa.Table):
        raise TypeError(f"table: expected a pyarrow.Table, got {described(table)}")
    checked = validate(table, "predictions to write", labels_of(table))
    for name in table.column_names:
        if name not in COLUMNS:
            checked = checked.append_column(name, table[name])
    metadata = table.schema.metadata or {}
    schema = checked.schema.with_metadata(metadata)
    write_batches(path, schema, len(table), lambda names: [checked.select(names)])


def validate(
    table: pa.Table,
    where: str,
    labels: Sequence[str],
) -> pa.Table:
    """Check the columns of a predictions file, and convert them to one form, in row order.

    Label names may be in any case, or positions; messages begin with `where`. Returns `variant_id`,
    `seed_id` (string), `label`, `prediction` (int64) and, where given, `text_digest` (string) and
    `probabilities` (fixed-size list of float64).
    """
    require_columns(where, table.column_names, len(table))
    try:
        columns = {name: check_column(name, table[name], row_number, labels) for name in REQUIRED}
        require_distinct(columns["variant_id"], row_number)
        for name in (TEXT_DIGEST, PROBABILITIES):
            if name in table.column_names and table[name].null_count < len(table):
                columns[name] = check_column(name, table[name], row_number, labels)
        for name in set(FURTHER).intersection(table.column_names):
            check_further(name, table[name])
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return labelled(pa.table(columns), labels)


def write_batches(
    path: Path,
    schema: pa.Schema,
    rows: int,
    batches: Callable[[Sequence[str]], Iterable[pa.Table]],
) -> None:
    """Write predictions some rows at a time; see `write_predictions`.

    `batches` is a function that yields the named columns batch by batch, in the form of `validate`.
    """
    suffix, labels = suffix_of(path), labels_of(schema.empty_table())
    written = (_named(batch, labels) for batch in batches(schema.names))
    if suffix != ".parquet":
        write_rows(path, written, compress=suffix == ".jsonl.gz")
        return
    metadata = dict(schema.metadata or {})
    metadata[DIGEST_KEY] = digest_of(
        {name: rows for name in (*COLUMNS, *FURTHER) if name in schema.names},
        metadata.get(METADATA_KEY, b""),
        labels,
        lambda name: (batch[name].combine_chunks() for batch in batches([name])),
    ).encode()
    empty = _named(schema.empty_table(), labels)
    with (
        atomic(path) as temporary,
        RowGroupWriter(temporary, empty.schema, metadata) as writer,
    ):
        for batch in written:
            writer.write(batch)


def _named(predictions: pa.Table, labels: Sequence[str]) -> pa.Table:
    """Replace codes by names of labels, except for NLI, whose numbers have a fixed meaning."""
    if tuple(labels) == LABELS:
        return predictions
    for name in ANSWERS:
        codes = predictions[name].combine_chunks()
        named = pa.array(labels).take(pc.if_else(pc.equal(codes, NO_LABEL), None, codes))
        place = predictions.column_names.index(name)
        predictions = predictions.set_column(place, name, named)
    return predictions


# --- Metadata ---


def read_metadata(path: Path) -> dict[str, Any]:
    """Read a Parquet file's description of how it was made; empty without it, or for text."""
    if path.suffix != ".parquet" or not path.is_file():
        return {}
    try:
        schema = read_schema(path)
    except ValueError:
        return {}  # reading the file itself raises the right error
    return description_in(schema, path)


def with_metadata(table: pa.Table, value: Mapping[str, Any]) -> pa.Table:
    """Set the description of how a table was made as its only metadata."""
    return table.replace_schema_metadata({METADATA_KEY: json.dumps(value, ensure_ascii=False)})


def model_name(path: Path) -> str:
    """Return a model's name: from the predictions file's metadata, else from the file name."""
    stem = path.name
    for suffix in (*SUFFIXES, *CSV):
        stem = stem.removesuffix(suffix)
    metadata = read_metadata(path)
    name = str(metadata.get("short_name") or metadata.get("name") or "").rstrip("/\\")
    # If it is a folder on someone's machine, only the last part.
    return (Path(name).name if Path(name).is_absolute() else name) or stem
