"""The suggestion store: every (model revision, sentence, span) is scored once, ever.

A store is a folder per model and setting, with `store.json`, `vocabulary.DIGEST.parquet` and
`parts/`, named after shards and questions. Runs whose shards have other sizes can share it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from generation.records import MaskedQuery, Scores
from generation.run_folder import slug
from generation.suggestions.questions import EVERYTHING, Shard, key_of, question_columns
from generation.suggestions.vocabulary import Vocabulary
from merge_dataset.files import digest_of, read_json, write_json
from merge_dataset.part_store import (
    discard_corrupt,
    is_sound,
    missing_parts,
    part_paths,
    sound_parts,
    write_part,
)

PART_SIZE: Final = 2048
"""Number of questions in a part; on a CPU, a killed run loses at most two parts' answers."""
_SCORES: Final = ("original", "original_logit", "log_normalizer", "windowed", "tokens", "logits")
_LAYOUT: Final = 3
"""Version of the files' layout and of how scores are rounded; each version has its own stores."""


OF_MODEL: Final = ("name", "revision", "architecture", "dtype", "device")
OF_SETTINGS: Final = ("masking", "suggestions_per_occurrence")
"""Attributes of a model, and settings of the questions, that distinguish stores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIdentity:
    """The model and settings of a store; suggestions of different identities never mix."""

    name: str
    revision: str
    architecture: str
    masking: str
    suggestions_per_occurrence: int
    dtype: str
    device: str

    @property
    def folder(self) -> str:
        """Name of the store's folder: readable, and unique to this identity."""
        return f"{slug(self.name)}-{digest_of({**asdict(self), 'layout': _LAYOUT})[:12]}"


class SuggestionStore:
    """One model's suggestions on disk."""

    def __init__(self, path: Path, identity: StoreIdentity) -> None:
        """Use `create` or `open`."""
        self.path, self.identity = path, identity

    @classmethod
    def create(cls, root: Path, identity: StoreIdentity, vocabulary: Vocabulary) -> Self:
        """Open the store of `identity` under `root`; make it if it does not exist."""
        store = cls(root / identity.folder, identity)
        header = store.path / "store.json"
        if not header.exists():
            write_json(header, asdict(identity))
        if not any(sound_parts(store.path, "vocabulary.*")):
            columns = {
                "text": pa.array(vocabulary.texts, pa.string()),
                "kind": pa.array(vocabulary.kinds),
            }
            write_part(store.path, "vocabulary", pa.table(columns))
        return cls.open(root, identity.folder)

    @classmethod
    def open(cls, root: Path, folder: str) -> Self:
        """Open a store that exists."""
        header = root / folder / "store.json"
        if not header.is_file():
            raise FileNotFoundError(
                f"expected a suggestion store at {root / folder}, found none; run: merge-nli "
                "suggest"
            )
        try:
            identity = StoreIdentity(**read_json(header))
        except TypeError as error:
            raise ValueError(
                f"{header}: expected the fields of a store's identity: {error}; move the folder "
                "away and run: merge-nli suggest"
            ) from error
        return cls(root / folder, identity)

    def vocabulary(self) -> Vocabulary:
        """Read the texts and kinds of this store's token ids."""
        sound = next(sound_parts(self.path, "vocabulary.*"), None)
        if sound is None:
            raise ValueError(
                f"{self.path}: expected a sound vocabulary, found none; run: merge-nli suggest"
            )
        table = pq.read_table(sound)
        return Vocabulary(tuple(table["text"].to_pylist()), table["kind"].to_numpy())

    def parts(self, shard: Shard = EVERYTHING) -> Iterator[tuple[list[bytes], Scores]]:
        """Yield keys and answers of a shard's intact parts, perhaps with other shards' answers."""
        for path in filter(is_sound, self._part_paths(shard)):
            # Without the sentences: a long one is repeated in each of its questions.
            table = pq.read_table(path, columns=["key", *_SCORES]).combine_chunks()
            columns = {}
            for name in _SCORES:
                is_list = name in ("tokens", "logits")
                values = table[name].chunk(0).flatten() if is_list else table[name]
                rows = values.to_numpy(zero_copy_only=False)
                columns[name] = rows.reshape(len(table), -1) if is_list else rows
            yield table["key"].to_pylist(), Scores(**columns)

    def keys(self, shard: Shard = EVERYTHING) -> set[bytes]:
        """Collect the keys of a shard's answered questions, perhaps with other shards' keys."""
        return {
            key
            for path in filter(is_sound, self._part_paths(shard))
            for key in pq.read_table(path, columns=["key"])["key"].to_pylist()
        }

    def missing(self, shard: Shard, queries: Sequence[MaskedQuery]) -> list[list[MaskedQuery]]:
        """Group a shard's unanswered questions into parts to be written."""
        answered = self.keys(shard)
        ordered = sorted((key_of(query), query) for query in set(queries))
        parts = missing_parts(ordered, lambda pair: pair[0] in answered, size=PART_SIZE)
        return [[query for _, query in part] for part in parts]

    def fill(
        self,
        shards: Iterable[tuple[Shard, Sequence[MaskedQuery]]],
        score: Callable[[list[MaskedQuery]], Scores],
        *,
        at_once: int = 1,
        on_answered: Callable[[int], object] = lambda queries: None,
    ) -> None:
        """Score the questions whose answers are missing or damaged, and write part by part.

        At least `at_once` questions, and at least `PART_SIZE`, are scored together, so that batches
        of equal length are full.
        """
        waiting: list[tuple[Shard, list[MaskedQuery]]] = []
        for shard, queries in shards:
            self.discard_corrupt(shard)
            pieces = self.missing(shard, queries)
            on_answered(len(queries) - sum(map(len, pieces)))
            for piece in pieces:
                waiting.append((shard, piece))
                if sum(len(piece) for _, piece in waiting) >= max(at_once, PART_SIZE):
                    self._answer(waiting, score)
                    waiting = []
        if waiting:
            self._answer(waiting, score)

    def answers(self, shard: Shard, queries: Sequence[MaskedQuery]) -> Scores:
        """Read the answers to a shard's questions, in the order of the questions."""
        wanted = {key_of(query): row for row, query in enumerate(queries)}
        found, rows = [], []
        for keys, scores in self.parts(shard):
            mine = [i for i, key in enumerate(keys) if key in wanted]
            rows += [wanted.pop(keys[i]) for i in mine]
            found.append(scores.take(mine))
        if wanted:
            raise ValueError(
                f"{self.path}: expected answers to {len(queries)} questions of shard "
                f"{shard.name}, {len(wanted)} are missing; run: merge-nli suggest"
            )
        return Scores.concatenate(found).take(np.argsort(rows).tolist())

    def discard_corrupt(self, shard: Shard = EVERYTHING) -> list[str]:
        """Remove a shard's damaged parts, warn of each, and return their names."""
        return discard_corrupt(self._part_paths(shard), store=self.path)

    def _part_paths(self, shard: Shard) -> list[Path]:
        def may_answer(name: str) -> bool:
            return _shard_of(name.partition(".")[0]).overlaps(shard)

        return part_paths(self.path / "parts", wanted=may_answer)

    def _answer(
        self,
        pieces: Sequence[tuple[Shard, list[MaskedQuery]]],
        score: Callable[[list[MaskedQuery]], Scores],
    ) -> None:
        scores, done = score([query for _, piece in pieces for query in piece]), 0
        for shard, piece in pieces:
            columns = question_columns(piece)
            for name in _SCORES:
                values = getattr(scores, name)[done : done + len(piece)]
                columns[name] = pa.array(values.ravel())
                if values.ndim > 1:
                    size = values.shape[1]
                    columns[name] = pa.FixedSizeListArray.from_arrays(columns[name], size)
            done += len(piece)
            keys = digest_of([key.hex() for key in columns["key"].to_pylist()])
            write_part(self.path / "parts", f"{shard.name}.{keys[:16]}", pa.table(columns))


@lru_cache(maxsize=65_536)
def _shard_of(name: str) -> Shard:
    try:
        return Shard.parse(name)
    except ValueError:
        return EVERYTHING  # a stray file: its digest will not match either
