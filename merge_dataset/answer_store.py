"""The one store of models' answers: kept as soon as they come, and never asked for twice.

A store is a folder with one model's answers to questions of one kind. Each process that asks
writes a file of its own there, which grows by a batch at a time; all files are read together, by
the questions' keys. Batches are Arrow tables with checksums: one that a kill cut off, or that is
damaged, counts as never asked. No file is locked, as network file systems may have no locks.
"""

import itertools
import json
import logging
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tqdm import tqdm

from merge_dataset.files import digest_of, naming

QuestionT = TypeVar("QuestionT")

KEY: Final = np.dtype("S16")
"""Type of a question's key, a digest of 16 bytes."""

_LAYOUT: Final = 1
"""Version of the files' layout; each version has its own stores."""
_HEAD: Final = struct.Struct("<IQQI")
"""Number of keys, bytes of the compressed rows, bytes of the rows, checksum of the compressed."""
_CHECKSUM: Final = struct.Struct("<I")
"""Checksum of head and keys, before them."""
_BITS: Final = 32

log = logging.getLogger(__name__)


def key_of(question: Any) -> bytes:
    """Return the key of a JSON-able question."""
    text = json.dumps(question, ensure_ascii=False)
    return blake2b(text.encode(), digest_size=KEY.itemsize).digest()


_Level = tuple[NDArray[np.bytes_], NDArray[np.int64]]
"""Sorted keys, and the place of each answer: number of the batch, and row in it."""


class _Batch(NamedTuple):
    path: Path
    start: int
    """Place of the compressed rows in the file."""
    length: int
    size: int
    checksum: int


class AnswerStore:
    """One model's answers on disk, by key."""

    def __init__(
        self, root: Path, identity: Mapping[str, Any], schema: pa.Schema, *, redo: str
    ) -> None:
        """Open the store in `root` of a JSON-able identity, which has a `name`.

        The schema has an answer's columns; messages name `redo`, the command that asks for answers.
        Nothing is written before an answer.
        """
        described = {"layout": _LAYOUT, "schema": str(schema), **identity}
        self.folder = root / f"{slug(identity['name'])}-{digest_of(described)[:12]}"
        self.identity, self.schema = dict(identity), schema
        self._redo = redo
        self._seed = zlib.crc32(self.folder.name.encode())
        """Start of checksums, so that a file of another store counts as damaged."""
        self._own: Path | None = None
        self._batches: list[_Batch] = []
        self._sound = set[int]()
        """Numbers of batches that were written here, or read without fault."""
        self._index: list[_Level] | None = None
        """Sorted keys and their places; a level has at most half of the keys of the one before."""

    def missing(self, keys: NDArray[np.bytes_]) -> NDArray[np.bool_]:
        """Return [n] whether each key has no answer; damaged answers are missing from now on."""
        places = self._places(keys)
        numbers = {*(places[places >= 0] >> _BITS).tolist()} - self._sound
        for number, content in self._contents(sorted(numbers)):
            self._sound.add(number)
            if content is None:
                log.warning("%s: damaged answers, asked for again", self._batches[number].path)
                of_others = [places >> _BITS != number for _, places in self._levels]
                levels = zip(self._levels, of_others, strict=True)
                self._index = [(known[kept], at[kept]) for (known, at), kept in levels]
        return self._places(keys) < 0

    def keep(self, keys: NDArray[np.bytes_], answers: pa.Table) -> None:
        """Add a batch of answers, one per key, of the store's schema."""
        levels = self._levels  # as they are before this batch
        rows = answers.cast(self.schema).combine_chunks().to_batches()[0].serialize()
        content = pa.compress(rows, "zstd", asbytes=True)
        head = _HEAD.pack(len(keys), len(content), rows.size, zlib.crc32(content)) + keys.tobytes()
        frame = memoryview(_CHECKSUM.pack(zlib.crc32(head, self._seed)) + head + content)
        with naming(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            for number in itertools.count(1) if self._own is None else ():
                path = self.folder / f"{number:06}.answers"
                with suppress(FileExistsError):  # of another process
                    path.touch(exist_ok=False)
                    self._own = path
                    break
            assert self._own is not None
            with self._own.open("ab", buffering=0) as file:
                start = file.tell() + len(frame) - len(content)
                while frame:
                    frame = frame[file.write(frame) :]
        batch = _Batch(self._own, start, len(content), rows.size, zlib.crc32(content))
        self._sound.add(len(self._batches))
        level = _merged([(keys, self._numbered(batch, len(keys)))])
        while levels and len(levels[-1][0]) <= 2 * len(level[0]):
            level = _merged([levels.pop(), level])
        levels.append(level)

    def read(self, keys: NDArray[np.bytes_]) -> pa.Table:
        """Return the answers in the order of the keys; ValueError if some are missing."""
        places = self._places(keys)
        if count := int((places < 0).sum()):
            raise ValueError(
                f"{self.folder}: expected answers to {len(keys):,} questions, {count:,} are "
                f"missing; run: {self._redo}"
            )
        order = np.argsort(places)
        numbers, rows = places[order] >> _BITS, places[order] & ((1 << _BITS) - 1)
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        tables = [self.schema.empty_table()]
        of_batches = np.split(rows, starts[1:]) if len(keys) else []
        contents = self._contents(numbers[starts].tolist())
        for (number, content), wanted in zip(contents, of_batches, strict=True):
            batch = self._batches[number]
            if content is None:
                raise ValueError(
                    f"{batch.path}: expected answers as they were kept, got damaged ones; run: "
                    f"{self._redo}"
                )
            plain = pa.decompress(content, batch.size, "zstd")
            answers = pa.ipc.read_record_batch(plain, self.schema).take(pa.array(wanted))
            tables.append(pa.Table.from_batches([answers]))
        return pa.concat_tables(tables).take(pa.array(np.argsort(order))).combine_chunks()

    def _contents(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes | None]]:
        for path, same in itertools.groupby(numbers, lambda number: self._batches[number].path):
            with path.open("rb") as file:
                for number in same:
                    batch = self._batches[number]
                    file.seek(batch.start)
                    content = file.read(batch.length)
                    yield number, content if zlib.crc32(content) == batch.checksum else None

    @property
    def _levels(self) -> list[_Level]:
        if self._index is None:
            levels = [(np.empty(0, KEY), np.empty(0, np.int64))]
            for path in sorted(self.folder.glob("*.answers")):
                for batch, keys in _batches_of(path, self._seed):
                    levels.append((keys, self._numbered(batch, len(keys))))
            self._index = [_merged(levels)]
        return self._index

    def _numbered(self, batch: _Batch, count: int) -> NDArray[np.int64]:
        self._batches.append(batch)
        return (len(self._batches) - 1 << _BITS) + np.arange(count)

    def _places(self, keys: NDArray[np.bytes_]) -> NDArray[np.int64]:
        """Return [n] batch and row of each key's answer, the last if several; −1 if none."""
        places = np.full(len(keys), -1)
        for known, at in (level for level in self._levels if len(level[0])):
            rows = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            is_known = known[rows] == keys
            places[is_known] = at[rows[is_known]]
        return places


def _merged(levels: Sequence[_Level]) -> _Level:
    """Merge levels, with the last place of each key: an earlier one may be damaged."""
    keys, places = (np.concatenate(arrays) for arrays in zip(*reversed(levels), strict=True))
    distinct, first = np.unique(keys, return_index=True)
    return distinct, places[first]


def _batches_of(path: Path, seed: int) -> Iterator[tuple[_Batch, NDArray[np.bytes_]]]:
    end = path.stat().st_size
    with path.open("rb") as file:
        while len(start := file.read(_CHECKSUM.size + _HEAD.size)) == _CHECKSUM.size + _HEAD.size:
            head = start[_CHECKSUM.size :]
            count, length, size, checksum = _HEAD.unpack(head)
            place = file.tell() + count * KEY.itemsize
            if place + length > end:
                return
            keys = file.read(count * KEY.itemsize)
            if _CHECKSUM.pack(zlib.crc32(head + keys, seed)) != start[: _CHECKSUM.size]:
                log.warning("%s: damaged answers, asked for again", path)
                return
            yield _Batch(path, place, length, size, checksum), np.frombuffer(keys, KEY)
            file.seek(place + length)


def ask(
    store: AnswerStore,
    blocks: Iterable[Sequence[QuestionT]],
    answer: Callable[[Sequence[QuestionT]], Iterable[tuple[Sequence[int], pa.Table]]],
    *,
    key: Callable[[QuestionT], bytes],
    sizes: Sequence[int],
    what: str,
    unit: str,
    at_once: int = 1,
    hidden: bool = False,
) -> None:
    """Ask about the questions of blocks that a store has no answers to, and keep each batch.

    `answer` yields batches as they come: positions of the questions it got, and their answers; it
    gets at least `at_once` questions, if there are so many. The bar, which may be `hidden`,
    has `what` as title, and counts the `sizes` of blocks in a `unit`.
    """
    waiting: dict[bytes, QuestionT] = {}
    waits: list[float] = []
    shown = {"disable": True} if hidden else {}
    with tqdm(total=sum(sizes), desc=what, unit=unit, **shown) as bar:
        done = 0.0

        def progress(units: float) -> None:
            nonlocal done
            done += units
            bar.update(round(done) - bar.n)

        def ask_now() -> None:
            keys, answered = np.array(list(waiting), KEY), 0
            for positions, answers in answer(list(waiting.values())) if waiting else ():
                store.keep(keys[positions], answers)
                answered += len(positions)
                progress(sum(waits[i] for i in positions))
            if answered != len(keys):
                raise ValueError(
                    f"{what}: expected an answer to each of {len(keys):,} questions, got "
                    f"{answered:,}"
                )
            waiting.clear()
            waits.clear()

        for size, block in zip(sizes, blocks, strict=True):
            asked = {key(question): question for question in block}
            missing = itertools.compress(asked, store.missing(np.array(list(asked), KEY)))
            new = {name: asked[name] for name in missing if name not in waiting}
            known = size * (1 - len(new) / max(1, len(asked)))
            if not bar.disable:
                bar.initial += round(known)  # kept answers do not count for the speed
            progress(known)
            waits += [(size - known) / len(new)] * len(new) if new else []
            waiting |= new
            if len(waiting) >= at_once:
                ask_now()
        ask_now()


def slug(text: str) -> str:
    """Return `text` as a file name: letters, digits, dots and hyphens.

    >>> slug("google-bert/bert-base-cased")
    'google-bert--bert-base-cased'
    """
    return re.sub(r"[^A-Za-z0-9.-]", "-", text.replace("/", "--"))
