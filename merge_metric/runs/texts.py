"""Digests of problems' texts, which tell whether predictions are for the texts of a dataset.

A predictions file has one for each row, so that parts of a dataset can be predicted and
put together, and rows that are about other texts can be named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

TEXT_DIGEST: Final = "text_digest"
"""The column of a predictions file: 16 hexadecimal digits."""

UNVERIFIED: Final = "unverified"
"""In place of a digest, where predictions do not say which texts they are for."""

_SIZE: Final = 8
"""Bytes of a digest."""

_ROWS: Final = 65_536
"""Rows that are Python objects at a time."""


def text_digests(problems: pa.Table, fields: Sequence[str]) -> NDArray[np.uint64]:
    """Digest the id and the texts of each problem.

    Args:
        problems: With the column `variant_id` and those of the texts.
        fields: Names of the columns of texts, in the order of the format.

    Returns:
        (n,), BLAKE2b of eight bytes. Texts that a model was not shown count too.

    >>> problem = {"variant_id": ["a"], "premise": ["A dog."], "hypothesis": ["A cat."]}
    >>> to_hex(text_digests(pa.table(problem), ("premise", "hypothesis"))).to_pylist()
    ['6e256523dec6dffa']
    """
    digests = bytearray()
    for texts in rows_of(problems, ("variant_id", *fields)):
        # With lengths, as nothing can stand between texts that does not occur in texts.
        text = "".join(f"{len(text or '')}:{text or ''}" for text in texts)
        digests += hashlib.blake2b(text.encode(), digest_size=_SIZE).digest()
    return np.frombuffer(digests, ">u8").astype(np.uint64)


def rows_of(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of some columns row by row, of which few are Python objects at a time."""
    for batch in table.select(list(names)).to_batches(max_chunksize=_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def to_hex(digests: NDArray[np.uint64]) -> pa.Array:
    """Write digests as files have them."""
    digits = pa.py_buffer(digests.astype(">u8").tobytes().hex().encode())
    ends = pa.py_buffer(np.arange(0, 2 * _SIZE * len(digests) + 1, 2 * _SIZE, dtype=np.int64))
    found = pa.LargeStringArray.from_buffers(len(digests), ends, digits)
    return found.cast(pa.string())


def from_hex(column: pa.ChunkedArray) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Read digests, and whether there is one, of each row.

    Args:
        column: Digests as `to_hex` gives them, or null.
    """
    there = column.is_valid().to_numpy().astype(bool)
    found = np.zeros(len(column), np.uint64)
    digits = "".join(column.drop_null().to_pylist())
    found[there] = np.frombuffer(bytes.fromhex(digits), ">u8")
    return found, there


def added_texts(parts: Sequence[str]) -> str:
    """Put digests of `combined` together; `UNVERIFIED` where that is one of them.

    >>> added_texts(["fffffffe", "00000003"]), added_texts(["fffffffe", UNVERIFIED])
    ('00000001', 'unverified')
    """
    if not all(parts) or UNVERIFIED in parts:
        return UNVERIFIED if UNVERIFIED in parts else ""
    return f"{sum(int(part, 16) for part in parts):016x}"[-8:]


def combined(digests: NDArray[np.uint64]) -> str:
    """Digest many problems, whatever their order, in eight hexadecimal digits."""
    return f"{int(digests.sum(dtype=np.uint64)):016x}"[-8:]
