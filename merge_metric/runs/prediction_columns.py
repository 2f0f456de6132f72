"""Columns of a predictions file: names, checks, and the one form they are brought into."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.data_files import describe_missing
from merge_dataset.schema import LABELS
from merge_metric.runs.texts import PREFIX, TEXT_DIGEST, characters
from merge_metric.seed_variant_accuracy.options import NO_LABEL, SUM_TOLERANCE

IDS: Final = ("variant_id", "seed_id")
ANSWERS: Final = ("label", "prediction")
REQUIRED: Final = (*IDS, *ANSWERS)
PROBABILITIES: Final = "probabilities"
COLUMNS: Final = (*REQUIRED, TEXT_DIGEST, PROBABILITIES)

ANSWER_TEXT: Final = "answer_text"
"""Column of answers in a model's own words, where a file has them; no figure depends on it."""
REPEATS: Final = "repeats"
"""Column of further answers to a seed, as positions among the labels; null for variants."""

LABELS_KEY: Final = b"labels"
"""Key of a table's metadata under which `labelled` notes labels."""

Place = Callable[[int], str]
"""Row, from 0 → how a user finds it."""


def row_number(row: int) -> str:
    """Name a row, from 0, as users count: "row 1" for the first."""
    return f"row {row + 1}"


def labels_of(predictions: pa.Table) -> tuple[str, ...]:
    """Read the labels whose positions a table from `validate` holds."""
    recorded = (predictions.schema.metadata or {}).get(LABELS_KEY)
    return LABELS if recorded is None else tuple(json.loads(recorded))


def labelled(table: pa.Table, labels: Sequence[str]) -> pa.Table:
    """Note a table's labels for `labels_of`, if they are not of NLI."""
    if tuple(labels) == LABELS:
        return table
    noted = {LABELS_KEY: json.dumps(list(labels))}
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **noted})


def validate(
    table: pa.Table,
    where: str,
    place: Place | None = None,
    *,
    labels: Sequence[str] = LABELS,
) -> pa.Table:
    """Check the columns of a predictions file and bring them into one form.

    Args:
        table: At least the required columns; label names, in any case, or their positions.
        where: What messages begin with, such as the name of the file.
        place: How messages name a row; by default "row 1" for the first.
        labels: Of the problems' format.

    Returns:
        `variant_id` and `seed_id` (string), `label` and `prediction` (int64) and, where
        given, `text_digest` (string) and `probabilities` (fixed-size list of float64); rows in
        the order given. See also `labels_of`.
    """
    place = place or row_number
    if missing := describe_missing(REQUIRED, table.column_names):
        raise ValueError(
            f"{where}: expected the columns {', '.join(REQUIRED)}, {missing}; `merge-nli predict` "
            f"writes such a file"
        )
    if not len(table):
        raise ValueError(f"{where}: expected at least one row, got none")
    try:
        columns = {name: check_column(name, table[name], place, labels) for name in REQUIRED}
        require_distinct(columns["variant_id"], place)
        for name in (TEXT_DIGEST, PROBABILITIES):
            if name in table.column_names and table[name].null_count < len(table):
                columns[name] = check_column(name, table[name], place, labels)
        for name in {ANSWER_TEXT, REPEATS}.intersection(table.column_names):
            check_further(name, table[name])
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return labelled(pa.table(columns), labels)


def check_further(name: str, column: pa.ChunkedArray, where: str = "") -> None:
    """Raise ValueError where `ANSWER_TEXT` has no texts, or `REPEATS` no lists of whole numbers."""
    kind = decoded(column).type
    if name == ANSWER_TEXT:
        good, expected = kind in (pa.string(), pa.large_string(), pa.string_view()), "texts"
    else:
        expected = "lists of whole numbers"
        good = isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType)
        good = good and pa.types.is_integer(kind.value_type)
        good = good and not pc.list_flatten(column).null_count
    if not good and column.null_count < len(column):
        raise ValueError(
            f"{where}{name}: expected {expected}, got others ({kind}); or rename the column"
        )


def check_column(
    name: str, column: pa.ChunkedArray, place: Place, labels: Sequence[str]
) -> pa.ChunkedArray | pa.Array:
    """Check one of `COLUMNS` by itself and bring it into its form; see `validate`."""
    if name in IDS:
        return _strings(name, column, place)
    if name in ANSWERS:
        return _codes(name, column, place, labels)
    return (_digests if name == TEXT_DIGEST else _distributions)(column, place, labels)


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Turn strings that Parquet writers store in other ways into plain ones."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        kind = pa.string()
    return column if column.type == kind else column.cast(kind)


def label_positions(names: pa.ChunkedArray, labels: Sequence[str]) -> pa.ChunkedArray:
    """Find names among the labels; null for others.

    Names in another case, and positions as digits, are known where that leaves no doubt.
    """
    found = pc.index_in(names, value_set=pa.array(labels))
    folded = [label.casefold() for label in labels]
    if found.null_count and len(set(folded)) == len(folded):
        places = {str(position): position for position in range(len(labels))}
        places |= {label: position for position, label in enumerate(folded)}
        distinct = names.unique()
        plain = [(name or "").strip().casefold() for name in distinct.to_pylist()]
        positions = pa.array([places.get(name) for name in plain], pa.int64())
        found = positions.take(pc.index_in(names, value_set=distinct).combine_chunks())
    return found.cast(pa.int64())


def are_positions(cells: pa.ChunkedArray) -> bool:
    """Tell whether all texts are positions of labels, as digits, or of none."""
    values = cells.drop_null().unique().to_pylist()
    digits = (value for value in values if value != f"{NO_LABEL}")
    return all(value.isdecimal() and len(value) < 10 for value in digits)


def as_positions(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Read digits as numbers."""
    distinct = cells.drop_null().unique()
    numbers = pa.array([int(value) for value in distinct.to_pylist()], pa.int64())
    return numbers.take(pc.index_in(cells, value_set=distinct).combine_chunks())


# --- Columns ---


def _strings(name: str, column: pa.ChunkedArray, place: Place) -> pa.ChunkedArray:
    column = decoded(column)
    _require_values(name, column, place)
    if column.type != pa.string():
        raise ValueError(f"{name}: expected ids as strings, got the type {column.type}")
    return column


def _codes(
    name: str, column: pa.ChunkedArray, place: Place, labels: Sequence[str]
) -> pa.ChunkedArray:
    """Check labels and turn them into positions among the known ones.

    A prediction that is null, -1 or an empty string names no label: `NO_LABEL`.
    """
    column = decoded(column)
    is_none: pa.ChunkedArray | bool = False
    if name == "label":
        _require_values(name, column, place)
    elif pa.types.is_null(column.type):
        return pa.chunked_array([pa.array(np.full(len(column), NO_LABEL))])
    else:
        is_none = pc.is_null(column)
    if column.type == pa.string():
        codes = label_positions(column, labels)
        if name != "label":
            none = pc.is_in(pc.utf8_trim_whitespace(column), pa.array(["", f"{NO_LABEL}"]))
            is_none = pc.or_(is_none, none)
        expected = ", ".join(labels)
    elif pa.types.is_integer(column.type):
        codes = column.cast(pa.int64())
        inside = pc.and_(pc.greater_equal(codes, 0), pc.less(codes, len(labels)))
        if name != "label":
            is_none = pc.or_(is_none, pc.fill_null(pc.equal(codes, NO_LABEL), False))
        codes = pc.if_else(inside, codes, None)
        expected = f"0 to {len(labels) - 1} ({', '.join(labels)})"
    else:
        raise ValueError(
            f"{name}: expected the names {', '.join(labels)} or their positions as integers, "
            f"got the type {column.type}"
        )
    if is_none is not False:
        codes = pc.if_else(is_none, NO_LABEL, codes)
    if codes.null_count:
        row = _first(pc.is_null(codes))
        from_one = column.unique().sort().to_pylist() == [*range(1, len(labels) + 1)]
        raise ValueError(
            f"{place(row)}: {name}: expected one of {expected}, got {column[row].as_py()!r} "
            f"{_such_rows(codes.null_count)}; "
            f"{'are they counted from 1? count from 0' if from_one else _ADVICE[name]}"
        )
    return codes


_ADVICE: Final = {
    "label": "write gold labels so, and leave out problems without one",
    "prediction": "give each row the label that the model chose, or null where it named none",
}


def _digests(column: pa.ChunkedArray, place: Place, _: Sequence[str]) -> pa.ChunkedArray:
    """Check digests of texts; rows may be without."""
    column = decoded(column)
    if column.type != pa.string():
        raise ValueError(f"{TEXT_DIGEST}: expected a string, got the type {column.type}")
    if _are_digests(column):
        return column
    wrong = pc.invert(pc.match_substring_regex(column, f"^({PREFIX})?[0-9a-f]{{16}}$"))
    if pc.any(wrong).as_py():
        row = _first(wrong)
        raise ValueError(
            f"{place(row)}: {TEXT_DIGEST}: expected {PREFIX} and 16 hexadecimal digits, as "
            f"`merge-nli predict` writes them, got {column[row].as_py()!r}"
        )
    return column


def _are_digests(column: pa.ChunkedArray) -> bool:
    """Tell quickly whether all are digests of one version, or null."""
    texts = column.drop_null()
    digits = characters(pc.binary_slice(texts.cast(pa.binary()), -16))
    lengths = pc.unique(pc.binary_length(texts)).to_pylist()
    is_second = pc.all(pc.starts_with(texts, PREFIX)).as_py()
    same = lengths in ([], [16 + len(PREFIX)] if is_second else [16])
    return same and not digits.translate(None, b"0123456789abcdef")


def _distributions(column: pa.ChunkedArray, place: Place, labels: Sequence[str]) -> pa.Array:
    """Check probabilities and make fixed-size lists of one per label."""
    flat, lengths = _flattened(column, len(labels))
    if (odd := lengths != len(labels)).any():
        row = int(odd.argmax())
        raise ValueError(
            f"{place(row)}: {PROBABILITIES}: expected {len(labels)} per row, in the order "
            f"{', '.join(labels)}, got {_shown(column[row])}; give them for all rows or for none"
        )
    values = flat.reshape(-1, len(labels))
    with np.errstate(invalid="ignore"):
        good = (values >= 0) & (abs(values.sum(axis=1) - 1) <= SUM_TOLERANCE)[:, None]
    if not good.all():
        good = good.all(axis=1)
        row = int((~good).argmax())
        if not column[row].values.null_count and not np.isfinite(values[row]).all():
            why = "the model overflows, as in half precision, or is damaged"
        else:
            why = "of logits take the softmax"
        raise ValueError(
            f"{place(row)}: {PROBABILITIES}: expected numbers from 0 to 1 with the sum 1, "
            f"got {_shown(column[row])} {_such_rows((~good).sum())}; {why}"
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


def _shown(value: pa.Scalar) -> str:
    """Show a list of numbers as JSON has it.

    >>> _shown(pa.scalar([0.5, None])), _shown(pa.scalar(None))
    ('[0.5, null]', 'none')
    """
    return json.dumps(value.as_py()) if value.is_valid else "none"


def _such_rows(count: Any) -> str:
    return f"({_counted(count, 'row')})"


def _counted(count: Any, noun: str) -> str:
    """Count such rows or ids."""
    return f"{count:,} such {noun}{'' if count == 1 else 's'}"


def _require_values(name: str, column: pa.ChunkedArray, place: Place) -> None:
    if column.null_count:
        row = _first(pc.is_null(column))
        raise ValueError(
            f"{place(row)}: {name}: expected a value, got none {_such_rows(column.null_count)}"
        )


def require_distinct(ids: pa.ChunkedArray, place: Place) -> None:
    """Raise ValueError where an id of a variant comes twice."""
    if pc.count_distinct(ids).as_py() == len(ids):
        return
    counts = pc.value_counts(ids)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    rows = np.flatnonzero(pc.equal(ids, repeated[0]).to_numpy())
    raise ValueError(
        f"{place(int(rows[1]))}: variant_id: expected each id once, got {repeated[0].as_py()!r} "
        f"as in {place(int(rows[0]))} ({_counted(len(repeated), 'id')}); drop the repeated rows"
    )


def _first(mask: pa.ChunkedArray) -> int:
    return int(pc.index(mask, True).as_py())
