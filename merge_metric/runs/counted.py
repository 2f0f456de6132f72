"""A predictions file → counts per seed, which are all that figures need.

Of a large dataset, or a large file without a dataset, some seeds are read, joined and counted at a
time: memory grows with the number of seeds, not with that of rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final
from zlib import crc32

import pyarrow as pa
from tqdm import tqdm

from merge_dataset.repeats import Digests, Repeats, digests_of, is_among, repeats
from merge_dataset.seed_ranges import RANGE_ROWS
from merge_metric.runs.coverage import preview
from merge_metric.runs.dealing import dealt
from merge_metric.runs.join import Joined, JoinOptions, label_columns, probability_table
from merge_metric.runs.label_check import tell_other_order, tell_other_probabilities
from merge_metric.runs.model import (
    Model,
    PredictionsSource,
    naming_files,
    read_models,
    require_different_files,
)
from merge_metric.runs.per_seed import answers_of, with_texts
from merge_metric.runs.predictions import count_rows, place_in, read_batches, read_predictions
from merge_metric.runs.row_checks import PROBABILITIES
from merge_metric.runs.run import Run, make_run, parts_of_runs
from merge_metric.runs.texts import added_texts
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.divergence import Sums, added
from merge_metric.seed_variant_accuracy.groups import count_all_groups
from merge_metric.seed_variant_accuracy.inputs import split_predictions
from merge_metric.seed_variant_accuracy.options import check_opposites
from merge_metric.seed_variant_accuracy.scoring import label_shift

log = logging.getLogger(__name__)

ALL_ROWS: Final = "all rows"
"""Name of the results of a whole file, without configurations."""

SCORED: Final = ("probabilities", "seed_probabilities")
"""Columns that runs keep to be scored."""

Groups = Mapping[str, Mapping[str, SeedCounts]]
"""Column → value → counts of the variants with it."""


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Counts and sums from which the figures of a model on one configuration are made."""

    model: str
    config: str
    counts: SeedCounts
    groups: Groups = field(default_factory=dict)
    shift: Sums | None = None
    """Sums of `scoring.label_shift`, where there are probabilities."""
    dataset: str = ""
    """As in `Run`, like the next three."""
    folder: Path = Path()
    n_seeds_left_out: int = 0
    texts: str = ""
    answers: pa.Table | None = None
    """Results seed by seed, where they were asked for; see `per_seed.seed_results`."""


def count_run(run: Run, groups: Groups | None = None, *, per_seed: bool = False) -> Counted:
    """Count the rows of a run that kept the columns `SCORED`.

    Args:
        run: A model on one configuration.
        groups: Its groups, counted; by default they are counted here.
        per_seed: Whether results seed by seed are wanted.
    """
    kept, shift = run.kept, None
    if "probabilities" in kept:
        shift = label_shift(run.rows, kept["probabilities"], kept["seed_probabilities"])
    return Counted(
        run.model,
        run.config,
        run.counts,
        count_run_groups(run) if groups is None else groups,
        shift,
        run.dataset,
        run.folder,
        run.n_seeds_left_out,
        run.texts,
        answers_of(run) if per_seed else None,
    )


def count_run_groups(run: Run) -> dict[str, dict[str, SeedCounts]]:
    """Count a run's rows by the values of each of its groups."""
    return count_all_groups(run.rows, run.groups, check_opposites(None, run.rows.labels))


def count_file(
    path: Path,
    dataset: Path | None,
    options: JoinOptions,
    *,
    per_seed: bool = False,
) -> list[Counted]:
    """Count a predictions file, configuration by configuration.

    Args:
        path: The predictions file.
        dataset: As `score.score_file` takes it.
        options: What is joined; nothing can be asked for without a dataset.
        per_seed: Whether results seed by seed are wanted.

    Raises:
        FileNotFoundError, NotADirectoryError, ValueError: as in `score.score_file`.
    """
    if dataset is None:
        _refuse_without_dataset(options)
        counted = _count_alone(path, per_seed=per_seed)
        log.warning(
            "Every variant in the file counts once. With --dataset FOLDER figures are averages "
            "over the dataset's subsamples, which differ from these, and also given per word class."
        )
        return [counted]
    found = count_models([PredictionsSource("", path)], dataset, options, per_seed=per_seed)
    return [_with_texts(each, dataset) if per_seed else each for each in found]


def count_models(
    sources: Sequence[PredictionsSource],
    dataset: Path,
    options: JoinOptions,
    *,
    per_seed: bool = False,
) -> Iterator[Counted]:
    """Count the predictions of several models, one after the other.

    Args:
        sources: The files; those of one name and dataset are parts of one model's answers.
        dataset: The dataset folder of those that name none.
        options: What is joined.
        per_seed: Whether results seed by seed are wanted.

    Raises:
        ValueError: as `runs.run.read_runs`.
    """
    require_different_files(sources)
    for model in read_models(sources, dataset):
        yield from count_model(model, options, per_seed=per_seed)
        del model  # before the next is read


def count_model(model: Model, options: JoinOptions, *, per_seed: bool = False) -> Iterator[Counted]:
    """Count a model's answers, configuration by configuration.

    Args:
        model: From `runs.model.read_models`.
        options: What is joined.
        per_seed: Whether results seed by seed are wanted.
    """

    def take(run: Run, _: Joined) -> Counted:
        return count_run(run, per_seed=per_seed)

    for parts, left_out in parts_of_runs(model, take, options, keep=SCORED):
        yield replace(_concatenated(parts), n_seeds_left_out=left_out)


def _refuse_without_dataset(options: JoinOptions) -> None:
    for name, value in asdict(options).items():
        if value:
            flag = {"configs": "config"}.get(name, name).replace("_", "-")
            raise ValueError(
                f"expected a dataset folder with --{flag}, got none: only the dataset knows "
                f"configurations, columns and what is missing; add --dataset FOLDER"
            )


def _with_texts(counted: Counted, dataset: Path) -> Counted:
    assert counted.answers is not None
    return replace(counted, answers=with_texts(counted.answers, dataset, counted.config))


# --- Without a dataset ---


def _count_alone(path: Path, *, per_seed: bool) -> Counted:
    """Count all rows of a file, every variant once."""
    rows = count_rows(path)
    if rows <= RANGE_ROWS:
        (predictions,) = tell_other_probabilities([read_predictions(path)], path)
        tell_other_order(predictions, str(path))
        return _count_rows(predictions, path, per_seed=per_seed)
    parts, found = -(-rows // RANGE_ROWS), []
    with repeats() as ids, ExitStack() as stack:
        batches = _noting(tell_other_probabilities(read_batches(path), path), ids)
        files = [(place_in(path), batches)]
        parted = stack.enter_context(
            dealt(files, parts=parts, part_of=lambda seed: crc32(seed.encode()) % parts)
        )
        tell_other_order(parted.of_seeds, str(path))
        for number in tqdm(range(parts), desc="counting", unit="part", disable=None):
            with naming_files([path]):
                (part,) = parted.part(number)
            _require_unique(part, ids.found(), path)
            found.append(_count_rows(part, path, per_seed=per_seed))
    return _concatenated(found)


def _count_rows(predictions: pa.Table, path: Path, *, per_seed: bool) -> Counted:
    has_probabilities = PROBABILITIES in predictions.column_names
    try:
        columns = split_predictions(
            variant_id=predictions["variant_id"].to_pylist(),
            seed_id=predictions["seed_id"].to_pylist(),
            label=predictions["label"].to_numpy(),
            prediction=predictions["prediction"].to_numpy(),
            probabilities=probability_table(predictions) if has_probabilities else None,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    run = make_run("", ALL_ROWS, columns | label_columns(predictions), keep=SCORED)
    return count_run(run, per_seed=per_seed)


def _noting(batches: Iterable[pa.Table], ids: Repeats) -> Iterator[pa.Table]:
    """Note the ids of the rows that pass by."""
    for batch in batches:
        ids.add(digests_of(batch["variant_id"].to_pylist()))
        yield batch


def _require_unique(part: pa.Table, repeated: Digests, path: Path) -> None:
    """Raise where an id stands in this part and another, or twice in this one."""
    if len(repeated):
        ids = part["variant_id"]
        twice = ids.filter(pa.array(is_among(digests_of(ids.to_pylist()), repeated)))
        if len(twice):
            raise ValueError(
                f"{path}: variant_id: expected one row per id, got duplicates of {preview(twice)}: "
                "drop the repeated rows"
            )


def _concatenated(parts: Sequence[Counted]) -> Counted:
    """Put the counts of different seeds of a configuration together."""
    values: dict[str, dict[str, list[SeedCounts]]] = {}
    for part in parts:
        for name, groups in part.groups.items():
            of_name = values.setdefault(name, {})
            for value, counts in groups.items():
                of_name.setdefault(value, []).append(counts)
    shifts = [part.shift for part in parts if part.shift is not None]
    answers = [part.answers for part in parts if part.answers is not None]
    return replace(
        parts[0],
        counts=SeedCounts.concatenated([part.counts for part in parts]),
        groups={
            name: {value: SeedCounts.concatenated(of_value[value]) for value in sorted(of_value)}
            for name, of_value in values.items()
        },
        shift=added(shifts) if shifts else None,
        texts=added_texts([part.texts for part in parts]),
        answers=pa.concat_tables(answers).sort_by("seed_id") if answers else None,
    )
