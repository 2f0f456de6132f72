"""Sentences' pseudo-log-likelihoods on disk: each is computed once per model revision, ever.

A folder per model and setting holds `store.json`, which says whose they are, and `parts/`,
Parquet files named after the sentences they are of and their own digest. They are there whole
or not at all; one that no longer fits its name counts as not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from generation.run_folder import digest_of, is_sound, read_json, slug, write_json, write_named
from generation.signals.pseudo_likelihood import SCHEME, Likelihoods

if TYPE_CHECKING:
    from numpy.typing import NDArray

PART_SIZE: Final = 512
"""Sentences in a part: what a killed run loses at most."""
_KEY: Final = np.dtype("S16")
_LAYOUT: Final = 1
"""Number of the files' layout and of the way sentences are scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whose likelihoods a store holds; two that differ in anything never mix."""

    name: str
    revision: str
    architecture: str
    dtype: str
    device: str

    @property
    def folder(self) -> str:
        """Name of the store's folder."""
        described = {**asdict(self), "scheme": SCHEME, "layout": _LAYOUT}
        return f"{slug(self.name)}-{digest_of(described)[:12]}"


class LikelihoodStore:
    """One model's likelihoods."""

    def __init__(self, root: Path, identity: Identity) -> None:
        """Open the store of `identity` under `root`; made if it is not there."""
        self.path, self.identity = root / identity.folder, identity
        header = self.path / "store.json"
        if not header.exists():
            write_json(header, asdict(identity), shared=True)
        if (there := read_json(header)) != asdict(identity):
            raise ValueError(
                f"{header}: expected the likelihoods of {asdict(identity)}, got those of {there}; "
                "move the folder away and run: merge-nli signals"
            )
        self._keys = np.empty(0, _KEY)
        self._known = Likelihoods(np.empty(0), np.empty(0, np.bool_))
        self._parts = [
            pq.read_table(path)
            for path in sorted((self.path / "parts").glob("*.parquet"))
            if is_sound(path)
        ]
        """Those that are not yet among the known."""

    def missing(self, sentences: Iterable[str]) -> list[list[str]]:
        """Those without a likelihood, in the parts that are to be written.

        *All* sentences are cut into parts before the known ones are taken out, so that a run
        that was interrupted ends with the same files.
        """
        ordered = sorted((_key(sentence), sentence) for sentence in set(sentences))
        _, known = self._find([key for key, _ in ordered])
        new = [sentence for (_, sentence), there in zip(ordered, known, strict=True) if not there]
        part = (np.arange(len(ordered)) // PART_SIZE)[~known]
        return [
            [new[row] for row in np.flatnonzero(part == number).tolist()]
            for number in np.unique(part)
        ]

    def add(self, sentences: Sequence[str], found: Likelihoods) -> None:
        """Write a part."""
        keys = [_key(sentence) for sentence in sentences]
        table = pa.table(
            {
                "key": pa.array(keys, pa.binary(_KEY.itemsize)),
                "pll": pa.array(found.pll),
                "windowed": pa.array(found.windowed),
            }
        )
        write_named(self.path / "parts", digest_of([key.hex() for key in keys])[:16], table)
        self._parts.append(table)

    def of(self, sentences: Sequence[str]) -> Likelihoods:
        """What is known of sentences, in their order.

        Raises:
            KeyError: some are not known.
        """
        rows, known = self._find([_key(sentence) for sentence in sentences])
        if not known.all():
            raise KeyError(f"{int((~known).sum())} sentences are not in {self.path}")
        return Likelihoods(self._known.pll[rows], self._known.windowed[rows])

    def _find(self, keys: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """[n] Places among the known, and whether they are there."""
        self._sort_in()
        wanted = np.array(keys, _KEY)
        rows = np.searchsorted(self._keys, wanted)
        if not len(self._keys):
            return rows, np.zeros(len(wanted), np.bool_)
        known: NDArray[np.bool_] = self._keys[np.minimum(rows, len(self._keys) - 1)] == wanted
        return rows, known

    def _sort_in(self) -> None:
        """Put the parts among the known, sorted by key."""
        if not self._parts:
            return
        keys = [np.array(part["key"].to_pylist(), _KEY) for part in self._parts]
        pll = np.concatenate([self._known.pll, *(p["pll"].to_numpy() for p in self._parts)])
        windowed = np.concatenate(
            [self._known.windowed, *(p["windowed"].to_numpy() for p in self._parts)]
        )
        self._keys, rows = np.unique(np.concatenate([self._keys, *keys]), return_index=True)
        self._known = Likelihoods(pll[rows], windowed[rows])
        self._parts = []


def _key(sentence: str) -> bytes:
    return blake2b(sentence.encode(), digest_size=_KEY.itemsize).digest()
