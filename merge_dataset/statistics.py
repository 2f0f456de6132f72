"""Figures of a configuration, computed from its Parquet columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from merge_dataset.layout import split_files
from merge_dataset.schema import LABELS


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSize:
    """Size of one split."""

    num_examples: int
    num_bytes: int
    """Bytes of the rows in Arrow memory."""
    file_bytes: int
    """Bytes of the Parquet files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Counts of one configuration (the columns of the paper's Table 2)."""

    config: str
    labels: tuple[int, ...]
    """Seeds with each of `LABELS`."""
    variants: int
    """Unique variants."""
    subsamples: int
    drawn: int
    """Variants over all subsamples, counted in each subsample they are in."""

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return sum(self.labels)

    @property
    def label_shares(self) -> tuple[float, ...]:
        """Shares of the seeds with each of `LABELS`, fractions in 0-1."""
        return tuple(count / self.seeds for count in self.labels)

    @property
    def variants_per_seed(self) -> float:
        """Mean number of unique variants of a seed."""
        return self.variants / self.seeds

    @property
    def variants_per_subsample(self) -> float:
        """Mean number of variants in a subsample."""
        return self.drawn / self.subsamples


def compute_statistics(folder: Path, config: str) -> Statistics:
    """Count the seeds and variants of a configuration.

    Raises:
        ValueError: it has no seeds or no drawn variants, so that means are undefined.
    """
    files = split_files(folder, config)
    labels = _column(folder, files["seeds"], "label")
    subsamples = _column(folder, files["variants"], "subsamples")
    drawn = pc.list_flatten(subsamples)
    if not len(labels) or not len(drawn):
        raise ValueError(
            f"{config}: expected seeds, and variants drawn into subsamples, got "
            f"{len(labels)} seeds and {len(drawn)} draws"
        )
    return Statistics(
        config=config,
        labels=tuple(pc.sum(pc.equal(labels, i)).as_py() or 0 for i in range(len(LABELS))),
        variants=len(subsamples),
        subsamples=pc.count_distinct(drawn).as_py(),
        drawn=len(drawn),
    )


def split_size(folder: Path, files: list[str]) -> SplitSize:
    """Rows and bytes of a split that consists of these files."""
    num_examples = num_bytes = 0
    for file in files:
        with pq.ParquetFile(folder / file) as parquet:
            num_examples += parquet.metadata.num_rows
            num_bytes += sum(batch.nbytes for batch in parquet.iter_batches())
    file_bytes = sum((folder / file).stat().st_size for file in files)
    return SplitSize(num_examples=num_examples, num_bytes=num_bytes, file_bytes=file_bytes)


def _column(folder: Path, files: list[str], name: str) -> pa.ChunkedArray:
    # Not pq.read_table: it would take a parent folder called a=b for a partition column.
    tables = [pq.ParquetFile(folder / file).read(columns=[name]) for file in files]
    return pa.concat_tables(tables)[name] if tables else pa.chunked_array([], pa.list_(pa.int32()))
