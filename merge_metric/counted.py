"""A predictions file → counts per seed, which are all that figures need.

Of a large dataset, or a large file without a dataset, some seeds are read, joined and counted at a
time: memory grows with the number of seeds, not with that of rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from merge_dataset.repeats import Digests, Repeats, digests_of, is_among, repeats
from merge_dataset.seed_ranges import RANGE_ROWS, SeedRange, range_of
from merge_metric.per_seed import answers_of, with_texts
from merge_metric.runs.coverage import (
    EXAMPLES,
    Tally,
    cover_seeds,
    preview,
    ranges_in,
    require_known,
)
from merge_metric.runs.dealing import Dealt, dealt
from merge_metric.runs.join import (
    choose_configurations,
    count_unscored,
    join_one,
    judge_missing,
    label_columns,
    probability_table,
    tell_many_groups,
    tell_unscored,
)
from merge_metric.runs.label_check import tell_other_order
from merge_metric.runs.predictions import count_rows, read_batches, read_predictions
from merge_metric.runs.row_checks import PROBABILITIES, labels_of
from merge_metric.runs.run import (
    Run,
    Source,
    make_model,
    make_run,
    naming_files,
    read_runs,
    require_different_files,
    runs_of,
    sources_of_models,
    tell_unverified,
)
from merge_metric.runs.texts import added_texts
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.divergence import Sums, added
from merge_metric.seed_variant_accuracy.groups import count_all_groups
from merge_metric.seed_variant_accuracy.inputs import split_predictions
from merge_metric.seed_variant_accuracy.options import SUM_TOLERANCE, check_opposites
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

    config: str
    counts: SeedCounts
    groups: Groups = field(default_factory=dict)
    shift: Sums | None = None
    """Sums of `scoring.label_shift`, where there are probabilities."""
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
        run.config,
        run.counts,
        count_run_groups(run) if groups is None else groups,
        shift,
        run.n_seeds_left_out,
        run.texts,
        answers_of(run) if per_seed else None,
    )


def count_run_groups(run: Run) -> dict[str, dict[str, SeedCounts]]:
    """Count a run's rows by the values of each of its groups."""
    return count_all_groups(run.rows, run.groups, check_opposites(None, run.rows.labels))


def count_file(
    path: Path,
    dataset: Path | None = None,
    configs: Sequence[str] = (),
    *,
    by: Sequence[str] = (),
    cluster: str = "",
    allow_missing: bool = False,
    per_seed: bool = False,
) -> list[Counted]:
    """Count a predictions file, configuration by configuration.

    Args:
        path: The predictions file.
        dataset: As `score.score_file` takes it, like the next four.
        configs: Configurations.
        by: Columns to group variants by.
        cluster: Text that seeds drawn together share.
        allow_missing: Leave out seeds of which a prediction is missing.
        per_seed: Whether results seed by seed are wanted.

    Raises:
        FileNotFoundError, NotADirectoryError, ValueError: as in `score.score_file`.
    """
    if dataset is None:
        _refuse_without_dataset(
            configs=configs, by=by, cluster=cluster, allow_missing=allow_missing
        )
        counted = _count_alone(path, per_seed=per_seed)
        log.warning(
            "Every variant in the file counts once. With --dataset FOLDER figures are averages "
            "over the dataset's subsamples, which differ from these, and also given per word class."
        )
        return [counted]
    ranges = ranges_in(dataset) if path.is_file() else []
    options: dict[str, Any] = {"by": by, "cluster": cluster, "allow_missing": allow_missing}
    if len(ranges) > 1:
        found = _count_in_ranges(path, ranges, configs, per_seed=per_seed, **options)
    else:
        (predictions,) = _warn_of_other_order([read_predictions(path, dataset)], path)
        model = make_model("", [path], predictions, dataset)
        runs = runs_of(model, configs, keep=SCORED, **options)
        found = [count_run(run, per_seed=per_seed) for run in runs]
    return [_with_texts(each, dataset) for each in found] if per_seed else found


def count_models(
    sources: Sequence[Source], dataset: Path, configs: Sequence[str] = (), **options: Any
) -> Iterator[tuple[str, Counted]]:
    """Count the predictions of several models, one after the other.

    Of a model whose answers are in several files these are read whole, and of all others in parts.

    Args:
        sources: The files; those of one name and dataset are parts of one model's answers.
        dataset: The dataset folder of those that name none.
        configs: Configurations; by default what each model's predictions are for.
        options: `by`, `cluster` and `allow_missing` of `count_file`.

    Yields:
        Name of the model and its counts on a configuration.

    Raises:
        ValueError: as `runs.run.read_runs`.
    """
    require_different_files(sources)
    parted = sources_of_models(sources, dataset)
    for name, folder, parts in tqdm(parted, desc="reading", unit="model", disable=None):
        if len(parts) == 1:
            counted = count_file(parts[0].path, folder, configs, **options)
        else:
            runs = read_runs(parts, folder, configs, **options)
            counted = [Counted(run.config, run.counts, texts=run.texts) for run in runs]
        yield from ((name, each) for each in counted)


def _refuse_without_dataset(**options: object) -> None:
    for name, value in options.items():
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
        (predictions,) = _warn_of_other_order([read_predictions(path)], path)
        tell_other_order(predictions, str(path))
        return _count_rows(predictions, path, per_seed=per_seed)
    parts, found = -(-rows // RANGE_ROWS), []
    with (
        repeats() as ids,
        dealt(
            _noting(_warn_of_other_order(read_batches(path), path), ids),
            parts=parts,
            part_of=lambda seed: crc32(seed.encode()) % parts,
        ) as parted,
    ):
        tell_other_order(parted.of_seeds, str(path))
        for number in tqdm(range(parts), desc="counting", unit="part", disable=None):
            part = parted.part(number)
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


# --- Beside a dataset ---


def _count_in_ranges(
    path: Path,
    ranges: Sequence[SeedRange],
    configs: Sequence[str],
    *,
    by: Sequence[str],
    cluster: str,
    allow_missing: bool,
    per_seed: bool,
) -> list[Counted]:
    """Join and count some consecutive seeds of the dataset at a time."""
    folder = ranges[0].folder
    batches = _warn_of_other_order(read_batches(path, folder), path)
    with dealt(batches, parts=len(ranges), part_of=lambda seed: range_of(ranges, seed)) as parted:
        with naming_files([path], beside=folder):
            tally = _tally(parted, ranges)
        if not parted.is_verified:
            tell_unverified([path], folder)
        tell_other_order(parted.of_seeds, str(path))
        chosen = choose_configurations(tally, configs, by=by, cluster=cluster)
        join = _Joining(chosen, tuple(by), cluster, per_seed=per_seed)
        for number, seeds in enumerate(tqdm(ranges, desc="counting", unit="part", disable=None)):
            with naming_files([path], beside=folder):
                join.add(parted.part(number), seeds)
    with naming_files([path], beside=folder):
        counted = [join.counted(tally, config, allow_missing=allow_missing) for config in chosen]
    tell_unscored(join.unscored, parted.rows)
    return counted


def _tally(parted: Dealt, ranges: Sequence[SeedRange]) -> Tally:
    """Count what is there and what is missing.

    Raises:
        ValueError: there are predictions for problems that the dataset does not have.
    """
    tallies, unknown, n_unknown = [], [], 0
    for number, seeds in enumerate(tqdm(ranges, desc="looking up", unit="part", disable=None)):
        part = parted.part(number)
        coverage = cover_seeds(part, seeds)
        tallies.append(coverage.tally)
        others = coverage.unknown(part)
        n_unknown += len(others)
        unknown.append(others.slice(0, EXAMPLES + 1))
    if n_unknown:
        found = pa.concat_tables(unknown).slice(0, EXAMPLES + 1)
        _require_own_seeds(found, ranges)
        require_known(found["variant_id"], n_unknown, parted.rows, ranges[0].folder)
    return reduce(Tally.__add__, tallies)


def _require_own_seeds(predictions: pa.Table, ranges: Sequence[SeedRange]) -> None:
    """Raise where predictions for problems of the dataset name other seeds than it does."""
    for seeds in ranges:
        for file in seeds.rows:
            known = seeds.read(file, ["variant_id", "seed_id"])
            rows = pc.index_in(predictions["variant_id"], known["variant_id"].combine_chunks())
            for row, place in enumerate(rows.to_pylist()):
                if place is not None:
                    name, got = (predictions[key][row].as_py() for key in ("variant_id", "seed_id"))
                    raise ValueError(
                        f"expected the seed that the dataset has in the column seed_id, for "
                        f"{name!r} {known['seed_id'][place].as_py()!r}, got {got!r}: is this the "
                        f"dataset that the model was run on?"
                    )


@dataclass(slots=True)
class _Joining:
    """Counts of the configurations, as far as ranges of seeds were added."""

    configs: Sequence[str]
    by: Sequence[str]
    cluster: str
    per_seed: bool
    unscored: int = 0
    _parts: dict[str, list[Counted]] = field(default_factory=dict)
    _missing: dict[str, list[str]] = field(default_factory=dict)
    _left_out: dict[str, int] = field(default_factory=dict)
    _subsamples: dict[str, set[int]] = field(default_factory=dict)

    def add(self, predictions: pa.Table, seeds: SeedRange) -> None:
        """Join and count a range."""
        coverage = cover_seeds(predictions, seeds)
        self.unscored += count_unscored(predictions, coverage, self.configs)
        for config in self.configs:
            joined = join_one(predictions, coverage, config, self.by, self.cluster)
            self._missing.setdefault(config, []).extend(joined.missing)
            left_out = self._left_out.get(config, 0) + joined.n_seeds_left_out
            self._left_out[config] = left_out
            parts = self._parts.setdefault(config, [])
            if joined.n_seeds:
                self._require_subsamples(config, joined.columns)
                run = make_run("", config, joined.columns, keep=SCORED, texts=joined.texts)
                parts.append(count_run(run, per_seed=self.per_seed))

    def _require_subsamples(self, config: str, columns: Mapping[str, Any]) -> None:
        """Raise where a range's seeds are in other subsamples than those before."""
        found = set(chain.from_iterable(columns.get("subsamples") or ()))
        known = self._subsamples.setdefault(config, found)
        if found != known:
            raise ValueError(
                f"{config}: expected every seed to have variants in every subsample, got seeds "
                f"without any in {', '.join(map(str, sorted(found ^ known)))}; complete them or "
                f"leave them out"
            )

    def counted(self, tally: Tally, config: str, *, allow_missing: bool) -> Counted:
        """Put the ranges' counts together, which are then forgotten.

        Raises:
            ValueError: predictions are missing.
        """
        parts, left_out = self._parts.pop(config), self._left_out[config]
        judge_missing(
            tally,
            config,
            n_seeds=sum(len(part.counts.seed_ids) for part in parts),
            n_left_out=left_out,
            examples=self._missing[config][: EXAMPLES + 1],
            allow_missing=allow_missing,
        )
        whole = replace(_concatenated(parts), n_seeds_left_out=left_out)
        for name, groups in whole.groups.items():
            tell_many_groups(name, list(groups))
        return whole


def _concatenated(parts: Sequence[Counted]) -> Counted:
    """Put the counts of different seeds of a configuration together."""
    values: dict[str, dict[str, list[SeedCounts]]] = {}
    for part in parts:
        for name, groups in part.groups.items():
            for value, counts in groups.items():
                values.setdefault(name, {}).setdefault(value, []).append(counts)
    shifts = [part.shift for part in parts if part.shift is not None]
    answers = [part.answers for part in parts if part.answers is not None]
    return Counted(
        parts[0].config,
        SeedCounts.concatenated([part.counts for part in parts]),
        {
            name: {value: SeedCounts.concatenated(of_value[value]) for value in sorted(of_value)}
            for name, of_value in values.items()
        },
        added(shifts) if shifts else None,
        sum(part.n_seeds_left_out for part in parts),
        added_texts([part.texts for part in parts]),
        pa.concat_tables(answers).sort_by("seed_id") if answers else None,
    )


def _warn_of_other_order(batches: Iterable[pa.Table], path: Path) -> Iterator[pa.Table]:
    """Pass predictions on; warn at the end of probabilities that favour other labels."""
    others, rows = 0, 0
    labels: tuple[str, ...] = ()
    for predictions in batches:
        if PROBABILITIES in predictions.column_names:
            table = probability_table(predictions)
            predicted = table[np.arange(len(table)), predictions["prediction"].to_numpy()]
            others += int((predicted < table.max(axis=1) - SUM_TOLERANCE).sum())
        rows, labels = rows + len(predictions), labels_of(predictions)
        yield predictions
    if others:
        log.warning(
            "%s: in %s of %s rows another label than the prediction is the most probable one; "
            "are the probabilities in the order %s?",
            path,
            f"{others:,}",
            f"{rows:,}",
            ", ".join(labels),
        )
