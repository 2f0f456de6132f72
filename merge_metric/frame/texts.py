"""Digests of problems' texts, which tell whether predictions are for the texts of a dataset.

A digest is `md5:` and 16 hexadecimal digits: the first half of the MD5 of id and texts with their
lengths in bytes, which DuckDB computes too.
"""

import hashlib
import json
from binascii import unhexlify
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

TEXT_DIGEST: Final = "text_digest"
"""The column of a predictions file."""

UNVERIFIED: Final = "unverified"
"""In place of a digest, where predictions do not say which texts they are for."""

PREFIX: Final = "md5:"
"""Beginning of a digest."""

_DIGITS: Final = 16
_ROWS: Final = 65_536
"""Rows that are Python objects at a time."""


def text_digests(problems: pa.Table, fields: Sequence[str]) -> NDArray[np.uint64]:
    """Digest the id and the texts of each problem, in the format's order: (n,), eight bytes each.

    >>> problem = {"variant_id": ["a"], "premise": ["A dog."], "hypothesis": ["A cat."]}
    >>> to_hex(text_digests(pa.table(problem), ("premise", "hypothesis"))).to_pylist()
    ['md5:99ac44b402233d17']
    """
    digests = bytearray()
    for texts in rows_of(problems, ("variant_id", *fields)):
        encoded = [(text or "").encode() for text in texts]
        # With lengths, as nothing can stand between texts that does not occur in texts.
        joined = b"".join(b"%d:%b" % (len(text), text) for text in encoded)
        digests += hashlib.md5(joined, usedforsecurity=False).digest()[:8]
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def digest_in_sql(columns: Sequence[str]) -> str:
    """Write `text_digests` as an expression of DuckDB; columns that are null are left out."""
    # What is null is "" to `concat`. `||` would do for the colon, but takes longer.
    colon = "CASE WHEN {} IS NOT NULL THEN ':' END"
    parts = ", ".join(f"strlen({each}), {colon.format(each)}, {each}" for each in columns)
    # `md5_number_upper` is the same, but takes three times as long.
    return f"(md5_number(concat({parts})) & {2**64 - 1}::UHUGEINT)::UBIGINT"


def rows_of(table: pa.Table | pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of some columns row by row, of which few are Python objects at a time."""
    whole = pa.table(table.select(list(names)))
    for batch in whole.to_batches(max_chunksize=_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def to_hex(digests: NDArray[np.uint64]) -> pa.Array:
    """Write digests as files have them."""
    digits = digests.astype("<u8").tobytes().hex()
    ends = range(0, len(digits), _DIGITS)
    return pa.array([PREFIX + digits[at : at + _DIGITS] for at in ends], pa.string())


def from_hex(column: pa.Array | pa.ChunkedArray) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Read digests, and whether each row has one."""
    has_digest = np.asarray(column.is_valid())
    digits = pc.binary_slice(column.cast(pa.binary()), -_DIGITS).drop_null()
    found = np.zeros(len(column), np.uint64)
    found[has_digest] = np.frombuffer(unhexlify(characters(digits)), "<u8")
    return found, has_digest


def characters(texts: pa.StringArray | pa.ChunkedArray) -> bytes:
    r"""Join strings, or bytes, none of which is null, as UTF-8.

    >>> characters(pa.array(["a", "é"]))
    b'a\xc3\xa9'
    """
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    found = []
    for chunk in chunks:
        if len(chunk):
            offsets = np.frombuffer(chunk.buffers()[1], np.int32)[chunk.offset :]
            found.append(memoryview(chunk.buffers()[2])[offsets[0] : offsets[len(chunk)]])
    return b"".join(found)


def digest_of(
    columns: Mapping[str, int],
    description: bytes,
    labels: Sequence[str],
    pieces: Callable[[str], Iterable[pa.Array]],
) -> str:
    """Digest predictions: rows, labels and description, wherever they are stored.

    Parquet's own checksums cover neither metadata nor the heads of pages. Columns come with their
    numbers of rows; `pieces` reads one: integers, fixed-size lists of floats, strings, or lists of
    integers, those with lengths twice.
    """
    digest = hashlib.sha256(description)
    digest.update(json.dumps(labels).encode())
    for name, count in columns.items():
        digest.update(f"\n{name} {count}\n".encode())
        has_lengths = False
        for column in pieces(name):
            kind = column.type
            if pa.types.is_integer(kind):
                digest.update(column.to_numpy(zero_copy_only=False).astype("<i8").tobytes())
            elif pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type):
                digest.update(column.flatten().to_numpy().astype("<f8").tobytes())
            else:
                length = pc.list_value_length if pa.types.is_nested(kind) else pc.binary_length
                lengths = pc.fill_null(length(column), -1).to_numpy(zero_copy_only=False)
                digest.update(lengths.astype("<i4").tobytes())
                has_lengths = True
        for column in pieces(name) if has_lengths else ():
            if pa.types.is_nested(column.type):
                digest.update(column.flatten().to_numpy().astype("<i8").tobytes())
            else:
                digest.update(characters(column.drop_null()))
    return digest.hexdigest()


def combined(digests: NDArray[np.uint64]) -> str:
    """Digest many problems, whatever their order, in eight hexadecimal digits."""
    return hex_of(int(digests.sum(dtype=np.uint64)))


def hex_of(total: int) -> str:
    """Show a sum of digests in eight hexadecimal digits."""
    return f"{total % 2**32:08x}"
