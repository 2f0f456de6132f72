"""Columns as users give them → arrays of ints or lists of strings, or a clear error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
ColumnValues = Ints | list[str]
"""A checked column: an array of ints or a list of strings."""

_EXAMPLES: Final = 3


def check_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Check columns: arrays of ints or lists of strings (subsamples: lists of ints).

    Raises:
        ValueError: a column holds something else, or they differ in length, or label
            columns mix ints and strings.
    """
    checked = {
        name: values if name == "subsamples" else check_column(name, values)
        for name, values in columns.items()
    }
    _require_same_length(checked)
    _require_one_kind(
        {name: checked[name] for name in checked if name not in ("seed_ids", "subsamples")},
        "labels",
    )
    return checked


def check_column(name: str, values: Any) -> ColumnValues:
    """Check one column: an array of ints or a list of strings.

    Args:
        name: How messages call it.
        values: A list, tuple, array, tensor or Series of ints or of strings.

    Raises:
        ValueError: it is none of that.
    """
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise ValueError(f"{name}: expected one entry per variant, got {values!r}")
    if not isinstance(values, list | tuple):
        values = np.asarray(values)
        if values.ndim != 1:
            raise ValueError(
                f"{name}: expected one entry per variant, got an array of shape "
                f"{values.shape}; for logits or probabilities take argmax(axis=-1) first"
            )
        if values.dtype.kind in "iu":
            ints: Ints = values.astype(np.int64)
            return ints
        values = values.tolist()
    kinds = set(map(type, values))
    if kinds <= {str}:
        return list(values)
    if all(issubclass(kind, str) for kind in kinds):  # of NumPy, or members of an enumeration
        return [str.__str__(value) for value in values]
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        try:
            return np.fromiter(values, np.int64, count=len(values))
        except OverflowError as error:
            raise ValueError(f"{name}: expected ints of at most 64 bits: {error}") from error
    raise ValueError(f"{name}: {_what_is_wrong(values)}")


def factorize(column: ColumnValues) -> tuple[list[Any], Ints]:
    """Find the distinct values, sorted, and the position in them of each entry.

    >>> ids, codes = factorize(["b", "a", "b"])
    >>> ids, codes.tolist()
    (['a', 'b'], [1, 0, 1])
    """
    if isinstance(column, np.ndarray):
        distinct, codes = np.unique(column, return_inverse=True)
        return distinct.tolist(), codes
    ids = sorted(set(column))
    position = {value: index for index, value in enumerate(ids)}
    return ids, np.fromiter(map(position.__getitem__, column), np.int64, count=len(column))


def check_ids(columns: Mapping[str, Any]) -> dict[str, ColumnValues]:
    """Check columns of ids: equally long, all ints or all strings.

    Raises:
        ValueError: they are not.
    """
    checked = {name: check_column(name, values) for name, values in columns.items()}
    _require_same_length(checked)
    _require_one_kind(checked, "ids")
    return checked


def factorize_together(
    first: ColumnValues, second: ColumnValues
) -> tuple[list[Any], tuple[Ints, Ints]]:
    """`factorize` of two columns of one kind over the values of both."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        values, codes = factorize(np.concatenate([first, second]))
    else:
        values, codes = factorize([*first, *second])
    return values, (codes[: len(first)], codes[len(first) :])


def preview(values: Sequence[Any]) -> str:
    """Show the first few values, and how many more there are."""
    shown = ", ".join(map(repr, values[:_EXAMPLES]))
    more = len(values) - _EXAMPLES
    return f"{shown} and {more:,} more" if more > 0 else shown


def _what_is_wrong(values: Sequence[Any]) -> str:
    expected = "expected ints or strings"
    for row, value in enumerate(values):
        if value is None:
            return f"{expected}, got None in row {row}: leave such rows out or fill them"
        if isinstance(value, float | np.floating) and math.isnan(value):
            return f"{expected}, got NaN in row {row}: leave such rows out or fill them"
    for row, value in enumerate(values):
        if isinstance(value, float | np.floating):
            return (
                f"{expected}, got the float {value!r} in row {row}; for logits or "
                "probabilities take argmax first, whole numbers convert with int()"
            )
        if isinstance(value, list | tuple | np.ndarray):
            return (
                f"{expected}, got {value!r} in row {row}; for logits or probabilities take "
                "argmax(axis=-1) first"
            )
        if not isinstance(value, int | str | np.integer) or isinstance(value, bool | np.bool_):
            return f"{expected}, got {value!r} in row {row}"
    ints = next(row for row, value in enumerate(values) if not isinstance(value, str))
    strings = next(row for row, value in enumerate(values) if isinstance(value, str))
    return (
        f"{expected}, got strings mixed with ints: {values[strings]!r} in row {strings}, "
        f"{values[ints]!r} in row {ints}; convert one of them"
    )


def _require_same_length(columns: Mapping[str, Any]) -> None:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise ValueError(f"expected columns of the same length, one entry per variant, got {shown}")


def _require_one_kind(columns: Mapping[str, ColumnValues], what: str) -> None:
    kinds = {
        name: "ints" if isinstance(values, np.ndarray) else "strings"
        for name, values in columns.items()
    }
    if len(set(kinds.values())) > 1:
        shown = ", ".join(f"{name} are {kind}" for name, kind in kinds.items())
        raise ValueError(
            f"expected {what} that are all ints or all strings, got strings mixed with ints "
            f"({shown}): convert one of them"
        )
