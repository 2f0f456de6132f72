"""Pseudo-log-likelihoods of sentences on disk: computed once per model revision, ever.

A folder per model and setting holds `store.json`, the model and setting, and `parts/`, whose
files are named after their sentences (see `generation.part_store`).
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

from generation.part_store import missing_parts, require_header, sound_parts, write_part
from generation.run_folder import slug
from generation.signals.pseudo_likelihood import SCHEME, Likelihoods
from merge_dataset.files import digest_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

PART_SIZE: Final = 512
"""Sentences in a part: a killed run loses at most as many."""
_KEY: Final = np.dtype("S16")
_LAYOUT: Final = 1
"""Version of the files' layout and of how sentences are scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The model and settings of a store; likelihoods of different identities never mix."""

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
        """Open the store of `identity` under `root`, and make it if it does not exist."""
        self.path, self.identity = root / identity.folder, identity
        require_header(
            self.path, asdict(identity), contents="likelihoods", redo="merge-nli signals"
        )
        self._keys = np.empty(0, _KEY)
        self._known = Likelihoods(np.empty(0), np.empty(0, np.bool_))
        self._parts = [pq.read_table(path) for path in sound_parts(self.path / "parts")]
        """Parts that are not yet sorted into the known likelihoods."""

    def missing(self, sentences: Iterable[str]) -> list[list[str]]:
        """Group the sentences without a likelihood into the parts that are to be written."""
        ordered = sorted((_key(sentence), sentence) for sentence in set(sentences))
        _, known = self._find([key for key, _ in ordered])
        items = [(text, there) for (_, text), there in zip(ordered, known.tolist(), strict=True)]
        parts = missing_parts(items, lambda item: item[1], size=PART_SIZE)
        return [[sentence for sentence, _ in part] for part in parts]

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
        write_part(self.path / "parts", digest_of([key.hex() for key in keys])[:16], table)
        self._parts.append(table)

    def of(self, sentences: Sequence[str]) -> Likelihoods:
        """Return the likelihoods of sentences, in their order.

        Raises:
            KeyError: some are not in the store.
        """
        rows, known = self._find([_key(sentence) for sentence in sentences])
        if not known.all():
            raise KeyError(f"{int((~known).sum())} sentences are not in {self.path}")
        return Likelihoods(self._known.pll[rows], self._known.windowed[rows])

    def _find(self, keys: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return [n] places among the known keys, and [n] whether each key is known."""
        self._sort_in()
        wanted = np.array(keys, _KEY)
        rows = np.searchsorted(self._keys, wanted)
        if not len(self._keys):
            return rows, np.zeros(len(wanted), np.bool_)
        known: NDArray[np.bool_] = self._keys[np.minimum(rows, len(self._keys) - 1)] == wanted
        return rows, known

    def _sort_in(self) -> None:
        """Sort new parts into the known likelihoods, by key."""
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
