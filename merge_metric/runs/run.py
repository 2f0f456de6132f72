"""Predictions files beside dataset folders → runs: what comparisons and analyses start from."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from tqdm import tqdm

from merge_dataset.schema import LABELS
from merge_metric.runs.coverage import some
from merge_metric.runs.join import join
from merge_metric.runs.metadata import model_name
from merge_metric.runs.predictions import read_predictions
from merge_metric.seed_variant_accuracy.counts import SeedCounts, count
from merge_metric.seed_variant_accuracy.inputs import Rows, read_rows

log = logging.getLogger(__name__)


KEPT: Final = ("probabilities", "seed_probabilities", "variant_ids")
"""Columns that runs can keep; the probabilities only where the file has them."""

_IGNORED: Final = ("probabilities", "seed_probabilities", "groups")


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One model's answers to one configuration of one dataset."""

    model: str
    config: str
    rows: Rows
    counts: SeedCounts
    """Of all rows."""
    groups: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Column of the dataset → one value, or a list of values, per row."""
    dataset: str = ""
    """Name of the dataset folder."""
    kept: Mapping[str, Any] = field(default_factory=dict)
    """Out of `KEPT`, those that were asked for and are there: an entry per row."""
    folder: Path = Path()
    """The dataset folder itself."""


def run_of(
    model: str,
    config: str,
    columns: Mapping[str, Any],
    *,
    dataset: str = "",
    folder: Path = Path(),
    keep: Sequence[str] = (),
) -> Run:
    """A run from the keyword arguments of `scoring.score`; see `Run`."""
    rows = read_rows(**{name: column for name, column in columns.items() if name not in _IGNORED})
    kept = {name: columns[name] for name in keep if name in columns}
    return Run(model, config, rows, count(rows), columns.get("groups", {}), dataset, kept, folder)


@dataclass(frozen=True, slots=True)
class Source:
    """A predictions file as a user names it: `FILE`, `NAME=FILE`, `FILE@DATASET`."""

    model: str
    path: Path
    dataset: Path | None = None


def parse_source(text: str) -> Source:
    """Read `[NAME=]FILE[@DATASET]`.

    Without a name the model is called what the file's metadata say, else like the file.

    Raises:
        FileNotFoundError: there is no such file.

    >>> parse_source("bert=runs/1.parquet")  # doctest: +SKIP
    Source(model='bert', path=PosixPath('runs/1.parquet'), dataset=None)
    """
    name, dataset, path = "", None, Path(text)
    if not path.exists():
        before, at, after = text.rpartition("@")
        if at and Path(after).is_dir():
            text, dataset = before, Path(after)
            path = Path(text)
    if not path.exists() and "=" in text:
        name, _, file = text.partition("=")
        path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: expected a predictions file, as FILE, NAME=FILE or FILE@DATASET, "
            "found no file there"
        )
    return Source(name or model_name(path), path, dataset)


def read_runs(
    sources: Sequence[Source],
    dataset: Path,
    configs: Sequence[str] = (),
    *,
    by: Sequence[str] = (),
    keep: Sequence[str] = (),
    allow_missing: bool = False,
) -> Iterator[Run]:
    """Read predictions files beside their dataset folders, one after the other.

    Args:
        sources: The files.
        dataset: The dataset folder of those that name none.
        configs: Configurations; by default what each file is for (see `coverage.choose`).
        by: Columns to group variants by (see `join.groupings`).
        keep: Columns out of `KEPT` that runs keep.
        allow_missing: Leave out seeds of which a prediction is missing.

    Raises:
        ValueError: a file cannot be used (see `join.join`), is given twice, or two are of
            the same model, configuration and dataset.
    """
    _require_different_files(sources)
    seen: dict[tuple[str, Path, str], Path] = {}
    for source in tqdm(sources, desc="reading", unit="file", disable=None):
        folder = source.dataset or dataset
        predictions = read_predictions(source.path, folder)
        try:
            parts = join(predictions, folder, configs, by=by, allow_missing=allow_missing)
        except ValueError as error:
            raise ValueError(f"{source.path}: {error}") from error
        for part in parts:
            key = (source.model, folder.resolve(), part.config)
            if key in seen:
                raise ValueError(
                    f"expected one predictions file per model and configuration, got "
                    f"{seen[key]} and {source.path}, both of {source.model!r} for "
                    f"{part.config}; name them apart: NAME=FILE"
                )
            seen[key] = source.path
            yield run_of(
                source.model,
                part.config,
                part.columns,
                dataset=folder.resolve().name,
                folder=folder,
                keep=keep,
            )


def by_config(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Configuration → runs, in the order given."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.config, []).append(run)
    return found


def common_labels(runs: Sequence[Run]) -> tuple[str, ...]:
    """The labels of the problems that runs are about; those of NLI without a run.

    Raises:
        ValueError: they differ.
    """
    found = {run.counts.labels: run.config for run in runs}
    if len(found) > 1:
        parts = "; ".join(f"{config}: {', '.join(labels)}" for labels, config in found.items())
        raise ValueError(
            f"expected problems with the same labels, got {parts}; name configurations of one "
            f"kind by --config"
        )
    return next(iter(found), LABELS)


def on_common_seeds(counts: Sequence[SeedCounts], where: str) -> list[SeedCounts]:
    """The counts of the seeds that all have.

    Args:
        counts: One per model or dataset.
        where: What messages begin with, such as the configuration.

    Raises:
        ValueError: there is no such seed.
    """
    everything = [set(each.seed_ids) for each in counts]
    common = set.intersection(*everything)
    if not common:
        first, second = next(
            (a, b) for a in everything for b in everything if not a & b or a & b != a | b
        )
        raise ValueError(
            f"{where}: expected predictions for the same seeds, got none in common: one has "
            f"{some(pa.array(sorted(map(str, first))))}, another "
            f"{some(pa.array(sorted(map(str, second))))}"
        )
    total = len(set.union(*everything))
    if len(common) < total:
        log.warning(
            "%s: only the %s seeds that all have are used, out of %s",
            where,
            f"{len(common):,}",
            f"{total:,}",
        )
    return [
        each.take(np.array([seed in common for seed in each.seed_ids], bool)) for each in counts
    ]


def _require_different_files(sources: Sequence[Source]) -> None:
    paths = [source.path.resolve() for source in sources]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise ValueError(
                f"expected different predictions files, got {sources[number].path} twice"
            )
