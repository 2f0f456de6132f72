"""Checks of the columns of a predictions file, and their names; see `prediction_columns`."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset import data_files
from merge_dataset.schema import LABELS
from merge_metric.frame.texts import PREFIX, TEXT_DIGEST, characters
from merge_metric.seed_variant_accuracy.merging import Merging, merging_advice
from merge_metric.seed_variant_accuracy.options import NO_LABEL, SUM_TOLERANCE

IDS: Final = ("variant_id", "seed_id")
ANSWERS: Final = ("label", "prediction")
REQUIRED: Final = (*IDS, *ANSWERS)
OF_DATASET: Final = ("seed_id", "label")
"""Required columns that a dataset has, too, by `variant_id`."""
PROBABILITIES: Final = "probabilities"
COLUMNS: Final = (*REQUIRED, TEXT_DIGEST, PROBABILITIES)

ANSWER_TEXT: Final = "answer_text"
"""Column with answers in a model's own words; no figure depends on it."""
REPEATS: Final = "repeats"
"""Column with repeated answers to a seed, as positions of labels; null for variants."""
FURTHER: Final = (ANSWER_TEXT, REPEATS)
"""Optional columns on which no count per seed depends."""

Place = Callable[[int], str]
"""Function from a row number, from 0, to a description of its place for users."""


def row_number(row: int) -> str:
    """Write a row number, from 0, as users count: "row 1" for the first."""
    return f"row {row + 1}"


def require_columns(where: object, names: Sequence[str], rows: int) -> None:
    """Raise ValueError unless there are all required columns and at least one row."""
    if missing := data_files.describe_missing(REQUIRED, names):
        raise ValueError(
            f"{where}: expected the columns {', '.join(REQUIRED)}, {missing}; `merge-nli predict` "
            f"writes such a file"
        )
    if not rows:
        raise ValueError(f"{where}: expected at least one row, got none")


def check_further(name: str, column: pa.ChunkedArray, where: str = "") -> None:
    """Raise ValueError if `ANSWER_TEXT` is not text, or `REPEATS` not lists of integers."""
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
    name: str,
    column: pa.ChunkedArray,
    place: Place,
    labels: Sequence[str],
    merging: Merging | None = None,
) -> pa.ChunkedArray | pa.Array:
    """Check one of `COLUMNS`, and convert it to its standard form; see `predictions.validate`.

    With labels to merge, names may be any of `merging.known(labels)`, to which codes then refer,
    and probabilities may be for these, or already summed.
    """
    if name == PROBABILITIES:
        orders = (labels, merging.known(labels), merging.of(labels)) if merging else (labels,)
        size = column[0].as_py() if len(column) and pa.types.is_nested(column.type) else None
        fit = [order for order in orders if size is not None and len(order) == len(size)]
        return _distributions(column, place, fit[0] if fit else labels)
    column = decoded(column)
    if name in (*IDS, "label") and column.null_count:
        row = _first(pc.is_null(column))
        raise ValueError(
            f"{place(row)}: {name}: expected a value, got none "
            f"({_counted(column.null_count, 'such row')})"
        )
    if name in ANSWERS:
        return _codes(name, column, place, labels, merging)
    if column.type != pa.string():
        expected = "a string" if name == TEXT_DIGEST else "ids as strings"
        raise ValueError(f"{name}: expected {expected}, got the type {column.type}")
    if name == TEXT_DIGEST and not _are_digests(column):
        wrong = pc.invert(pc.match_substring_regex(column, f"^{PREFIX}[0-9a-f]{{16}}$"))
        if pc.any(wrong).as_py():
            row = _first(wrong)
            raise ValueError(
                f"{place(row)}: {TEXT_DIGEST}: expected {PREFIX} and 16 hexadecimal digits, as "
                f"`merge-nli predict` writes them, got {column[row].as_py()!r}"
            )
    return column


def _are_digests(column: pa.ChunkedArray) -> bool:
    """Return, by a fast check, whether all values are digests, or null."""
    texts = column.drop_null()
    digits = characters(pc.binary_slice(texts.cast(pa.binary()), -16))
    lengths = pc.unique(pc.binary_length(texts)).to_pylist()
    same = lengths in ([], [16 + len(PREFIX)]) and pc.all(pc.starts_with(texts, PREFIX)).as_py()
    return same and not digits.translate(None, b"0123456789abcdef")


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert other encodings of strings in Parquet to plain strings."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        kind = pa.string()
    return column if column.type == kind else column.cast(kind)


def _codes(
    name: str,
    column: pa.ChunkedArray,
    place: Place,
    labels: Sequence[str],
    merging: Merging | None,
) -> pa.ChunkedArray:
    """Convert labels to positions; a prediction that is null, -1 or empty is `NO_LABEL`."""
    if pa.types.is_null(column.type):
        return pa.chunked_array([pa.array(np.full(len(column), NO_LABEL))])
    if column.type == pa.string():
        names = merging.known(labels) if merging else labels
        codes = _label_positions(column, names, len(labels))
        none = pc.is_in(pc.utf8_trim_whitespace(column), pa.array(["", f"{NO_LABEL}"]))
        expected = ", ".join(names)
    elif pa.types.is_integer(column.type):
        codes = column
        if column.type == pa.uint64():  # numbers that int64 does not have are no labels either
            most = pa.scalar(len(labels), pa.uint64())
            codes = pc.min_element_wise(column, most, skip_nulls=False)
        codes = codes.cast(pa.int64())
        none = pc.fill_null(pc.equal(codes, NO_LABEL), False)
        inside = pc.and_(pc.greater_equal(codes, 0), pc.less(codes, len(labels)))
        codes = pc.if_else(inside, codes, None)
        expected = f"0 to {len(labels) - 1} ({', '.join(labels)})"
    else:
        raise ValueError(
            f"{name}: expected the names {', '.join(labels)} or their positions as integers, "
            f"got the type {column.type}"
        )
    if name != "label":
        codes = pc.if_else(pc.or_(pc.is_null(column), none), NO_LABEL, codes)
    if codes.null_count:
        row = _first(pc.is_null(codes))
        from_one = column.unique().sort().to_pylist() == [*range(1, len(labels) + 1)]
        advice = "are they counted from 1? count from 0" if from_one else _ADVICE[name]
        odd = {*column.unique().to_pylist()} - {*labels, None}
        of_two = tuple(labels) != LABELS and odd <= {*LABELS}
        if of_two or (len(odd) == 1 and str(*odd).startswith("no")):
            gold = labels if of_two else (LABELS[0], *odd)
            if proposed := merging_advice(LABELS, gold):
                advice = f"where contradiction and neutral count as one: `merge_labels` {proposed}"
        raise ValueError(
            f"{place(row)}: {name}: expected one of {expected}, got {column[row].as_py()!r} "
            f"({_counted(codes.null_count, 'such row')}); {advice}"
        )
    return codes


_ADVICE: Final = {
    "label": "write gold labels so, and leave out problems without one",
    "prediction": "give each row the label that the model chose, or null where it named none",
}


def _label_positions(
    names: pa.ChunkedArray, labels: Sequence[str], numbered: int
) -> pa.ChunkedArray:
    """Map names, in any case, or digits, below `numbered`, to positions; null for other texts."""
    found = pc.index_in(names, value_set=pa.array(labels))
    folded = [label.casefold() for label in labels]
    if found.null_count and len(set(folded)) == len(folded):
        places = {str(position): position for position in range(numbered)}
        places |= {label: position for position, label in enumerate(folded)}
        return replaced(names, lambda name: places.get(name.strip().casefold()))
    return found.cast(pa.int64())


def replaced(texts: pa.ChunkedArray, number: Callable[[str], int | None]) -> pa.ChunkedArray:
    """Replace each distinct text by the result of a function."""
    distinct = texts.drop_null().unique()
    numbers = pa.array([number(text) for text in distinct.to_pylist()], pa.int64())
    return numbers.take(pc.index_in(texts, value_set=distinct).combine_chunks())


def are_positions(cells: pa.Table) -> bool:
    """Return whether all texts of a column are digits of label positions, or stand for none."""
    values = cells[0].drop_null().unique().to_pylist()
    digits = (value for value in values if value != f"{NO_LABEL}")
    return all(value.isdecimal() and len(value) < 10 for value in digits)


def _distributions(column: pa.ChunkedArray, place: Place, labels: Sequence[str]) -> pa.Array:
    """Check probabilities, and convert them to fixed-size lists with one value per label."""
    count, item = len(labels), getattr(column.type, "value_type", None)
    if item is None or not (pa.types.is_floating(item) or pa.types.is_integer(item)):
        raise ValueError(
            f"{PROBABILITIES}: expected a list of {count} numbers per row, "
            f"got the type {column.type}"
        )
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy()
    if (odd := lengths != count).any():
        row = int(odd.argmax())
        raise ValueError(
            f"{place(row)}: {PROBABILITIES}: expected {count} per row, in the order "
            f"{', '.join(labels)}, got {_shown(column[row])}; give them for all rows or for none"
        )
    flat = pc.fill_null(pc.list_flatten(column).cast(pa.float64()), float("nan")).to_numpy()
    values = flat.reshape(-1, count)
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
            f"got {_shown(column[row])} ({_counted((~good).sum(), 'such row')}); {why}"
        )
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), count)


def _shown(value: pa.Scalar) -> str:
    """Format a list of numbers as in JSON."""
    return json.dumps(value.as_py()) if value.is_valid else "none"


def _counted(count: Any, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def require_distinct(ids: pa.ChunkedArray, place: Place, where: str = "") -> None:
    """Raise ValueError if an id of a variant occurs twice; the message names the rows."""
    if pc.count_distinct(ids).as_py() == len(ids):
        return
    counts = pc.value_counts(ids)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    rows = np.flatnonzero(pc.equal(ids, repeated[0]).to_numpy())
    raise ValueError(
        f"{where}{place(int(rows[1]))}: variant_id: expected each id once, got "
        f"{repeated[0].as_py()!r} as in {place(int(rows[0]))} "
        f"({_counted(len(repeated), 'such id')}); drop the repeated rows"
    )


def _first(mask: pa.ChunkedArray) -> int:
    return int(pc.index(mask, True).as_py())
