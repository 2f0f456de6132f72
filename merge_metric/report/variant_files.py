"""Variants of a report on disk: a few bytes of each are kept, and the rest is read when shown."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.files import naming_damage, open_parquet
from merge_dataset.schema import NLI, ProblemFormat
from merge_dataset.seed_ranges import seed_ranges
from merge_metric.report.variant_signals import as_signals, signal_columns
from merge_metric.runs.coverage import read_columns

log = logging.getLogger(__name__)

Ints = NDArray[np.signedinteger[Any]]

IDENTITY: Final = ("variant_id", "seed_id", "label")
_ROWS: Final = 65_536
"""Rows of which texts are held at a time."""
_WORDS: Final = ("word_class", "original", "replacement")


@dataclass(frozen=True, slots=True, eq=False)
class VariantFiles:
    """Files of variants, whose rows are numbered one file after the other."""

    folder: Path
    """The dataset folder."""
    files: tuple[str, ...]
    problem_format: ProblemFormat

    def parts(self) -> Iterator[tuple[pa.Table, Ints]]:
        """Read ids, labels and word classes of some seeds at a time, and the numbers of rows.

        Texts that are missing are told at the end.
        """
        names, fields = (*IDENTITY, "word_class"), self.problem_format.fields
        starts = np.cumsum([0, *map(self._size, self.files)])
        lacking, total = dict.fromkeys(fields, 0), int(starts[-1])
        for seeds in seed_ranges(self.folder, self.files):
            table = read_columns(self.folder, self.files, (*names, *fields), seeds=seeds)
            for field in fields:
                lacking[field] += table[field].null_count
            ranges = zip(starts.tolist(), map(seeds.rows.__getitem__, self.files), strict=False)
            yield (
                table.select(names),
                np.concatenate([first + np.arange(*rows) for first, rows in ranges]),
            )
        for field, missing in lacking.items():
            tell_missing_texts(self.folder, field, missing, total)

    def _size(self, file: str) -> int:
        with naming_damage(self.folder / file), open_parquet(self.folder / file) as parquet:
            return int(parquet.metadata.num_rows)

    def read(self, rows: Ints) -> pa.Table:
        """Read some rows in their order: words, texts as pairs with spans, and signals."""
        names = (*IDENTITY, *_WORDS, *self.problem_format.fields, *self.problem_format.spans)
        found = self.read_columns(rows, names, with_signals=True)
        fields = self.problem_format.fields
        return as_pairs(without_nulls(found, fields), fields)

    def each(self, rows: Ints) -> Iterator[pa.Table]:
        """Read some rows as `read`, a limited number at a time; at least one table."""
        for start in range(0, max(1, len(rows)), _ROWS):
            yield self.read(rows[start : start + _ROWS])

    def read_columns(
        self, rows: Ints, names: Sequence[str], *, with_signals: bool = False
    ) -> pa.Table:
        """Read some columns of some rows, in their order, and signals if wanted."""
        order = np.argsort(rows, kind="stable")
        wanted, done, pieces = rows[order], 0, []
        for name in self.files:
            path = self.folder / name
            with naming_damage(path), open_parquet(path) as file:
                of_file = list(names)
                if with_signals:
                    signals = signal_columns(file.schema_arrow.names, self.problem_format)
                    of_file += [each for each in signals if each not in names]
                for number in range(file.metadata.num_row_groups):
                    size = file.metadata.row_group(number).num_rows
                    begin, end = np.searchsorted(wanted, [done, done + size])
                    if end > begin:
                        group = file.read_row_group(number, columns=of_file)
                        pieces.append(group.take(pa.array(wanted[begin:end] - done)))
                    done += size
                if not pieces:
                    pieces.append(file.schema_arrow.empty_table().select(of_file))
        if with_signals:
            pieces = [self._with_signals(piece, names) for piece in pieces]
        table = pa.concat_tables(piece.replace_schema_metadata(None) for piece in pieces)
        return table.take(pa.array(np.argsort(order, kind="stable")))

    def _with_signals(self, table: pa.Table, names: Sequence[str]) -> pa.Table:
        signals = as_signals(table, self.problem_format)
        table = table.select(list(names))
        for name in signals.column_names:
            table = table.append_column(name, signals[name])
        return table


def tell_missing_texts(folder: Path, field: str, missing: int, total: int) -> None:
    """Warn of problems without a text."""
    if missing:
        log.warning(
            "%s: %s of %s problems have no text in the column %s; the report shows them without",
            folder,
            missing,
            total,
            field,
        )


def without_nulls(table: pa.Table, fields: Sequence[str]) -> pa.Table:
    """Put empty texts in place of those that are missing."""
    for name in fields:
        if table[name].null_count:
            place = table.column_names.index(name)
            table = table.set_column(place, name, pc.fill_null(table[name], ""))
    return table


def as_pairs(table: pa.Table, fields: Sequence[str]) -> pa.Table:
    """Put texts in the columns of NLI: the first, and the others joined by spaces.

    Spans, where there are any, move with their texts.
    """
    rest = [ending for ending in ("", "_spans") if fields[0] + ending in table.column_names]
    old = [field + ending for field in fields for ending in rest]
    if len(fields) == 2:
        new = [side + ending for side in NLI.fields for ending in rest]
        names = dict(zip(old, new, strict=True))
        return table.rename_columns([names.get(name, name) for name in table.column_names])
    first, *others = fields
    texts = list(zip(*(table[name].to_pylist() for name in others), strict=True))
    pairs = table.drop_columns(old).append_column("premise", table[first])
    pairs = pairs.append_column("hypothesis", pa.array(map(" ".join, texts), pa.string()))
    if "_spans" in rest:
        spans = zip(*(table[f"{name}_spans"].to_pylist() for name in others), strict=True)
        moved = [_moved(*each) for each in zip(texts, spans, strict=True)]
        pairs = pairs.append_column("premise_spans", table[f"{first}_spans"])
        kind = table[f"{first}_spans"].type
        pairs = pairs.append_column("hypothesis_spans", pa.array(moved, kind))
    return pairs


def _moved(
    texts: Sequence[str], spans: Sequence[Sequence[Sequence[int]] | None]
) -> list[list[int]]:
    """Move spans in texts that are joined by spaces.

    >>> _moved(("a dog", "dog"), ([[2, 5]], [[0, 3]]))
    [[2, 5], [6, 9]]
    """
    found, start = [], 0
    for text, of_text in zip(texts, spans, strict=True):
        found += [[start + begin, start + end] for begin, end in of_text or ()]
        start += len(text) + 1
    return found
