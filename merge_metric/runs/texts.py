"""Digests of problems' texts, which tell whether predictions are for the texts of a dataset.

Version 2 is `md5:` and 16 hexadecimal digits: the first half of the MD5 of id and texts with their
lengths in bytes, which DuckDB can compute, too. Version 1, only 16 digits, is the BLAKE2b of the
same with lengths in characters; files that have it are still verified.
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
"""Name of the column in a predictions file."""

UNVERIFIED: Final = "unverified"
"""Value in place of a digest if predictions do not record their texts."""

PREFIX: Final = "md5:"
"""Prefix of digests of version 2."""

_DIGITS: Final = 16
_ROWS: Final = 65_536
"""Number of rows that are Python objects at a time."""


def text_digests(problems: pa.Table, fields: Sequence[str]) -> NDArray[np.uint64]:
    """Digest the id and the texts of each problem, in the order of fields: (n,), eight bytes each.

    >>> problem = {"variant_id": ["a"], "premise": ["A dog."], "hypothesis": ["A cat."]}
    >>> to_hex(text_digests(pa.table(problem), ("premise", "hypothesis"))).to_pylist()
    ['md5:99ac44b402233d17']
    """
    digests = bytearray()
    for texts in rows_of(problems, ("variant_id", *fields)):
        encoded = [(text or "").encode() for text in texts]
        # With lengths, as any separator could occur in the texts.
        joined = b"".join(b"%d:%b" % (len(text), text) for text in encoded)
        digests += hashlib.md5(joined, usedforsecurity=False).digest()[:8]
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def first_version(problems: pa.Table | pa.RecordBatch, fields: Sequence[str]) -> NDArray[np.uint64]:
    """Compute the digests of `text_digests` in version 1."""
    digests = bytearray()
    for texts in rows_of(problems, ("variant_id", *fields)):
        text = "".join(f"{len(text or '')}:{text or ''}" for text in texts)
        digests += hashlib.blake2b(text.encode(), digest_size=8).digest()
    return np.frombuffer(digests, ">u8").astype(np.uint64)


def digest_in_sql(columns: Sequence[str]) -> str:
    """Write `text_digests` as an expression of DuckDB; columns that are null are left out."""
    # `concat` treats null as "". `||` would work for the colon, but takes longer.
    colon = "CASE WHEN {} IS NOT NULL THEN ':' END"
    parts = ", ".join(f"strlen({each}), {colon.format(each)}, {each}" for each in columns)
    # `md5_number_upper` is the same, but takes three times as long.
    return f"(md5_number(concat({parts})) & {2**64 - 1}::UHUGEINT)::UBIGINT"


def rows_of(table: pa.Table | pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield rows of some columns as tuples, of which few are Python objects at a time."""
    whole = pa.table(table.select(list(names)))
    for batch in whole.to_batches(max_chunksize=_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def to_hex(digests: NDArray[np.uint64]) -> pa.Array:
    """Convert digests of version 2 to their form in files."""
    digits = digests.astype("<u8").tobytes().hex()
    ends = range(0, len(digits), _DIGITS)
    return pa.array([PREFIX + digits[at : at + _DIGITS] for at in ends], pa.string())


def from_hex(column: pa.Array | pa.ChunkedArray) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Parse digests; return them and their versions: 1, 2, or 0 for a row without digest."""
    second = pc.fill_null(pc.starts_with(column, PREFIX), False).to_numpy(zero_copy_only=False)
    versions = column.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8) + second
    digits = pc.binary_slice(column.cast(pa.binary()), -_DIGITS).drop_null()
    found = np.zeros(len(column), np.uint64)
    found[versions > 0] = np.frombuffer(unhexlify(characters(digits)), "<u8")
    found[versions == 1] = found[versions == 1].byteswap()
    return found, versions


def characters(texts: pa.StringArray | pa.ChunkedArray) -> bytes:
    r"""Concatenate strings or bytes, without nulls, as UTF-8.

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
    """Compute the SHA-256, in hexadecimal, of predictions: description, labels and columns.

    It does not depend on the file format; Parquet's own checksums cover neither metadata nor page
    headers. `columns` maps names to numbers of rows. `pieces` reads a column by name, in chunks:
    integers, fixed-size lists of floats, strings, or lists of integers. It is called twice for
    strings and lists of integers: for their lengths, then for their values.
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
    """Combine digests of many problems, in any order, into eight hexadecimal digits."""
    return hex_of(int(digests.sum(dtype=np.uint64)))


def hex_of(total: int) -> str:
    """Write the sum of digests, modulo 2³², as eight hexadecimal digits."""
    return f"{total % 2**32:08x}"
