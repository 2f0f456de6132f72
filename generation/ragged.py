"""Arithmetic on columns: keys of two numbers, ragged rows, lists in a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BITS: Final = 32


def pairs(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return [n] one key for two numbers, ordered by the first, then by the second.

    >>> split(pairs(np.array([3, 1]), np.array([4, 5])))
    (array([3, 1]), array([4, 5]))
    """
    keys: NDArray[np.int64] = (first.astype(np.int64) << _BITS) | second
    return keys


def split(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Take keys of `pairs` apart."""
    return keys >> _BITS, keys & ((1 << _BITS) - 1)


def starts_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return [n + 1] where rows of these sizes begin, laid end to end.

    >>> starts_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def ranges(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return [sizes.sum()] `start, start + 1, …` for each start, as many as its size says.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = starts_of(sizes)
    shifts = np.repeat(starts - before[:-1], sizes)
    numbers: NDArray[np.int64] = np.arange(before[-1]) + shifts
    return numbers


def groups_of(table: pa.Table, names: Sequence[str]) -> NDArray[np.int64]:
    """Return [n] group numbers, the same for rows that agree in some columns.

    >>> groups_of(pa.table({"a": ["x", "y", "x"], "b": ["s", "s", "s"]}), ("a", "b")).tolist()
    [0, 1, 0]
    """
    groups = np.zeros(len(table), np.int64)
    for name in names:
        column = table[name].combine_chunks().dictionary_encode()
        groups = groups * len(column.dictionary) + column.indices.to_numpy()
    return groups


def lists_of(names: pa.Array, members: NDArray[np.bool_]) -> pa.ListArray:
    """Return [n] for each row the names of its members, in order.

    Args:
        names: [m]
        members: [n, m]
    """
    offsets = starts_of(members.sum(1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(np.nonzero(members)[1])))
