"""Figures of a configuration, computed from its Parquet columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset.files import open_parquet, read_row_groups
from merge_dataset.layout import format_in, split_files


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
    label_names: tuple[str, ...]
    """Labels of its problems' format."""
    labels: tuple[int, ...]
    """Seeds with each of these labels."""
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
        """Shares of the seeds with each label, fractions in 0-1."""
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
    labels: Counter[int] = Counter()
    for table in _tables(folder, files["seeds"], "label"):
        labels.update(table["label"].to_pylist())
    draws: Counter[int] = Counter()
    variants = 0
    for table in _tables(folder, files["variants"], "subsamples"):
        variants += len(table)
        for entry in pc.list_flatten(table["subsamples"]).value_counts().to_pylist():
            draws[entry["values"]] += entry["counts"]
    if not labels or not draws:
        raise ValueError(
            f"{config}: expected seeds, and variants drawn into subsamples, got "
            f"{labels.total()} seeds and {draws.total()} draws"
        )
    names = format_in(folder, config).labels
    return Statistics(
        config=config,
        label_names=names,
        labels=tuple(labels[i] for i in range(len(names))),
        variants=variants,
        subsamples=len(draws),
        drawn=draws.total(),
    )


def split_size(folder: Path, files: list[str]) -> SplitSize:
    """Rows and bytes of a split that consists of these files."""
    num_examples = num_bytes = 0
    for file in files:
        with open_parquet(folder / file) as parquet:
            num_examples += parquet.metadata.num_rows
            num_bytes += sum(batch.nbytes for batch in parquet.iter_batches())
    file_bytes = sum((folder / file).stat().st_size for file in files)
    return SplitSize(num_examples=num_examples, num_bytes=num_bytes, file_bytes=file_bytes)


def _tables(folder: Path, files: list[str], column: str) -> Iterator[pa.Table]:
    for file in files:
        yield from read_row_groups(folder / file, [column])
