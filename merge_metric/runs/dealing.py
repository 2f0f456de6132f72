"""Predictions dealt to parts of seeds on disk, so that files larger than memory can be joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merge_metric.runs.row_checks import ANSWERS, IDS, Place, require_distinct
from merge_metric.runs.texts import TEXT_DIGEST

_ROW: Final = "row"
"""Column of a part: numbers of rows in the file, from 0."""


@dataclass(frozen=True, slots=True)
class PredictionParts:
    """Predictions in parts, each with all rows of some seeds."""

    folder: Path
    places: Sequence[Place]
    """(files,) how messages name a row."""
    starts: Sequence[int]
    """(files,) how many rows the files before it have."""
    of_seeds: pa.Table
    """Predictions for seeds themselves: ids, gold labels, predictions."""
    is_verified: bool
    """Whether each says for which texts it is."""

    def part(self, number: int) -> list[pa.Table]:
        """Read a part, a table per file with rows in its order.

        Raises:
            ValueError: an id comes twice in a file.
        """
        with pa.OSFile(str(_file(self.folder, number))) as source:
            table = pa.ipc.open_stream(source).read_all().combine_chunks()
        rows = table[_ROW].to_numpy()
        ends = [*np.searchsorted(rows, self.starts[1:]).tolist(), len(rows)]
        tables = []
        for file, (begin, end) in enumerate(pairwise([0, *ends])):
            one = table.slice(begin, end - begin)
            in_file = rows[begin:end] - self.starts[file]

            def place(row: int, in_file: Any = in_file, of_file: Place = self.places[file]) -> str:
                return of_file(int(in_file[row]))

            require_distinct(one["variant_id"], place)
            tables.append(one.drop_columns([_ROW]))
        return tables


@contextmanager
def dealt(
    files: Iterable[tuple[Place, Iterable[pa.Table]]],
    *,
    parts: int,
    part_of: Callable[[str], int],
) -> Iterator[PredictionParts]:
    """Deal predictions to parts, in temporary files as long as the block runs.

    Args:
        files: Of each file, how messages name a row, and batches of `predictions.read_batches`;
            all with the same columns.
        parts: How many parts there are.
        part_of: Id of a seed → the number of its part.
    """
    of_seeds, done, is_verified = [], 0, True
    places: list[Place] = []
    starts: list[int] = []
    with TemporaryDirectory(prefix="merge-nli-") as name:
        folder = Path(name)
        with ExitStack() as stack:
            writers: list[pa.RecordBatchStreamWriter] = []
            for place, batches in files:
                places.append(place)
                starts.append(done)
                for batch in batches:
                    rows = pa.array(np.arange(done, done + len(batch)))
                    table = batch.append_column(_ROW, rows)
                    if not writers:
                        writers = [
                            _writer(stack, _file(folder, n), table.schema) for n in range(parts)
                        ]
                    _deal(table, writers, part_of)
                    is_seed = pc.equal(batch["variant_id"], batch["seed_id"])
                    of_seeds.append(batch.select([*IDS, *ANSWERS]).filter(is_seed))
                    is_verified &= (
                        TEXT_DIGEST in batch.column_names and not batch[TEXT_DIGEST].null_count
                    )
                    done += len(batch)
        yield PredictionParts(folder, places, starts, pa.concat_tables(of_seeds), is_verified)


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number}.arrow"


def _writer(stack: ExitStack, path: Path, schema: pa.Schema) -> pa.RecordBatchStreamWriter:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    sink = stack.enter_context(pa.OSFile(str(path), "wb"))
    return stack.enter_context(pa.ipc.new_stream(sink, schema, options=options))


def _deal(
    table: pa.Table, writers: list[pa.RecordBatchStreamWriter], part_of: Callable[[str], int]
) -> None:
    seeds = table["seed_id"].combine_chunks().dictionary_encode()
    numbers = np.array([part_of(seed) for seed in seeds.dictionary.to_pylist()], np.int64)
    part = numbers[seeds.indices.to_numpy()]
    ordered = table.take(pa.array(np.argsort(part, kind="stable")))
    ends = np.cumsum(np.bincount(part, minlength=len(writers))).tolist()
    for writer, start, end in zip(writers, [0, *ends], ends, strict=False):
        if end > start:
            writer.write_table(ordered.slice(start, end - start))
