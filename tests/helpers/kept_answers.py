"""The answers in stores on disk."""

import zlib
from pathlib import Path

import numpy as np

from generation.suggestions.store import suggestion_store
from merge_dataset.answer_store import KEY, _batches_of
from merge_dataset.files import read_json


def keys_in(store: Path) -> list[bytes]:
    """The keys of all answers in a store's folder, in order, repeated if answers are."""
    seed = zlib.crc32(store.name.encode())
    batches = (batch for path in store.glob("*.answers") for batch in _batches_of(path, seed))
    return sorted(key for _, keys in batches for key in keys.tolist())


def suggestions_in(root: Path) -> dict[str, bytes]:
    """The answers in each store of suggestions of a run, as bytes, whatever files they are in."""
    result = {}
    for record in sorted((root.parent / "stores").iterdir()):
        store = suggestion_store(root, read_json(record))
        keys = np.unique(np.array(keys_in(store.folder), KEY))
        (batch,) = store.read(keys).to_batches()
        result[store.folder.name] = keys.tobytes() + batch.serialize().to_pybytes()
    return result
