"""Questions to masked LMs: their masks (D4), a run's questions on disk, and the selection asked.

They are sorted by key, so that a sentence's questions are adjacent, and the contents of the blocks
depend on the problems alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import accumulate, compress, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from generation.problems.shared_words import TaggedProblems
from generation.problems.substitutions import Place
from generation.records import MaskedQuery
from merge_dataset.answer_store import KEY
from merge_dataset.files import (
    atomic,
    atomic_folder,
    changed_files,
    digests,
    read_record,
    write_record,
    write_table,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

PROBLEMS_PER_BLOCK: Final = 1024
"""Maximum of problems per block, on average; many blocks' answers fit into memory."""
_QUESTIONS_PER_BLOCK: Final = 32_768
"""Maximum of questions per block; if long texts give more, there are more blocks."""
_BUFFERED: Final = 2**22
"""Bytes of questions held before they are dealt to files by the first bits of their keys."""
_SENTENCE_BYTES = 10
_SPAN_BYTES = KEY.itemsize - _SENTENCE_BYTES

_SCHEMA: Final = pa.schema(
    [
        ("sentence", pa.string()),
        ("key", pa.list_(pa.binary(KEY.itemsize))),
        ("span", pa.list_(pa.list_(pa.int32()))),
        ("masked", pa.list_(pa.list_(pa.list_(pa.int32())))),
    ]
)
"""Schema of a block, with one row per sentence, as a long one has hundreds of questions."""


@lru_cache(maxsize=64)
def _sentence_digest(sentence: str) -> bytes:
    return blake2b(sentence.encode(), digest_size=_SENTENCE_BYTES).digest()


def key_of(query: MaskedQuery) -> bytes:
    """Return a question's key, 16 bytes: digests of its sentence and of its spans."""
    spans = json.dumps([query.span, query.masked])
    span_digest = blake2b(spans.encode(), digest_size=_SPAN_BYTES).digest()
    return _sentence_digest(query.sentence) + span_digest


def keys_of(queries: Sequence[MaskedQuery]) -> NDArray[np.bytes_]:
    """Return [n] the keys of questions."""
    return np.array([key_of(query) for query in queries], KEY)


class Questions:
    """A run's distinct questions on disk, in blocks sorted by key."""

    def __init__(self, folder: Path) -> None:
        """Open the questions that `write` wrote."""
        self.folder, self.header = folder, folder / "questions.json"
        if not self.header.is_file():
            raise FileNotFoundError(
                f"expected questions in {folder}, found none; run: merge-nli suggest"
            )
        values = read_record(self.header, "made_from", "sizes", "files")
        self.made_from: str = values["made_from"]
        self.sizes: list[int] = values["sizes"]
        """Number of questions in each block."""
        self._files: dict[str, str] = values["files"]

    @classmethod
    def write(
        cls, folder: Path, tables: Iterable[pa.Table], *, problems: int, made_from: str
    ) -> Self:
        """Divide distinct questions among blocks; replace the folder as a whole or not at all."""
        bits = max(0, (-(-problems // PROBLEMS_PER_BLOCK) - 1).bit_length())
        with atomic_folder(folder) as partial:
            (partial / "blocks").mkdir()
            _deal(partial / "dealt", tables, bits)
            sizes: list[int] = []
            names = ["keys.bin"]
            with (partial / "keys.bin").open("wb") as keys:
                for dealt in sorted((partial / "dealt").iterdir()):
                    for block in _blocks_in(_merged(_dealt_to(dealt))):
                        names.append(f"blocks/{len(sizes):06}.parquet")
                        write_table(partial / names[-1], block)
                        sizes.append(len(of_block := _keys(block)))
                        keys.write(of_block.tobytes())
                    dealt.unlink()
            (partial / "dealt").rmdir()
            files = digests({name: partial / name for name in names})
            header = {"made_from": made_from, "sizes": sizes, "files": files}
            write_record(partial / "questions.json", header)
        return cls(folder)

    def changed(self) -> list[str]:
        """List files that have changed since they were written."""
        return changed_files(self.folder, self._files)

    def __len__(self) -> int:
        """Count the questions."""
        return sum(self.sizes)

    @property
    def blocks(self) -> range:
        """Numbers of the blocks."""
        return range(len(self.sizes))

    @cached_property
    def places(self) -> list[slice]:
        """Rows of each block's questions among all questions, ordered by key."""
        return [slice(*ends) for ends in pairwise(accumulate(self.sizes, initial=0))]

    def of(self, block: int) -> list[MaskedQuery]:
        """Read a block's questions, sorted by key."""
        table = pq.read_table(self.folder / f"blocks/{block:06}.parquet")
        columns = (table[name].to_pylist() for name in ("sentence", "span", "masked"))
        return [
            MaskedQuery(sentence, (span[0], span[1]), tuple((start, end) for start, end in masked))
            for sentence, spans, all_masked in zip(*columns, strict=True)
            for span, masked in zip(spans, all_masked, strict=True)
        ]

    def rows(self, queries: Sequence[MaskedQuery]) -> NDArray[np.int64]:
        """Return [len(queries)] row numbers of questions in the order of keys."""
        known = np.memmap(self.folder / "keys.bin", KEY, mode="r")
        wanted = keys_of(queries)
        rows = np.searchsorted(known, wanted)
        is_known = known[np.minimum(rows, len(known) - 1)] == wanted
        if missing := int((~is_known).sum()):
            raise ValueError(
                f"{self.folder}: expected {len(wanted)} questions, {missing} are missing; run: "
                "merge-nli suggest with these settings"
            )
        return rows


@dataclass(frozen=True)
class Asked:
    """The questions to ask, selected by a file of one byte per question, by key."""

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

    def of(self, block: int) -> list[MaskedQuery]:
        """Read a block's selected questions, sorted by key."""
        asked = self.rows[self.questions.places[block]].tolist()
        return list(compress(self.questions.of(block), asked))

    def sizes(self) -> list[int]:
        """Count the selected questions of each block."""
        rows = self.rows
        return [int(rows[place].sum()) for place in self.questions.places]


def questions_about(problems: TaggedProblems, *, masking: str) -> list[MaskedQuery]:
    """List the distinct questions about all shared words of problems, in the order of the seeds."""
    queries: dict[MaskedQuery, None] = {}
    for seed in problems.seeds:
        for word in problems.words[seed.seed_id]:
            for _, place in problems.places(seed, word):
                queries.update(dict.fromkeys(masked_queries(place, masking=masking)))
    return list(queries)


def masked_queries(place: Place, *, masking: str) -> list[MaskedQuery]:
    """Make a question about each occurrence of a word (D4); `joint` masking masks all of them."""
    spans = place.spans
    return [
        MaskedQuery(place.sentence.text, span, spans if masking == "joint" else (span,))
        for span in spans
    ]


def question_table(queries: Iterable[MaskedQuery]) -> pa.Table:
    """Convert questions to a table in the form of blocks, with a row for each sentence."""
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
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _merged(tables: Iterable[pa.Table]) -> pa.Table:
    """Join tables of questions: each question once, sorted by key, each sentence in one row."""
    table = pa.concat_tables([_SCHEMA.empty_table(), *tables])
    keys, order = np.unique(_keys(table), return_index=True)
    sentences = table["sentence"].combine_chunks().dictionary_encode()
    lists = {name: table[name].combine_chunks() for name in _SCHEMA.names[1:]}
    row = pc.list_parent_indices(lists["key"]).to_numpy()[order]
    sentence = sentences.indices.to_numpy()[row]
    starts = np.flatnonzero(np.diff(sentence, prepend=-1))
    bounds = pa.array(np.append(starts, len(keys)), pa.int32())
    columns = {"sentence": sentences.dictionary.take(sentence[starts])}
    for name, values in lists.items():
        columns[name] = pa.ListArray.from_arrays(bounds, pc.list_flatten(values).take(order))
    return pa.table(columns, schema=_SCHEMA)


def _keys(table: pa.Table) -> NDArray[np.bytes_]:
    return np.array(pc.list_flatten(table["key"]).to_pylist(), KEY)


def _blocks_in(table: pa.Table) -> Iterator[pa.Table]:
    ends = np.cumsum(pc.list_value_length(table["key"]).to_numpy())
    block = (ends - 1) // _QUESTIONS_PER_BLOCK
    starts = np.flatnonzero(np.diff(block, prepend=-1)).tolist()
    for start, end in pairwise([*starts, len(table)]):
        yield table.slice(start, end - start).combine_chunks()


def _deal(folder: Path, tables: Iterable[pa.Table], bits: int) -> None:
    folder.mkdir()

    def append(rows: pa.Table) -> None:
        if not len(rows):
            return
        counts = pc.list_value_length(rows["key"]).to_numpy()
        first_keys = _keys(rows)[np.cumsum(counts) - counts]
        prefixes = first_keys.view(">u4").reshape(len(rows), -1)[:, 0].astype(np.int64)
        distinct, starts = np.unique(prefixes >> (32 - bits), return_index=True)
        for prefix, (start, end) in zip(
            distinct.tolist(), pairwise([*starts.tolist(), len(rows)]), strict=True
        ):
            path = folder / f"{prefix:08}.arrows"
            with path.open("ab") as file, pa.ipc.new_stream(file, _SCHEMA) as stream:
                stream.write_table(rows.slice(start, end - start))

    held: list[pa.Table] = []
    size = 0
    for table in tables:
        held.append(table)
        size += table.nbytes
        if size > _BUFFERED:
            append(_merged(held))
            held, size = [], 0
    append(_merged(held))


def _dealt_to(path: Path) -> Iterator[pa.Table]:
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(0)
        while file.tell() < end:
            yield pa.ipc.open_stream(file).read_all()
