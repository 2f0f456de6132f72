"""Ids of problems within a source: unique ones, and those that SNLI's rows have officially.

The Hub's copy of SNLI has no pairIDs. `snli_pair_ids.tsv.gz` has those of the labelled problems of
its test and development set, by a digest of texts and label, so that problems have the same ids
wherever they were read, in whatever order.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Self

from generation.config import bundled_path
from merge_dataset.files import partial_path
from merge_dataset.schema import VARIANT_CLASSES

PAIR_IDS = "problems/snli_pair_ids.tsv.gz"
_VARIANT_ID: Final = re.compile(r"(?P<seed>.+)/(?:" + "|".join(VARIANT_CLASSES) + r")/.+")
"""Ids that `merge_dataset.schema.variant_id` may give."""
_SETTINGS: Final = (
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    "PRAGMA cache_size = -65536",  # KiB
    "CREATE TABLE ids (id TEXT PRIMARY KEY) WITHOUT ROWID",
    "BEGIN",
)
_DIGITS = 12
"""Hexadecimal digits of a digest: two of 20,000 problems share one by a chance in a million."""


class UniqueIds:
    """Rename repeated ids: the second `x` becomes `x~2`, the third `x~3`.

    An id that a variant of another problem could have is found by `of_variant`. A context manager,
    as ids may lie in a file, which goes with it.
    """

    def __init__(self, scratch: Path | None = None) -> None:
        """Start without ids; they lie in memory or, beyond a cache, in a temporary file."""
        self._file = None if scratch is None else partial_path(scratch.absolute())
        # Without a lock, which some file systems of clusters lack.
        place = "file::memory:" if self._file is None else f"{self._file.as_uri()}?nolock=1"
        self._taken = sqlite3.connect(place, uri=True, isolation_level=None)
        for line in _SETTINGS:
            self._taken.execute(line)
        self._last: dict[str, int] = {}
        """Repeated id → the last number given to it."""
        self._like_variants: dict[str, tuple[str, str]] = {}
        """Id with the form of a variant's → the problem whose variant it would be, and place."""

    def __call__(self, row_id: str, where: str = "") -> str:
        """Return the id itself, or where it is taken, with a number."""
        unique, number = row_id, self._last.get(row_id, 1)
        while not self._taken.execute("INSERT OR IGNORE INTO ids VALUES (?)", (unique,)).rowcount:
            number += 1
            unique = f"{row_id}~{number}"
            self._last[row_id] = number
        if found := _VARIANT_ID.fullmatch(unique):
            self._like_variants[unique] = found["seed"], where
        return unique

    def of_variant(self, dropped: Iterable[str] = ()) -> tuple[str, str, str] | None:
        """Find an id that a variant of another problem could have, that problem's, and the row."""
        if self._like_variants:
            without = set(dropped)
            for own, (seed, where) in self._like_variants.items():
                found = self._taken.execute("SELECT 1 FROM ids WHERE id = ?", (seed,)).fetchone()
                if found and not without & {own, seed}:
                    return own, seed, where
        return None

    def __enter__(self) -> Self:
        """Take ids from now on."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the file, if there is one."""
        self._taken.close()
        if self._file is not None:
            self._file.unlink(missing_ok=True)


class PairIds:
    """SNLI's pairIDs by texts and label.

    A few problems stand there twice, word for word. Their ids are given in alphabetical order:
    as the rows are alike, it does not matter which gets which.
    """

    def __init__(self) -> None:
        """Read them from this package."""
        self._ids: defaultdict[str, list[str]] = defaultdict(list)
        with gzip.open(bundled_path(PAIR_IDS), "rt", encoding="utf-8") as lines:
            for line in lines:
                pair_id, digest = line.split()
                self._ids[digest].append(pair_id)
        self.found = 0
        """Number of problems that were asked for and known."""

    def __call__(self, texts: Sequence[str], label: str) -> str | None:
        """Return the pairID of a problem, or None if it is none of SNLI's."""
        known = self._ids.get(problem_digest(texts, label))
        if not known:
            return None
        self.found += 1
        if len(known) > 1:
            return known.pop(0)
        return known[0]


def problem_digest(texts: Sequence[str], label: str) -> str:
    """Digest texts and label; copies of SNLI differ in spaces, which do not count.

    >>> problem_digest(["A boy  runs. ", "He runs."], "entailment")
    'e9714bc41482'
    >>> problem_digest(["A boy runs.", "He runs."], "entailment")
    'e9714bc41482'
    """
    words = [" ".join(text.split()) for text in texts]
    return hashlib.sha256(json.dumps([*words, label]).encode()).hexdigest()[:_DIGITS]
