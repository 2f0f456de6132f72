"""Figures of a configuration, computed from its Parquet columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from merge_dataset.engine import connect, parquet
from merge_dataset.files import naming_damage, open_parquet
from merge_dataset.layout import format_in, split_files
from merge_dataset.schema import SPLITS


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
    def variants_per_seed(self) -> float:
        """Mean number of unique variants of a seed."""
        return self.variants / self.seeds


def compute_statistics(folder: Path, config: str) -> Statistics:
    """Count the seeds and variants of a configuration, whose files are whole.

    Raises:
        ValueError: it has no seeds or no drawn variants, so that means are undefined.
    """
    files = split_files(folder, config)
    with connect() as connection:
        seeds, variants = (parquet(folder / file for file in files[split]) for split in SPLITS)
        labels = dict(
            connection.execute(f"SELECT label, count(*) FROM {seeds} GROUP BY label").fetchall()
        )
        drawn = f"SELECT unnest(subsamples) AS draw FROM {variants}"
        query = (
            f"SELECT (SELECT count(*) FROM {variants}), count(DISTINCT draw), count(draw) "
            f"FROM ({drawn})"
        )
        [(rows, subsamples, draws)] = connection.execute(query).fetchall()
    if not labels or not draws:
        raise ValueError(
            f"{config}: expected seeds, and variants drawn into subsamples, got "
            f"{sum(labels.values())} seeds and {draws} draws"
        )
    names = format_in(folder, config).labels
    return Statistics(
        config=config,
        label_names=names,
        labels=tuple(labels.get(code, 0) for code in range(len(names))),
        variants=rows,
        subsamples=subsamples,
        drawn=draws,
    )


def split_size(folder: Path, files: list[str]) -> SplitSize:
    """Count the rows and bytes of a split that consists of these files."""
    num_examples = num_bytes = 0
    for file in files:
        with naming_damage(folder / file), open_parquet(folder / file) as opened:
            num_examples += opened.metadata.num_rows
            num_bytes += sum(batch.nbytes for batch in opened.iter_batches())
    file_bytes = sum((folder / file).stat().st_size for file in files)
    return SplitSize(num_examples=num_examples, num_bytes=num_bytes, file_bytes=file_bytes)
