"""The suggestion store: every (model revision, sentence, span) is scored once, ever.

A store is a folder per model and setting. It holds `store.json` (whose suggestions these
are), `vocabulary.DIGEST.parquet` (what token ids read as) and `parts/`, Parquet files named
after the questions they answer. The digests in the names are those of the files, which are
there whole or not at all; one that no longer fits its name counts as not there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from generation.artifacts import (
    digest_of,
    digest_of_file,
    read_json,
    slug,
    write_json,
    write_table,
)
from generation.records import MaskedQuery, Scores
from generation.vocabulary import Vocabulary

log = logging.getLogger(__name__)

PART_SIZE: Final = 2048
"""Questions a part answers: what a killed run loses at most."""


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

    @property
    def folder(self) -> str:
        """Name of the store's folder: readable, and different for every identity."""
        return f"{slug(self.name)}-{digest_of(asdict(self))[:12]}"


@dataclass(frozen=True, slots=True)
class Part:
    """The answers in one file, row by row."""

    queries: list[MaskedQuery]
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
            write_json(header, asdict(identity))
        if not any(_is_sound(path) for path in store._vocabulary_paths()):
            _write_named(store.path, "vocabulary", _vocabulary_table(vocabulary))
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
        sound = next((path for path in self._vocabulary_paths() if _is_sound(path)), None)
        if sound is None:
            raise ValueError(
                f"{self.path}: expected a sound vocabulary, found none; run: merge-nli suggest"
            )
        table = pq.read_table(sound)
        return Vocabulary(tuple(table["text"].to_pylist()), table["kind"].to_numpy())

    def parts(self) -> Iterator[Part]:
        """All sound parts, in the order of their names."""
        for path in self._sound_paths():
            yield _read_part(path)

    def queries(self) -> set[MaskedQuery]:
        """The questions answered so far."""
        columns = ["sentence", "span", "masked"]
        return {
            query
            for path in self._sound_paths()
            for query in _queries(pq.read_table(path, columns=columns))
        }

    def missing(self, queries: Sequence[MaskedQuery]) -> list[list[MaskedQuery]]:
        """The unanswered ones among `queries`, grouped into the parts to be written.

        *All* questions are sorted and cut into pieces before the answered ones are taken
        out. So a run that was interrupted, or lost a part, is left with pieces it would
        have written anyway, and ends with the same files.
        """
        answered = self.queries()
        ordered = sorted(set(queries), key=lambda q: (q.sentence, q.span, q.masked))
        pieces = (ordered[i : i + PART_SIZE] for i in range(0, len(ordered), PART_SIZE))
        open_pieces = ([q for q in piece if q not in answered] for piece in pieces)
        return [piece for piece in open_pieces if piece]

    def fill(
        self,
        queries: Sequence[MaskedQuery],
        score: Callable[[list[MaskedQuery]], Scores],
    ) -> None:
        """Score what is missing or damaged and write it, part by part."""
        if corrupt := self.discard_corrupt():
            log.warning("%s: %d damaged part(s) are made again", self.path, len(corrupt))
        for piece in self.missing(queries):
            self._write_part(Part(piece, score(piece)))

    def counts(self, queries: Sequence[MaskedQuery]) -> dict[str, int]:
        """How many of `queries` had a word of several tokens (D3), how many a window.

        A window is what is left of a sentence longer than the model's limit.
        """
        wanted, counts = set(queries), {"not_in_vocabulary": 0, "windowed": 0}
        columns = ["sentence", "span", "masked", "original", "windowed"]
        for path in self._sound_paths():
            table = pq.read_table(path, columns=columns)
            mine = np.array([query in wanted for query in _queries(table)], bool)
            counts["not_in_vocabulary"] += int((table["original"].to_numpy()[mine] < 0).sum())
            counts["windowed"] += int(table["windowed"].to_numpy()[mine].sum())
        return counts

    def discard_corrupt(self) -> list[str]:
        """Remove parts whose content does not fit their name; their names."""
        corrupt = [path for path in self._part_paths() if not _is_sound(path)]
        for path in corrupt:
            path.unlink()
        return [path.name for path in corrupt]

    def _vocabulary_paths(self) -> list[Path]:
        return sorted(self.path.glob("vocabulary.*.parquet"))

    def _part_paths(self) -> list[Path]:
        return sorted((self.path / "parts").glob("*.parquet"))

    def _sound_paths(self) -> list[Path]:
        return [path for path in self._part_paths() if _is_sound(path)]

    def _write_part(self, part: Part) -> None:
        keys = [(q.sentence, q.span, q.masked) for q in part.queries]
        _write_named(self.path / "parts", digest_of(keys)[:16], _part_table(part))


def _write_named(folder: Path, name: str, table: pa.Table) -> None:
    """Write `name.DIGEST.parquet`, the digest being that of the file."""
    temporary = folder / f"{name}.unnamed"
    write_table(temporary, table)
    temporary.replace(folder / f"{name}.{digest_of_file(temporary)[:16]}.parquet")


def _is_sound(path: Path) -> bool:
    return path.name.split(".")[1] == digest_of_file(path)[:16]


def _part_table(part: Part) -> pa.Table:
    scores, k = part.scores, part.scores.tokens.shape[1]
    tokens = pa.FixedSizeListArray.from_arrays(pa.array(scores.tokens.ravel()), k)
    logits = pa.FixedSizeListArray.from_arrays(pa.array(scores.logits.ravel()), k)
    return pa.table(
        {
            "sentence": [query.sentence for query in part.queries],
            "span": pa.array([query.span for query in part.queries], pa.list_(pa.int32())),
            "masked": pa.array(
                [query.masked for query in part.queries], pa.list_(pa.list_(pa.int32()))
            ),
            "original": pa.array(scores.original),
            "original_logit": pa.array(scores.original_logit),
            "log_normalizer": pa.array(scores.log_normalizer),
            "windowed": pa.array(scores.windowed),
            "tokens": tokens,
            "logits": logits,
        }
    )


def _read_part(path: Path) -> Part:
    table = pq.read_table(path).combine_chunks()
    columns = {
        name: table[name].to_numpy()
        for name in ("original", "original_logit", "log_normalizer", "windowed")
    }
    matrices = {
        name: table[name].chunk(0).flatten().to_numpy().reshape(len(table), -1)
        for name in ("tokens", "logits")
    }
    return Part(_queries(table), Scores(**columns, **matrices))


def _queries(table: pa.Table) -> list[MaskedQuery]:
    return [
        MaskedQuery(sentence, (span[0], span[1]), tuple((start, end) for start, end in masked))
        for sentence, span, masked in zip(
            table["sentence"].to_pylist(),
            table["span"].to_pylist(),
            table["masked"].to_pylist(),
            strict=True,
        )
    ]


def _vocabulary_table(vocabulary: Vocabulary) -> pa.Table:
    return pa.table(
        {"text": pa.array(vocabulary.texts, pa.string()), "kind": pa.array(vocabulary.kinds)}
    )
