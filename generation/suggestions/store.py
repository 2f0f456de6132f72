"""The suggestion store: every (model revision, sentence, span) is scored once, ever.

A store is a folder per model and setting. It holds `store.json` (whose suggestions these
are), `vocabulary.DIGEST.parquet` (what token ids read as) and `parts/`, Parquet files named
after the shard and the questions they answer. The digests in the names are those of the
files, which are there whole or not at all; one that no longer fits its name counts as not
there. Runs whose shards are of other sizes can share a store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from generation.records import MaskedQuery, Scores
from generation.run_folder import (
    digest_of,
    is_sound,
    read_json,
    slug,
    write_json,
    write_named,
)
from generation.suggestions.questions import EVERYTHING, Shard, key_of, question_columns
from generation.suggestions.vocabulary import Vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

PART_SIZE: Final = 2048
"""Questions a part answers: what a killed run loses at most."""
_LAYOUT: Final = 3
"""Number of the files' layout, and of how scores are rounded; another number, another store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIdentity:
    """Whose suggestions a store holds; two that differ in anything never mix."""

    name: str
    revision: str
    architecture: str
    masking: str
    suggestions_per_occurrence: int
    dtype: str
    device: str
    max_pieces: int = 1

    @property
    def folder(self) -> str:
        """Name of the store's folder: readable, and different for every identity."""
        return f"{slug(self.name)}-{digest_of({**self.values, 'layout': _LAYOUT})[:12]}"

    @property
    def values(self) -> dict[str, Any]:
        """As files have it: `max_pieces` only where words may have several."""
        values = asdict(self)
        if self.max_pieces == 1:
            del values["max_pieces"]
        return values


@dataclass(frozen=True, slots=True)
class Part:
    """The answers in one file, row by row."""

    keys: list[bytes]
    """Of the questions."""
    scores: Scores


class SuggestionStore:
    """One model's suggestions on disk."""

    def __init__(self, path: Path, identity: StoreIdentity) -> None:
        """Use `create` or `open`."""
        self.path, self.identity = path, identity

    @classmethod
    def create(cls, root: Path, identity: StoreIdentity, vocabulary: Vocabulary) -> Self:
        """The store of `identity` under `root`, made if it is not there.

        Raises:
            ValueError: the folder holds something else.
        """
        store = cls(root / identity.folder, identity)
        header = store.path / "store.json"
        if not header.exists():
            write_json(header, identity.values, shared=True)
        if not any(is_sound(path) for path in store._vocabulary_paths()):
            write_named(store.path, "vocabulary", _vocabulary_table(vocabulary))
        return cls.open(root, identity.folder, expected=identity)

    @classmethod
    def open(cls, root: Path, folder: str, *, expected: StoreIdentity | None = None) -> Self:
        """A store that is there.

        Raises:
            FileNotFoundError: it is not.
            ValueError: it is not what `expected` says.
        """
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
        if identity.folder != folder or identity != (expected or identity):
            raise ValueError(
                f"{header}: expected the suggestions of {expected or folder}, got those of "
                f"{identity}; move the folder away and run: merge-nli suggest"
            )
        return cls(root / folder, identity)

    def vocabulary(self) -> Vocabulary:
        """What the token ids of this store read as.

        Raises:
            ValueError: the file is damaged or gone.
        """
        sound = next((path for path in self._vocabulary_paths() if is_sound(path)), None)
        if sound is None:
            raise ValueError(
                f"{self.path}: expected a sound vocabulary, found none; run: merge-nli suggest"
            )
        table = pq.read_table(sound)
        return Vocabulary(tuple(table["text"].to_pylist()), table["kind"].to_numpy())

    def parts(self, shard: Shard = EVERYTHING) -> Iterator[Part]:
        """All sound parts that may answer questions of a shard, in the order of their names."""
        for path in self._sound_paths(shard):
            yield _read_part(path, self.identity.max_pieces)

    def keys(self, shard: Shard = EVERYTHING) -> set[bytes]:
        """Of the questions answered so far, and perhaps of some in neighbouring shards."""
        return {
            key
            for path in self._sound_paths(shard)
            for key in pq.read_table(path, columns=["key"])["key"].to_pylist()
        }

    def missing(self, shard: Shard, queries: Sequence[MaskedQuery]) -> list[list[MaskedQuery]]:
        """The unanswered ones among a shard's questions, grouped into the parts to be written.

        *All* questions are cut into pieces before the answered ones are taken out. So a
        run that was interrupted, or lost a part, is left with pieces it would have written
        anyway, and ends with the same files.
        """
        answered = self.keys(shard)
        ordered = sorted((key_of(query), query) for query in set(queries))
        pieces = (ordered[i : i + PART_SIZE] for i in range(0, len(ordered), PART_SIZE))
        open_pieces = ([q for key, q in piece if key not in answered] for piece in pieces)
        return [piece for piece in open_pieces if piece]

    def fill(
        self,
        shards: Iterable[tuple[Shard, Sequence[MaskedQuery]]],
        score: Callable[[list[MaskedQuery]], Scores],
        *,
        at_once: int = 1,
        on_answered: Callable[[int], object] = lambda queries: None,
    ) -> None:
        """Score what is missing or damaged and write it, part by part.

        Args:
            shards: Shards and their questions.
            score: Answers questions.
            at_once: Least questions to score together, where there are so many: an
                accelerator wants more than a part has.
            on_answered: Called with the number of questions that a shard need not ask.
        """
        waiting: list[tuple[Shard, list[MaskedQuery]]] = []
        for shard, queries in shards:
            for name in self.discard_corrupt(shard):
                log.warning("%s: damaged, made again: %s", self.path, name)
            pieces = self.missing(shard, queries)
            on_answered(len(queries) - sum(map(len, pieces)))
            for piece in pieces:
                waiting.append((shard, piece))
                if sum(len(piece) for _, piece in waiting) >= at_once:
                    self._answer(waiting, score)
                    waiting = []
        if waiting:
            self._answer(waiting, score)

    def answers(self, shard: Shard, queries: Sequence[MaskedQuery]) -> Scores:
        """What is said about a shard's questions, in their order.

        Raises:
            ValueError: some have no answer in the store.
        """
        wanted = {key_of(query): row for row, query in enumerate(queries)}
        found, rows = [], []
        for part in self.parts(shard):
            mine = [i for i, key in enumerate(part.keys) if key in wanted]
            rows += [wanted.pop(part.keys[i]) for i in mine]
            found.append(part.scores.take(mine))
        if wanted:
            raise ValueError(
                f"{self.path}: expected answers to {len(queries)} questions of shard "
                f"{shard.name}, {len(wanted)} are missing; run: merge-nli suggest"
            )
        return Scores.concatenate(found).take(np.argsort(rows).tolist())

    def discard_corrupt(self, shard: Shard = EVERYTHING) -> list[str]:
        """Remove parts whose content does not fit their name; their names."""
        corrupt = [path for path in self._part_paths(shard) if not is_sound(path)]
        for path in corrupt:
            path.unlink()
        return [path.name for path in corrupt]

    def _vocabulary_paths(self) -> list[Path]:
        return sorted(self.path.glob("vocabulary.*.parquet"))

    def _part_paths(self, shard: Shard) -> list[Path]:
        paths = sorted((self.path / "parts").glob("*.parquet"))
        return [path for path in paths if _shard_of(path).overlaps(shard)]

    def _sound_paths(self, shard: Shard) -> list[Path]:
        return [path for path in self._part_paths(shard) if is_sound(path)]

    def _answer(
        self,
        pieces: Sequence[tuple[Shard, list[MaskedQuery]]],
        score: Callable[[list[MaskedQuery]], Scores],
    ) -> None:
        scores, done = score([query for _, piece in pieces for query in piece]), 0
        for shard, piece in pieces:
            self._write_part(shard, piece, scores.take(slice(done, done + len(piece))))
            done += len(piece)

    def _write_part(self, shard: Shard, queries: list[MaskedQuery], scores: Scores) -> None:
        table = _part_table(queries, scores)
        keys = digest_of([key.hex() for key in table["key"].to_pylist()])
        write_named(self.path / "parts", f"{shard.name}.{keys[:16]}", table)


def _shard_of(path: Path) -> Shard:
    try:
        return Shard.parse(path.name.split(".")[0])
    except ValueError:
        return EVERYTHING  # not ours: found to be unsound


def _part_table(queries: Sequence[MaskedQuery], scores: Scores) -> pa.Table:
    return pa.table(
        {
            **question_columns(queries),
            "original": _column(scores.original),
            "original_logit": _column(scores.original_logit),
            "log_normalizer": _column(scores.log_normalizer),
            "windowed": _column(scores.windowed),
            "tokens": _column(scores.tokens),
            "logits": _column(scores.logits),
        }
    )


def _column(values: NDArray[Any]) -> pa.Array:
    """Rows of any shape, flat."""
    if values.ndim == 1:
        return pa.array(values)
    width = int(np.prod(values.shape[1:]))
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), width)


def _read_part(path: Path, max_pieces: int) -> Part:
    table = pq.read_table(path).combine_chunks()
    word = (max_pieces,) if max_pieces > 1 else ()
    shapes = {"original": word, "tokens": (-1, *word), "logits": (-1,)}
    columns = {}
    for name in ("original", "original_logit", "log_normalizer", "windowed", "tokens", "logits"):
        column, shape = table[name], shapes.get(name, ())
        values = column.chunk(0).flatten() if shape else column
        columns[name] = values.to_numpy(zero_copy_only=False).reshape(len(table), *shape)
    return Part(table["key"].to_pylist(), Scores(**columns))


def _vocabulary_table(vocabulary: Vocabulary) -> pa.Table:
    return pa.table(
        {"text": pa.array(vocabulary.texts, pa.string()), "kind": pa.array(vocabulary.kinds)}
    )
