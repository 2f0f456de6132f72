"""Questions to masked LMs: their masks (D4), a run's questions on disk, and the selection asked.

A shard holds the sentences whose digests begin with the same bits: no question is in two shards,
and their contents depend on the problems alone.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import accumulate, chain, compress, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from generation.problems.shared_words import TaggedProblems
from generation.problems.substitutions import Place
from generation.records import MaskedQuery
from merge_dataset.files import (
    atomic,
    changed_files,
    digests,
    partial_path,
    read_record,
    remove,
    replace_folder,
    write_record,
    write_table,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

PROBLEMS_PER_SHARD: Final = 1024
"""Maximum of problems per shard, on average; many shards' answers fit into memory."""
_QUESTIONS_PER_SHARD: Final = 32_768
"""Maximum of questions per shard; if long texts give more, there are more shards."""
_MOST_BITS: Final = 24
_BUFFERED: Final = 2**22
"""Bytes of questions held before they are spilled to the files of their shards."""
_SENTENCE_BYTES, _SPAN_BYTES = 10, 6
KEY: Final = np.dtype(f"S{_SENTENCE_BYTES + _SPAN_BYTES}")

QUESTION_FIELDS: Final = [
    ("key", pa.binary(KEY.itemsize)),
    ("sentence", pa.string()),
    ("span", pa.list_(pa.int32())),
    ("masked", pa.list_(pa.list_(pa.int32()))),
]
"""Columns of a question in a store."""
_SHARD_SCHEMA: Final = pa.schema(
    [
        ("sentence", pa.string()),
        *((name, pa.list_(kind)) for name, kind in QUESTION_FIELDS if name != "sentence"),
    ]
)
"""Schema of a shard, with one row per sentence, as a long one has hundreds of questions."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The questions whose keys begin with certain bits."""

    bits: int
    prefix: int
    """The bits as a number below 2 ** bits."""

    @classmethod
    def parse(cls, name: str) -> Self:
        """Parse a shard's name."""
        bits, prefix = name.split("-")
        return cls(int(bits), int(prefix, 16))

    @property
    def name(self) -> str:
        """Name of the shard's files, such as `4-0c`: four bits, 1100."""
        return f"{self.bits}-{self.prefix:0{-(-self.bits // 4) or 1}x}"

    def overlaps(self, other: Shard) -> bool:
        """Tell whether a question can be in both shards."""
        bits = min(self.bits, other.bits)
        return self.prefix >> (self.bits - bits) == other.prefix >> (other.bits - bits)


EVERYTHING: Final = Shard(0, 0)


@lru_cache(maxsize=64)
def _sentence_digest(sentence: str) -> bytes:
    return blake2b(sentence.encode(), digest_size=_SENTENCE_BYTES).digest()


def key_of(query: MaskedQuery) -> bytes:
    """Return a question's key, 16 bytes: digests of its sentence and of its spans."""
    spans = json.dumps([query.span, query.masked])
    span_digest = blake2b(spans.encode(), digest_size=_SPAN_BYTES).digest()
    return _sentence_digest(query.sentence) + span_digest


class Questions:
    """A run's distinct questions on disk."""

    def __init__(self, folder: Path) -> None:
        """Open the questions that `write` wrote."""
        header = folder / "questions.json"
        self.header = header
        if not header.is_file():
            raise FileNotFoundError(
                f"expected questions in {folder}, found none; run: merge-nli suggest"
            )
        values = read_record(header, "made_from", "shards", "files")
        self.folder, self.made_from = folder, values["made_from"]
        self._files: dict[str, str] = values["files"]
        self.sizes: dict[Shard, int] = {
            Shard.parse(name): size for name, size in values["shards"].items()
        }

    @classmethod
    def write(
        cls, folder: Path, tables: Iterable[pa.Table], *, problems: int, made_from: str
    ) -> Self:
        """Divide distinct questions among shards; replace the folder as a whole or not at all."""
        partial = partial_path(folder)
        (partial / "shards").mkdir(parents=True)
        bits = max(0, (-(-problems // PROBLEMS_PER_SHARD) - 1).bit_length())
        try:
            cls._write(partial, tables, bits, made_from)
        except BaseException:
            remove(partial)
            raise
        replace_folder(partial, folder)
        return cls(folder)

    @staticmethod
    def _write(partial: Path, tables: Iterable[pa.Table], bits: int, made_from: str) -> None:
        largest = _deal(partial / "shards", tables, bits)
        if largest > _QUESTIONS_PER_SHARD:
            # Counted without repetitions, whose number depends on more than the problems; and by
            # keys alone, as there may be more questions than fit into memory.
            keys_of = (
                np.concatenate([_keys(table) for table in _spilled(path)])
                for path in partial.glob("shards/*.arrows")
            )
            largest = max(len(np.unique(keys)) for keys in keys_of)
        if largest > _QUESTIONS_PER_SHARD:
            dealt = (partial / "shards").rename(partial / "dealt")
            (partial / "shards").mkdir()
            again = chain.from_iterable(map(_spilled, sorted(dealt.iterdir())))
            more = bits + (largest // _QUESTIONS_PER_SHARD).bit_length()
            _deal(partial / "shards", again, min(more, _MOST_BITS))
            remove(dealt)
        sizes = {}
        with (partial / "keys.bin").open("wb") as keys:
            for spilled in sorted(partial.glob("shards/*.arrows")):
                table = _merged(_spilled(spilled))
                found = _keys(table)
                keys.write(found.tobytes())
                write_table(spilled.with_suffix(".parquet"), table)
                spilled.unlink()
                sizes[spilled.stem] = len(found)
        paths = [partial / "keys.bin", *(partial / f"shards/{name}.parquet" for name in sizes)]
        files = digests({path.relative_to(partial).as_posix(): path for path in paths})
        header = {"made_from": made_from, "shards": sizes, "files": files}
        write_record(partial / "questions.json", header)

    def changed(self) -> list[str]:
        """List files that have changed since they were written."""
        return changed_files(self.folder, self._files)

    def __len__(self) -> int:
        """Count the questions."""
        return sum(self.sizes.values())

    @property
    def shards(self) -> list[Shard]:
        """Shards that have questions, in order."""
        return list(self.sizes)

    @cached_property
    def places(self) -> dict[Shard, slice]:
        """Rows of each shard's questions among all questions, ordered by shard and key."""
        ends = list(accumulate(self.sizes.values(), initial=0))
        return {shard: slice(*pair) for shard, pair in zip(self.sizes, pairwise(ends), strict=True)}

    def of(self, shard: Shard) -> list[MaskedQuery]:
        """Read a shard's questions, sorted by key."""
        table = pq.read_table(self.folder / f"shards/{shard.name}.parquet")
        columns = (table[name].to_pylist() for name in ("sentence", "span", "masked"))
        return [
            MaskedQuery(sentence, (span[0], span[1]), tuple((start, end) for start, end in masked))
            for sentence, spans, all_masked in zip(*columns, strict=True)
            for span, masked in zip(spans, all_masked, strict=True)
        ]

    def rows(self, queries: Sequence[MaskedQuery]) -> NDArray[np.int64]:
        """Return [len(queries)] row numbers of questions in the order of shards and keys."""
        known = np.memmap(self.folder / "keys.bin", KEY, mode="r")
        wanted = np.array([key_of(query) for query in queries], KEY)
        rows = np.searchsorted(known, wanted)
        found = known[np.minimum(rows, len(known) - 1)] == wanted
        if missing := int((~found).sum()):
            raise ValueError(
                f"{self.folder}: expected {len(wanted)} questions, {missing} are missing; run: "
                "merge-nli suggest with these settings"
            )
        return rows


@dataclass(frozen=True)
class Asked:
    """The questions to ask, selected by a file of one byte per question, by shard and key."""

    questions: Questions
    path: Path
    """File of one byte per question, 0 or 1; missing if all are asked."""

    @property
    def rows(self) -> NDArray[np.bool_]:
        """[questions] Whether each question is asked."""
        if not self.path.is_file():
            return np.ones(len(self.questions), np.bool_)
        rows = np.fromfile(self.path, np.uint8)
        if len(rows) != len(self.questions) or (rows > 1).any():
            raise ValueError(
                f"{self.path}: expected a byte 0 or 1 for each of {len(self.questions)} questions, "
                f"got {len(rows)} bytes; run: merge-nli suggest"
            )
        return rows.astype(np.bool_)

    def __len__(self) -> int:
        """Count the questions asked."""
        return int(self.rows.sum())

    def write(self, rows: NDArray[np.bool_]) -> None:
        """Replace the selection of questions to ask; if all are, remove the file."""
        if rows.all():
            self.path.unlink(missing_ok=True)
            return
        with atomic(self.path) as file:
            file.write_bytes(rows.astype(np.uint8).tobytes())

    def of(self, shard: Shard) -> list[MaskedQuery]:
        """Read a shard's selected questions, sorted by key."""
        asked = self.rows[self.questions.places[shard]].tolist()
        return list(compress(self.questions.of(shard), asked))

    def sizes(self) -> dict[Shard, int]:
        """Count the selected questions of each shard."""
        rows = self.rows
        return {shard: int(rows[place].sum()) for shard, place in self.questions.places.items()}


def questions_about(problems: TaggedProblems, *, masking: str) -> list[MaskedQuery]:
    """List the distinct questions about all shared words of problems, in the order of the seeds."""
    found: dict[MaskedQuery, None] = {}
    for seed in problems.seeds:
        for word in problems.words[seed.seed_id]:
            for _, place in problems.places(seed, word):
                found.update(dict.fromkeys(masked_queries(place, masking=masking)))
    return list(found)


def masked_queries(place: Place, *, masking: str) -> list[MaskedQuery]:
    """Make a question about each occurrence of a word (D4); `joint` masking masks all of them."""
    spans = place.spans
    return [
        MaskedQuery(place.sentence.text, span, spans if masking == "joint" else (span,))
        for span in spans
    ]


def question_columns(queries: Sequence[MaskedQuery]) -> dict[str, pa.Array]:
    """Convert questions to the columns of `QUESTION_FIELDS`."""
    values = {
        "key": [key_of(query) for query in queries],
        "sentence": [query.sentence for query in queries],
        "span": [query.span for query in queries],
        "masked": [query.masked for query in queries],
    }
    return {name: pa.array(values[name], kind) for name, kind in QUESTION_FIELDS}


def question_table(queries: Iterable[MaskedQuery]) -> pa.Table:
    """Convert questions to a table in the form of shards, with a row for each sentence."""
    of_sentence: dict[str, list[MaskedQuery]] = {}
    for query in queries:
        of_sentence.setdefault(query.sentence, []).append(query)
    rows = [
        {
            "sentence": sentence,
            "key": [key_of(query) for query in mine],
            "span": [query.span for query in mine],
            "masked": [query.masked for query in mine],
        }
        for sentence, mine in of_sentence.items()
    ]
    return pa.Table.from_pylist(rows, schema=_SHARD_SCHEMA)


def _merged(tables: Iterable[pa.Table]) -> pa.Table:
    """Join tables of questions: each question once, sorted by key, each sentence in one row."""
    table = pa.concat_tables([_SHARD_SCHEMA.empty_table(), *tables])
    keys, order = np.unique(_keys(table), return_index=True)
    sentences = table["sentence"].combine_chunks().dictionary_encode()
    lists = {name: table[name].combine_chunks() for name in _SHARD_SCHEMA.names[1:]}
    row = pc.list_parent_indices(lists["key"]).to_numpy()[order]
    sentence = sentences.indices.to_numpy()[row]
    starts = np.flatnonzero(np.diff(sentence, prepend=-1))
    bounds = pa.array(np.append(starts, len(keys)), pa.int32())
    columns = {"sentence": sentences.dictionary.take(sentence[starts])}
    for name, values in lists.items():
        columns[name] = pa.ListArray.from_arrays(bounds, pc.list_flatten(values).take(order))
    return pa.table(columns, schema=_SHARD_SCHEMA)


def _keys(table: pa.Table) -> NDArray[np.bytes_]:
    return np.array(pc.list_flatten(table["key"]).to_pylist(), KEY)


def _deal(folder: Path, tables: Iterable[pa.Table], bits: int) -> int:
    """Append questions to their shards' files; return the largest size, repetitions included."""
    sizes: Counter[int] = Counter()

    def append(rows: pa.Table) -> None:
        if not len(rows):
            return
        counts = pc.list_value_length(rows["key"]).to_numpy()
        first_keys = _keys(rows)[np.cumsum(counts) - counts]
        prefixes = first_keys.view(">u4").reshape(len(rows), -1)[:, 0].astype(np.int64)
        found, starts = np.unique(prefixes >> (32 - bits), return_index=True)
        ends = [*starts[1:].tolist(), len(rows)]
        for prefix, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True):
            path = folder / f"{Shard(bits, prefix).name}.arrows"
            with path.open("ab") as file, pa.ipc.new_stream(file, _SHARD_SCHEMA) as stream:
                stream.write_table(rows.slice(start, end - start))
            sizes[prefix] += int(counts[start:end].sum())

    held: list[pa.Table] = []
    size = 0
    for table in tables:
        held.append(table)
        size += table.nbytes
        if size > _BUFFERED:
            append(_merged(held))
            held, size = [], 0
    append(_merged(held))
    return max(sizes.values(), default=0)


def _spilled(path: Path) -> Iterator[pa.Table]:
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(0)
        while file.tell() < end:
            yield pa.ipc.open_stream(file).read_all()
