"""Questions to masked LMs: their masks (D4), a run's questions on disk, and the selection asked.

They are sorted by key, so that a sentence's questions are adjacent, and the contents of the blocks
depend on the problems alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, compress, pairwise
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from generation.problems.substitutions import Place
from generation.records import MaskedQuery
from merge_dataset import files
from merge_dataset.answer_store import KEY
from merge_dataset.engine import sorted_rows

BLOCK: Final = 4096
"""Least number of questions in a block but the last; many blocks' answers fit into memory."""
_SENTENCE_BYTES = 10

_SCHEMA: Final = pa.schema(
    [
        ("sentence", pa.string()),
        ("key", pa.list_(pa.binary(KEY.itemsize))),
        ("span", pa.list_(pa.list_(pa.int32()))),
        ("masked", pa.list_(pa.list_(pa.list_(pa.int32())))),
    ]
)
"""Schema of a block, with one row per sentence, as a long one has hundreds of questions."""


def key_of(query: MaskedQuery) -> bytes:
    """Return a question's key, 16 bytes: digests of its sentence and of its spans."""
    spans = _digest((query.span, query.masked), KEY.itemsize - _SENTENCE_BYTES)
    return _digest(query.sentence, _SENTENCE_BYTES) + spans


@lru_cache(maxsize=2**15)
def _digest(of: str | tuple[object, ...], size: int) -> bytes:
    # A run needs the key of a question a dozen times; many questions have the same spans.
    return blake2b((of if isinstance(of, str) else repr(of)).encode(), digest_size=size).digest()


def keys_of(queries: Sequence[MaskedQuery]) -> NDArray[np.bytes_]:
    """Return [n] the keys of questions."""
    return np.array([key_of(query) for query in queries], KEY)


class Questions:
    """A run's distinct questions on disk, in blocks sorted by key, and which of them are asked."""

    def __init__(self, folder: Path) -> None:
        """Open the questions that `write` wrote."""
        self.folder, self.header = folder, folder / "questions.json"
        self.selection = folder / "asked.bin"
        """A byte per question, in the order of keys, 1 if it is asked; missing if all are."""
        values = files.read_record(self.header, "made_from", "sizes")
        self.made_from: str = values["made_from"]
        sizes: list[int] = values["sizes"]
        self.blocks = range(len(sizes))
        """Numbers of the blocks."""
        self.places = [slice(*ends) for ends in pairwise(accumulate(sizes, initial=0))]
        """Rows of each block's questions among all questions."""

    @classmethod
    def write(cls, folder: Path, tables: Iterable[pa.Table], *, made_from: str) -> Self:
        """Divide distinct questions among blocks; replace the folder as a whole or not at all."""
        with files.atomic_folder(folder) as partial:
            (partial / "blocks").mkdir()
            unsorted = partial / "unsorted"
            with pq.ParquetWriter(unsorted, _SCHEMA, **files.PARQUET_OPTIONS) as writer:
                for table in tables:
                    writer.write_table(table)
            sizes: list[int] = []
            with (partial / "keys.bin").open("wb") as keys:
                for block in _blocks_of(sorted_rows(unsorted, "key[1]", _SCHEMA)):
                    files.write_table(partial / f"blocks/{len(sizes):06}.parquet", block)
                    sizes.append(len(of_block := _keys(block)))
                    keys.write(of_block.tobytes())
            unsorted.unlink()
            files.write_record(partial / "questions.json", {"made_from": made_from, "sizes": sizes})
        return cls(folder)

    def __len__(self) -> int:
        """Count the questions."""
        return self.places[-1].stop if self.places else 0

    @property
    def asked(self) -> NDArray[np.bool_]:
        """[questions] Whether each question is asked."""
        if not self.selection.is_file():
            return np.ones(len(self), np.bool_)
        return np.fromfile(self.selection, np.bool_)

    def select(self, rows: NDArray[np.bool_]) -> None:
        """Replace the selection of questions to ask; if all are, remove the file."""
        if rows.all():
            self.selection.unlink(missing_ok=True)
            return
        with files.atomic(self.selection) as file:
            file.write_bytes(rows.tobytes())

    def of(self, block: int, rows: NDArray[np.bool_] | None = None) -> list[MaskedQuery]:
        """Read a block's questions, sorted by key; only those that `rows`, of all, select."""
        table = pq.read_table(self.folder / f"blocks/{block:06}.parquet")
        columns = (table[name].to_pylist() for name in ("sentence", "span", "masked"))
        queries = [
            MaskedQuery(sentence, (span[0], span[1]), tuple((start, end) for start, end in masked))
            for sentence, spans, all_masked in zip(*columns, strict=True)
            for span, masked in zip(spans, all_masked, strict=True)
        ]
        return queries if rows is None else list(compress(queries, rows[self.places[block]]))

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


def _blocks_of(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Cut tables in the order of sentences' digests into blocks of whole sentences."""
    held = _SCHEMA.empty_table()
    for table in tables:
        held = pa.concat_tables([held, table])
        while len(held) and len(pc.list_flatten(held["key"])) > BLOCK:
            held = _merged(held)
            ends = np.cumsum(pc.list_value_length(held["key"]).to_numpy())
            size = int(np.searchsorted(ends, BLOCK)) + 1
            if size >= len(held):
                break  # the next table may go on with the last sentence
            yield held.slice(0, size).combine_chunks()
            held = held.slice(size)
    if len(held):
        yield _merged(held)


def _merged(table: pa.Table) -> pa.Table:
    """Merge rows of questions: each question once, sorted by key, each sentence in one row."""
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
