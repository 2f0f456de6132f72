"""Runs: a model's answers to one configuration, read, joined and counted once.

`score`, `compare`, `analyse` and `report` all start here:

    Source (as users name files) → Model (its predictions beside a dataset) → Run
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merge_dataset.schema import LABELS
from merge_metric.runs.coverage import preview
from merge_metric.runs.join import Joined, JoinOptions, join
from merge_metric.runs.model import (
    Model,
    PredictionsSource,
    naming_files,
    read_models,
    require_different_files,
)
from merge_metric.runs.texts import UNVERIFIED, added_texts
from merge_metric.seed_variant_accuracy.counts import SeedCounts, count
from merge_metric.seed_variant_accuracy.inputs import Rows, read_rows

log = logging.getLogger(__name__)

KEPT: Final = ("probabilities", "seed_probabilities", "variant_ids")
"""Columns that runs can keep; the probabilities only where the file has them."""

_IGNORED: Final = ("probabilities", "seed_probabilities", "groups")


class HasCounts(Protocol):
    """A model's answers to one configuration, counted: all that most figures need."""

    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def config(self) -> str: ...  # noqa: D102
    @property
    def counts(self) -> SeedCounts: ...  # noqa: D102
    @property
    def dataset(self) -> str: ...  # noqa: D102
    @property
    def folder(self) -> Path: ...  # noqa: D102


HasCountsT = TypeVar("HasCountsT", bound=HasCounts)
"""A run, or its counts alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One model's answers to one configuration of one dataset."""

    model: str
    config: str
    rows: Rows
    counts: SeedCounts
    """Counts of all rows."""
    groups: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Column of the dataset → one value, or a list of values, per row."""
    dataset: str = ""
    """Name of the dataset folder."""
    kept: Mapping[str, Any] = field(default_factory=dict)
    """Out of `KEPT`, those that were asked for and are there: an entry per row."""
    folder: Path = Path()
    """The dataset folder itself."""
    n_seeds_left_out: int = 0
    """Seeds left out because predictions are missing."""
    texts: str = ""
    """Digest of the dataset's texts that it answered, or `texts.UNVERIFIED`."""


def make_run(
    model: str,
    config: str,
    columns: Mapping[str, Any],
    *,
    keep: Sequence[str] = (),
    **origin: Any,
) -> Run:
    """Read and count the rows of a configuration.

    Args:
        model: Its name.
        config: Name of the configuration.
        columns: Keyword arguments of `scoring.score`.
        keep: Columns out of `KEPT` that the run keeps.
        origin: Further fields of `Run`.
    """
    rows = read_rows(**{name: column for name, column in columns.items() if name not in _IGNORED})
    kept = {name: columns[name] for name in keep if name in columns}
    groups = columns.get("groups", {})
    return Run(model, config, rows, count(rows), groups=groups, kept=kept, **origin)


def runs_of(model: Model, options: JoinOptions, *, keep: Sequence[str] = ()) -> Iterator[Run]:
    """Join and count a model's answers to one configuration after the other.

    Args:
        model: From `model.read_models`.
        options: What is joined.
        keep: Columns out of `KEPT` that runs keep.

    Raises:
        ValueError: the predictions cannot be used (see `join.join`).
    """
    shared: dict[Any, Any] = {}

    def take(run: Run, joined: Joined) -> tuple[Run, NDArray[np.int64]]:
        return _with_shared(run, shared), joined.places

    for parts, left_out in parts_of_runs(model, take, options, keep=keep):
        yield replace(_together(parts), n_seeds_left_out=left_out)


Taken = TypeVar("Taken")


def parts_of_runs(
    model: Model,
    take: Callable[[Run, Joined], Taken],
    options: JoinOptions,
    *,
    keep: Sequence[str] = (),
) -> Iterator[tuple[list[Taken], int]]:
    """Join and count a model's answers some seeds at a time, and take what is needed of these.

    Args:
        model: As in `runs_of`.
        take: Takes what is needed of the run on some seeds.
        options: What is joined.
        keep: Columns that these runs keep.

    Yields:
        Per configuration what was taken, and how many seeds were left out.
    """
    origin = {"dataset": model.folder.resolve().name, "folder": model.folder}

    def take_run(joined: Joined) -> Taken:
        run = make_run(
            model.name, joined.config, joined.columns, keep=keep, texts=joined.texts, **origin
        )
        return take(run, joined)

    with naming_files(model.paths, beside=model.folder):
        for _, taken, left_out in join(model.parts, take_run, options):
            yield taken, left_out


def read_runs(
    sources: Sequence[PredictionsSource],
    dataset: Path,
    configs: Sequence[str] = (),
    *,
    by: Sequence[str] = (),
    cluster: str = "",
    keep: Sequence[str] = (),
    allow_missing: bool = False,
) -> Iterator[Run]:
    """Read the runs of several models, one after the other.

    Args:
        sources: The files; those of one name and dataset are parts of one model's answers.
        dataset: The dataset folder of those that name none.
        configs: As in `join.JoinOptions`, like `by`, `cluster` and `allow_missing`.
        by: Columns to group variants by.
        cluster: Text by which seeds are clustered.
        keep: Columns out of `KEPT` that runs keep.
        allow_missing: Leave out seeds of which a prediction is missing.

    Raises:
        ValueError: a file cannot be used (see `join.join`), is given twice, or two of one
            model answer the same problems.
    """
    options = JoinOptions(configs=configs, by=by, cluster=cluster, allow_missing=allow_missing)
    require_different_files(sources)
    for model in read_models(sources, dataset):
        yield from runs_of(model, options, keep=keep)
        del model  # before the next is read


# --- Parts of a run put together ---


def _with_shared(run: Run, shared: dict[Any, Any]) -> Run:
    """Let equal values of groups be one object, and ids be a column: a few bytes a row."""
    groups = {
        name: [
            shared.setdefault(tuple(value) if isinstance(value, list) else value, value)
            for value in values
        ]
        for name, values in run.groups.items()
    }
    kept = dict(run.kept)
    if "variant_ids" in kept:
        kept["variant_ids"] = pa.array(kept["variant_ids"], pa.string())
    return replace(run, groups=groups, kept=kept)


def _together(parts: Sequence[tuple[Run, NDArray[np.int64]]]) -> Run:
    """Make the run of all seeds, rows in the order of the dataset.

    Args:
        parts: Runs on consecutive seeds, and numbers of their rows that ascend in that order.
    """
    runs = [run for run, _ in parts]
    order = np.argsort(np.concatenate([places for _, places in parts]), kind="stable")
    row_of = np.empty(len(order), np.int64)
    row_of[order] = np.arange(len(order))
    tables = [run.rows for run in runs]
    first_seed = _starts([len(rows.seed_ids) for rows in tables])
    first_row = _starts([len(rows.seed) for rows in tables])
    draw_row = row_of[
        np.concatenate([r.draw_row + start for r, start in zip(tables, first_row, strict=True)])
    ]
    draws = np.argsort(draw_row, kind="stable")
    seed = [r.seed + start for r, start in zip(tables, first_seed, strict=True)]
    counts = SeedCounts.concatenated([run.counts for run in runs])
    rows = replace(
        tables[0],
        seed_ids=counts.seed_ids,
        gold=counts.gold,
        own=counts.own,
        seed=np.concatenate(seed)[order],
        prediction=np.concatenate([rows.prediction for rows in tables])[order],
        draw_row=draw_row[draws],
        draw_subsample=np.concatenate([rows.draw_subsample for rows in tables])[draws],
        clusters=counts.clusters,
    )
    columns = {
        name: _reordered([run.groups[name] for run in runs], order) for name in runs[0].groups
    }
    kept = {name: _reordered([run.kept[name] for run in runs], order) for name in runs[0].kept}
    texts = added_texts([run.texts for run in runs])
    return replace(runs[0], rows=rows, counts=counts, groups=columns, kept=kept, texts=texts)


def _starts(sizes: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(sizes[:-1]).tolist()]


def _reordered(parts: Sequence[Any], order: NDArray[np.int64]) -> Any:
    """Put columns of the same kind together, in another order of rows."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)[order]
    if isinstance(parts[0], pa.Array):
        return pa.chunked_array(parts).take(pa.array(order)).combine_chunks()
    whole = [*chain.from_iterable(parts)]
    return [whole[row] for row in order.tolist()]


# --- What runs have in common ---


def common_texts(texts: Iterable[str]) -> str:
    """Find what all runs have as `Run.texts`; `texts.UNVERIFIED` where they differ."""
    found = set(texts)
    return found.pop() if len(found) == 1 else UNVERIFIED


def by_config(runs: Iterable[HasCountsT]) -> dict[str, list[HasCountsT]]:
    """Group runs by configuration, in the order given."""
    found: dict[str, list[HasCountsT]] = {}
    for run in runs:
        found.setdefault(run.config, []).append(run)
    return found


def common_labels(runs: Sequence[HasCounts]) -> tuple[str, ...]:
    """Find the labels that all runs share; those of NLI without a run.

    Raises:
        ValueError: they differ.
    """
    return same_labels((run.config, run.counts.labels) for run in runs)


def same_labels(configs: Iterable[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """Find the labels that all configurations share; those of NLI without one.

    Args:
        configs: Names of configurations and the labels of their problems.

    Raises:
        ValueError: they differ.
    """
    found = {labels: config for config, labels in configs}
    if len(found) > 1:
        parts = "; ".join(f"{config}: {', '.join(labels)}" for labels, config in found.items())
        raise ValueError(
            f"expected problems with the same labels, got {parts}; name configurations of one "
            f"kind with `config`"
        )
    return next(iter(found), LABELS)


def shared_seeds(counts: Sequence[SeedCounts]) -> list[SeedCounts]:
    """Keep the counts of the seeds that all have, if any."""
    common = set.intersection(*(set(each.seed_ids) for each in counts))
    return [
        each.take(np.array([seed in common for seed in each.seed_ids], bool)) for each in counts
    ]


def on_common_seeds(counts: Sequence[SeedCounts], where: str) -> list[SeedCounts]:
    """Keep the counts of the seeds that all have; log how many that leaves out.

    Args:
        counts: One per model or dataset.
        where: What messages begin with, such as the configuration.

    Raises:
        ValueError: there is no such seed.
    """
    everything = [set(each.seed_ids) for each in counts]
    kept = shared_seeds(counts)
    if not (n_common := len(kept[0].seed_ids)):
        first, second = next(
            (a, b) for a in everything for b in everything if not a & b or a & b != a | b
        )
        raise ValueError(
            f"{where}: expected predictions for the same seeds, got none in common: one has "
            f"{preview(pa.array(sorted(map(str, first))))}, another "
            f"{preview(pa.array(sorted(map(str, second))))}"
        )
    total = len(set.union(*everything))
    if n_common < total:
        log.warning(
            "%s: only the %s seeds that all have are used, out of %s",
            where,
            f"{n_common:,}",
            f"{total:,}",
        )
    return kept
