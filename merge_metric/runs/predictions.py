"""The predictions file: what a model says of each problem. Read, validated, written.

One row per problem, in Parquet (`.parquet`) or as JSON lines (`.jsonl`, `.jsonl.gz`):
`variant_id` (of a seed, its own id), `seed_id`, `label` and `prediction` (positions among the
labels of the problems' format, or names) and, optionally, `probabilities` (one per label, in
that order). Of NLI the labels are `LABELS`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from merge_dataset import json_lines as jsonl
from merge_dataset.files import write_table
from merge_dataset.layout import collections, format_in
from merge_dataset.schema import LABELS, parse_config_name
from merge_metric.seed_variant_accuracy.options import SUM_TOLERANCE

log = logging.getLogger(__name__)

IDS: Final = ("variant_id", "seed_id")
ANSWERS: Final = ("label", "prediction")
REQUIRED: Final = (*IDS, *ANSWERS)
PROBABILITIES: Final = "probabilities"
_LABELS: Final = b"labels"
"""Key of a table's metadata under which `labelled` notes labels."""
SUFFIXES: Final = (".parquet", ".jsonl.gz", ".jsonl")
METADATA_KEY: Final = b"merge_nli"
"""In the Parquet metadata: a JSON object that describes how a file was made."""

_JSON_TYPES: Final = {
    **dict.fromkeys(IDS, (pa.string(),)),
    **dict.fromkeys(ANSWERS, (pa.int64(), pa.string())),
    PROBABILITIES: (jsonl.NUMBERS,),
}

_Place = Callable[[int], str]
"""Row, from 0 → how a user finds it."""


def read_predictions(path: Path, dataset: Path | None = None) -> pa.Table:
    """Read and check a predictions file.

    Args:
        path: Parquet or JSON lines, by its suffix. Columns of other names are left out.
        dataset: The dataset folder, which knows the labels of its problems. Without it they
            are those that the file names, where these are not of NLI.

    Returns:
        The columns as `validate` gives them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a predictions file; the message says where and why.
    """
    suffix = suffix_of(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a predictions file, found no file there")
    if suffix == ".parquet":
        table = _read_parquet(path)
        return validate(table, str(path), labels=_labels(table, str(path), dataset))
    table = jsonl.read(path, _JSON_TYPES)
    return validate(
        table,
        str(path),
        lambda row: f"line {jsonl.line_number(path, row)}",
        labels=_labels(table, str(path), dataset),
    )


def labels_of(predictions: pa.Table) -> tuple[str, ...]:
    """Read the labels whose positions a table from `validate` holds."""
    recorded = (predictions.schema.metadata or {}).get(_LABELS)
    return LABELS if recorded is None else tuple(json.loads(recorded))


def labelled(table: pa.Table, labels: Sequence[str]) -> pa.Table:
    """Note a table's labels for `labels_of`, if they are not of NLI."""
    if tuple(labels) == LABELS:
        return table
    noted = {_LABELS: json.dumps(list(labels))}
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **noted})


def write_predictions(path: Path, table: pa.Table) -> None:
    """Check predictions and write them, whole or not at all; the same bytes for the same table.

    Args:
        path: Parquet or JSON lines, by its suffix; replaced where it exists.
        table: At least the required columns; further ones are written as they are, and in
            Parquet the schema's metadata.

    Raises:
        ValueError: the suffix is unknown, or `validate` finds something wrong.
    """
    suffix = suffix_of(path)
    labels = labels_of(table)
    checked = validate(table, "predictions to write", labels=labels)
    if labels != LABELS:
        # Only of NLI is it plain what a number means.
        for name in ANSWERS:
            named = pa.array(labels).take(checked[name].combine_chunks())
            checked = checked.set_column(checked.column_names.index(name), name, named)
    for name in table.column_names:
        if name not in (*REQUIRED, PROBABILITIES):
            checked = checked.append_column(name, table[name])
    checked = checked.replace_schema_metadata(table.schema.metadata)
    if suffix == ".parquet":
        write_table(path, checked.combine_chunks())
    else:
        jsonl.write(path, checked, compress=suffix == ".jsonl.gz")


def validate(
    table: pa.Table,
    where: str,
    place: _Place | None = None,
    *,
    labels: Sequence[str] = LABELS,
) -> pa.Table:
    """Check the columns of a predictions file and bring them into one form.

    Args:
        table: At least the required columns; label names or their positions.
        where: What messages begin with, such as the name of the file.
        place: How messages name a row; by default "row 1" for the first.
        labels: Of the problems' format.

    Returns:
        `variant_id` and `seed_id` (string), `label` and `prediction` (int64) and, where
        given, `probabilities` (fixed-size list of float64); rows in the order given. See also
        `labels_of`.

    Raises:
        ValueError: something is missing, null, of another type, out of range or twice.
    """
    place = place or (lambda row: f"row {row + 1}")
    if missing := [name for name in REQUIRED if name not in table.column_names]:
        raise ValueError(
            f"{where}: expected the columns {', '.join(REQUIRED)}, "
            f"got {', '.join(table.column_names) or 'none'}: without {', '.join(missing)}"
        )
    if not len(table):
        raise ValueError(f"{where}: expected at least one row, got none")
    try:
        columns = {name: _strings(name, table[name], place) for name in IDS}
        columns |= {name: _codes(name, table[name], place, labels) for name in ANSWERS}
        _require_distinct(columns["variant_id"], place)
        if PROBABILITIES in table.column_names:
            given = table[PROBABILITIES]
            if given.null_count < len(given):
                columns[PROBABILITIES] = _distributions(given, place, labels)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return labelled(pa.table(columns), labels)


def suffix_of(path: Path) -> str:
    """Find the suffix of a predictions file's name, out of `SUFFIXES`.

    Raises:
        ValueError: it has another one.
    """
    for suffix in SUFFIXES:
        if path.name.endswith(suffix):
            return suffix
    raise ValueError(
        f"{path}: expected the name of a predictions file to end in {', '.join(SUFFIXES)}, "
        f"got {path.suffix or 'no suffix'!r}"
    )


# --- Columns ---


def _strings(name: str, column: pa.ChunkedArray, place: _Place) -> pa.ChunkedArray:
    column = _decoded(column)
    _require_values(name, column, place)
    if column.type != pa.string():
        raise ValueError(f"{name}: expected ids as strings, got the type {column.type}")
    return column


def _labels(table: pa.Table, where: str, dataset: Path | None) -> tuple[str, ...]:
    """Find the labels of the problems that predictions are for."""
    if not {"seed_id", *ANSWERS} <= set(table.column_names):
        return LABELS  # `validate` says what is missing
    if dataset is not None and (known := _labels_in(dataset, table["seed_id"])):
        if len(known) > 1:
            sets = "; ".join(", ".join(labels) for labels in known)
            raise ValueError(
                f"{where}: expected predictions for problems with the same labels, got some with "
                f"different ones: {sets}; write a file for each"
            )
        return known[0]
    answers = [_decoded(table[name]) for name in ANSWERS]
    if _LABELS in (table.schema.metadata or {}) or answers[0].type != pa.string():
        return labels_of(table)
    named = [str(name) for column in answers for name in column.unique().to_pylist() if name]
    return LABELS if any(name in LABELS for name in named) else tuple(sorted(set(named)))


def _labels_in(dataset: Path, seed_ids: pa.ChunkedArray) -> list[tuple[str, ...]]:
    """List the labels of the dataset's sources that ids of seeds begin with."""
    if not dataset.is_dir() or seed_ids.type != pa.string():
        return []  # told later
    begun = pc.list_element(pc.split_pattern(seed_ids, ":", max_splits=1), 0)
    mentioned = set(begun.unique().to_pylist())
    formats = [
        format_in(dataset, name)
        for name in collections(dataset)
        if parse_config_name(name)[0] in mentioned
    ]
    return list(dict.fromkeys(each.labels for each in formats))


def _codes(
    name: str, column: pa.ChunkedArray, place: _Place, labels: Sequence[str]
) -> pa.ChunkedArray:
    """Check labels and turn them into positions among the known ones."""
    column = _decoded(column)
    _require_values(name, column, place)
    if column.type == pa.string():
        codes = pc.index_in(column, value_set=pa.array(labels)).cast(pa.int64())
        expected = ", ".join(labels)
    elif pa.types.is_integer(column.type):
        codes = column.cast(pa.int64())
        inside = pc.and_(pc.greater_equal(codes, 0), pc.less(codes, len(labels)))
        codes = pc.if_else(inside, codes, None)
        expected = f"0 to {len(labels) - 1} ({', '.join(labels)})"
    else:
        raise ValueError(
            f"{name}: expected the names {', '.join(labels)} or their positions as integers, "
            f"got the type {column.type}"
        )
    if codes.null_count:
        row = _first(pc.is_null(codes))
        raise ValueError(
            f"{place(row)}: {name}: expected one of {expected}, got {column[row].as_py()!r} "
            f"({codes.null_count:,} such rows); leave problems without a label out"
        )
    return codes


def _distributions(column: pa.ChunkedArray, place: _Place, labels: Sequence[str]) -> pa.Array:
    """Check probabilities and make fixed-size lists of one per label."""
    flat, lengths = _flattened(column, len(labels))
    if (odd := lengths != len(labels)).any():
        row = int(odd.argmax())
        raise ValueError(
            f"{place(row)}: {PROBABILITIES}: expected {len(labels)} per row, in the order "
            f"{', '.join(labels)}, got {column[row].as_py()}; give them for all rows or for none"
        )
    values = flat.reshape(-1, len(labels))
    with np.errstate(invalid="ignore"):
        good = (values >= 0).all(axis=1) & (abs(values.sum(axis=1) - 1) <= SUM_TOLERANCE)
    if not good.all():
        row = int((~good).argmax())
        raise ValueError(
            f"{place(row)}: {PROBABILITIES}: expected numbers from 0 to 1 with the sum 1, "
            f"got {column[row].as_py()} ({(~good).sum():,} such rows); of logits take the softmax"
        )
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), len(labels))


def _flattened(
    column: pa.ChunkedArray, per_row: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Flatten lists: numbers, NaN for null ones, and each list's length, -1 for a null."""
    item = getattr(column.type, "value_type", None)
    if item is None or not (pa.types.is_floating(item) or pa.types.is_integer(item)):
        raise ValueError(
            f"{PROBABILITIES}: expected a list of {per_row} numbers per row, "
            f"got the type {column.type}"
        )
    flat = pc.list_flatten(column).cast(pa.float64())
    lengths = pc.fill_null(pc.list_value_length(column), -1).cast(pa.int64())
    return pc.fill_null(flat, float("nan")).to_numpy(), lengths.to_numpy()


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Turn strings that Parquet writers store in other ways into plain ones."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        kind = pa.string()
    return column if column.type == kind else column.cast(kind)


def _require_values(name: str, column: pa.ChunkedArray, place: _Place) -> None:
    if column.null_count:
        row = _first(pc.is_null(column))
        raise ValueError(
            f"{place(row)}: {name}: expected a value, got none ({column.null_count:,} such rows)"
        )


def _require_distinct(ids: pa.ChunkedArray, place: _Place) -> None:
    if pc.count_distinct(ids).as_py() == len(ids):
        return
    counts = pc.value_counts(ids)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    rows = np.flatnonzero(pc.equal(ids, repeated[0]).to_numpy())
    raise ValueError(
        f"{place(int(rows[1]))}: variant_id: expected each id once, got {repeated[0].as_py()!r} "
        f"as in {place(int(rows[0]))} ({len(repeated):,} such ids); drop the repeated rows"
    )


def _first(mask: pa.ChunkedArray) -> int:
    return int(pc.index(mask, True).as_py())


# --- Files ---


def _read_parquet(path: Path) -> pa.Table:
    try:
        # Not pq.read_table: it would take a parent folder called a=b for a partition column.
        with pq.ParquetFile(path) as file:
            wanted = (*REQUIRED, PROBABILITIES)
            names = [name for name in file.schema_arrow.names if name in wanted]
            if not names:  # for the message of `validate`
                return file.schema_arrow.empty_table()
            table = file.read(columns=names)
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: expected a Parquet file, got an error: {error}") from error
    return table


# --- Metadata ---


def read_metadata(path: Path) -> dict[str, Any]:
    """Read a Parquet file's description of how it was made.

    Returns:
        A JSON object; empty where there is no file, or it has none.
    """
    if path.suffix != ".parquet" or not path.is_file():
        return {}
    try:
        return metadata_of(pq.read_schema(path))
    except (pa.ArrowException, OSError):
        return {}  # reading the file itself will say what is wrong
    except ValueError:
        log.warning("%s: expected a JSON object in its metadata %r", path, METADATA_KEY.decode())
        return {}


def metadata_of(schema: pa.Schema) -> dict[str, Any]:
    """Read the description of how a table was made from its schema.

    Raises:
        ValueError: it is no JSON object.
    """
    value = json.loads((schema.metadata or {}).get(METADATA_KEY, b"{}"))
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {value!r}")
    return value


def with_metadata(table: pa.Table, value: Mapping[str, Any]) -> pa.Table:
    """Give a table a description of how it was made, as its only metadata."""
    return table.replace_schema_metadata({METADATA_KEY: json.dumps(value, ensure_ascii=False)})


def model_name(path: Path) -> str:
    """Name a model: as the predictions file's metadata does, else like the file."""
    stem = path.name
    for suffix in SUFFIXES:
        stem = stem.removesuffix(suffix)
    metadata = read_metadata(path)
    name = str(metadata.get("short_name") or metadata.get("name") or "").rstrip("/\\")
    # Where it is a folder of someone's machine, its last part.
    return (Path(name).name if Path(name).is_absolute() else name) or stem
