"""Digests of problems' texts, which tell whether predictions are for the texts of a dataset; draws.

A digest is `md5:` and 16 hexadecimal digits: the first half of the MD5 of id and texts with their
lengths in bytes.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
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


def digest_in_sql(columns: Sequence[str]) -> str:
    """Write `text_digests` as an expression of DuckDB."""
    parts = ", ".join(f"coalesce(strlen({name}), 0), ':', {name}" for name in columns)
    # `md5_number_lower` is the same, but takes three times as long.
    return f"(md5_number(concat({parts})) & {2**64 - 1}::UHUGEINT)::UBIGINT"


def digest_in_hex(column: str) -> str:
    """Write the number of a digest in a file as an expression of DuckDB; null if it is none."""
    # Reversed, the digits are those of the number, but for the two of each byte.
    digits = f"TRY_CAST('0x' || reverse(substr({column}::VARCHAR, {len(PREFIX) + 1})) AS UBIGINT)"
    low = int.from_bytes(b"\x0f" * 8)
    return f"(({digits} & {low}::UBIGINT) * 16 + (({digits} >> 4) & {low}::UBIGINT))"


def combined(digests: NDArray[np.uint64]) -> str:
    """Digest many problems, whatever their order, in eight hexadecimal digits."""
    return hex_of(int(digests.sum(dtype=np.uint64)))


def hex_of(total: int) -> str:
    """Show a sum of digests in eight hexadecimal digits."""
    return f"{total % 2**32:08x}"


def drawn_seeds(seed_ids: Iterable[str], count: int, *, rng_seed: int = 0) -> list[str]:
    """Draw at most `count` seeds of each source at random.

    Their order is by a hash of their ids, so a sample does not depend on other seeds, and a
    smaller sample is a subset of a larger one.
    """

    def rank(seed: str) -> bytes:  # as `draw_rank`, which exports do not have
        return hashlib.sha256(f"{rng_seed}\0{seed}".encode()).digest()

    by_source = groupby(sorted({*seed_ids}), lambda seed: seed.partition(":")[0])
    return [seed for _, seeds in by_source for seed in nsmallest(count, seeds, key=rank)]
