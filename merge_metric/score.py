"""A predictions file → its figures, and these as text: `merge-nli score`, also from Python."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

import numpy as np
import pyarrow as pa

from merge_metric.cautions import mixture, seeds_of_parts, tell
from merge_metric.runs.join import label_columns, probability_table
from merge_metric.runs.label_check import tell_other_order
from merge_metric.runs.predictions import read_predictions
from merge_metric.runs.row_checks import PROBABILITIES, labels_of
from merge_metric.runs.run import Run, make_model, make_run, runs_of
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, Figure, percent, sv_at
from merge_metric.seed_variant_accuracy.groups import count_all_groups
from merge_metric.seed_variant_accuracy.inputs import split_predictions
from merge_metric.seed_variant_accuracy.options import (
    SUM_TOLERANCE,
    check_cluster,
    check_opposites,
    check_settings,
)
from merge_metric.seed_variant_accuracy.resampling import resampled_units
from merge_metric.seed_variant_accuracy.scoring import score_counts
from merge_metric.tables import Column, Table, figure_column, figure_values
from merge_metric.tables.table import WIDTH

log = logging.getLogger(__name__)

ALL_ROWS: Final = "all rows"
"""Name of the results of a whole file, without configurations."""

_SV: Final = "seed_variant_accuracy"
_EXPLAINED: Final = (
    "seed_accuracy",
    "variant_accuracy",
    _SV,
    "matching_threshold",
    "relaxed_fooling_rate",
    "strict_fooling_rate",
)
"""Keys of the figures in the text, SV accuracy at several thresholds."""

_SPREADING: Final = ("variant_accuracy", _SV)
"""Keys of the figures whose spread over subsamples the text has."""

_THRESHOLDS: Final[tuple[int, ...]] = (50, 80, 90, 100)

_Result = Mapping[str, Any]

SCORED: Final = ("probabilities", "seed_probabilities")
"""Columns that runs keep to be scored."""


def score_file(
    path: str | Path,
    dataset: str | Path | None = None,
    configs: Sequence[str] = (),
    *,
    by: Sequence[str] = (),
    cluster: str = "",
    allow_missing: bool = False,
    correctness_threshold: int = 90,
    n_bootstrap: int = 1000,
    rng_seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """Score a predictions file.

    What is not scored, and why, is logged.

    Args:
        path: A predictions file (see `predictions`).
        dataset: The dataset folder, which knows the subsamples and word classes. Without
            it every variant of the file counts once.
        configs: Configurations such as `snli_nouns`; by default what the predictions are
            for (see `join.choose`).
        by: Further columns of the dataset to group variants by (see `join.groupings`).
        cluster: Text of the problems, such as `premise`: the bootstrap draws seeds that share it
            together. By default each seed by itself.
        allow_missing: Score the seeds of which no prediction is missing.
        correctness_threshold: CT of `seed_variant_accuracy`, integer percent 1–100.
        n_bootstrap: Replicates of the bootstrap over seeds; 0 leaves intervals out.
        rng_seed: Of the bootstrap.

    Returns:
        Configuration, or `ALL_ROWS` without a dataset → the result of `scoring.score` and
        `n_seeds_left_out`.

    Raises:
        FileNotFoundError, NotADirectoryError: no such file or dataset folder.
        ValueError: an option or file is not as it should be, or predictions are missing.
    """
    settings = check_settings(correctness_threshold, n_bootstrap, rng_seed)
    check_cluster(cluster, n_bootstrap)
    runs = runs_of_file(path, dataset, configs, by=by, cluster=cluster, allow_missing=allow_missing)
    return score_runs(runs, **settings)


def runs_of_file(
    path: str | Path,
    dataset: str | Path | None = None,
    configs: Sequence[str] = (),
    *,
    by: Sequence[str] = (),
    cluster: str = "",
    allow_missing: bool = False,
) -> list[Run]:
    """Read the runs of a predictions file, one per configuration; see `score_file`."""
    path = Path(path)
    predictions = read_predictions(path, None if dataset is None else Path(dataset))
    _warn_of_other_order(predictions, path)
    if dataset is None:
        _refuse_without_dataset(
            configs=configs, by=by, cluster=cluster, allow_missing=allow_missing
        )
        tell_other_order(predictions, str(path))
        return [_whole_file(predictions, path)]
    model = make_model("", [path], predictions, Path(dataset))
    options: dict[str, Any] = {"by": by, "cluster": cluster, "keep": SCORED}
    return list(runs_of(model, configs, allow_missing=allow_missing, **options))


def score_runs(runs: Sequence[Run], **settings: int) -> dict[str, dict[str, Any]]:
    """Score runs, and tell of mixed numbers of variants and of few seeds.

    Args:
        runs: Of `runs_of_file`.
        settings: As `score_run` takes them.
    """
    results = {run.config: score_run(run, None, **settings) for run in runs}
    for run in runs:
        tell(run.config, run.counts, seeds_of_parts(results[run.config]))
    return results


def score_run(
    run: Run,
    groups: Mapping[str, Mapping[str, SeedCounts]] | None = None,
    *,
    correctness_threshold: int = 90,
    n_bootstrap: int = 1000,
    rng_seed: int = 0,
) -> dict[str, Any]:
    """Score a run that kept the columns `SCORED`.

    Args:
        run: A model on one configuration.
        groups: Its groups, counted; by default they are counted here.
        correctness_threshold: As `score_file` takes it.
        n_bootstrap: As `score_file` takes it.
        rng_seed: As `score_file` takes it.

    Returns:
        The result of `scoring.score` and `n_seeds_left_out`.
    """
    result = score_counts(
        run.rows,
        run.counts,
        (groups or count_run_groups(run)) if run.groups else None,
        opposites=check_opposites(None, run.rows.labels),
        probabilities=run.kept.get("probabilities"),
        seed_probabilities=run.kept.get("seed_probabilities"),
        correctness_threshold=correctness_threshold,
        n_bootstrap=n_bootstrap,
        rng_seed=rng_seed,
        texts=run.texts,
    )
    return result | {"n_seeds_left_out": run.n_seeds_left_out}


def count_run_groups(run: Run) -> dict[str, dict[str, SeedCounts]]:
    """Count a run's rows by the values of each of its groups."""
    return count_all_groups(run.rows, run.groups, check_opposites(None, run.rows.labels))


def _refuse_without_dataset(**options: object) -> None:
    for name, value in options.items():
        if value:
            flag = {"configs": "config"}.get(name, name).replace("_", "-")
            raise ValueError(
                f"expected a dataset folder with --{flag}, got none: only the dataset knows "
                f"configurations, columns and what is missing; add --dataset FOLDER"
            )


def _whole_file(predictions: pa.Table, path: Path) -> Run:
    """Make the run of all rows of a file, without a dataset."""
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
    log.warning(
        "Every variant in the file counts once. With --dataset FOLDER figures are averages over "
        "the dataset's subsamples, which differ from these, and also given per word class."
    )
    return make_run("", ALL_ROWS, columns | label_columns(predictions), keep=SCORED)


def _warn_of_other_order(predictions: pa.Table, path: Path) -> None:
    """Warn of probabilities that favour other labels than were predicted."""
    if PROBABILITIES not in predictions.column_names:
        return
    table = probability_table(predictions)
    predicted = table[np.arange(len(table)), predictions["prediction"].to_numpy()]
    if others := int((predicted < table.max(axis=1) - SUM_TOLERANCE).sum()):
        log.warning(
            "%s: in %s of %s rows another label than the prediction is the most probable one; "
            "are the probabilities in the order %s?",
            path,
            f"{others:,}",
            f"{len(table):,}",
            ", ".join(labels_of(predictions)),
        )


# --- Text ---


def scores_text(
    results: Mapping[str, _Result],
    correctness_threshold: int = 90,
    *,
    more: Sequence[Figure] = (),
    cluster: str = "",
) -> str:
    """Render the results of `score_file`: a table each, and once what its columns mean.

    Args:
        results: Configuration → result.
        correctness_threshold: Has a column where it is not 50, 80, 90 or 100, in place of 90.
        more: Further figures to show.
        cluster: As they were scored with.
    """
    parts = []
    for config, result in results.items():
        table = score_table(config, result, correctness_threshold, more)
        parts += [table.to_text(), f"signature: {result['signature']}"]
    explained = dict.fromkeys((*(CATALOGUE[key] for key in _EXPLAINED), *more))
    legend = [
        line
        for figure in explained
        for line in wrap(f"{figure.heading}: {figure.explanation}".replace("{ct}", "CT"), WIDTH)
    ]
    unit = "In percent"
    if any("seed_accuracy_ci" in result for result in results.values()):
        units = resampled_units(cluster)
        unit += f"; below each value its 95 % interval, by bootstrap over {units}"
    return "\n\n".join([*parts, "\n".join([*legend, *wrap(f"{unit}.", WIDTH)])])


def score_table(
    config: str,
    result: _Result,
    correctness_threshold: int = 90,
    more: Sequence[Figure] = (),
) -> Table:
    """Make the table of a result: all variants, then each group and label.

    Args:
        config: Its configuration.
        result: Of `score_file`.
        correctness_threshold: As `scores_text` takes it.
        more: As `scores_text` takes it.
    """
    thresholds = _THRESHOLDS
    if correctness_threshold not in thresholds:
        thresholds = tuple(sorted({50, 80, 100, correctness_threshold}))
    s, variants, *others = (CATALOGUE[key] for key in _EXPLAINED if key != _SV)
    usual = (s, variants, *map(sv_at, thresholds), *others)
    figures = tuple({figure.key: figure for figure in (*usual, *more)}.values())
    return Table(
        name="scores",
        title=_title(config, result),
        columns=(Column("of", "seeds / variants", interval="size"), *map(figure_column, figures)),
        rows=tuple(
            {
                "of": name,
                "size": f"  {part['n_seeds']:,} / {part['n_variants']:,}",
                **figure_values(part, figures),
            }
            for name, part in _parts(result)
        ),
        notes=tuple(_notes(result, correctness_threshold)),
        tight=True,
    )


def _parts(result: _Result) -> Iterator[tuple[str, _Result]]:
    """Yield the whole result, then its groups and labels, where they are not all of it."""
    yield "all", result
    for column, groups in {**result.get("by_group", {}), "label": result["by_label"]}.items():
        if groups and not _is_whole(groups, result):
            for value, part in groups.items():
                yield f"{column.replace('_', ' ')}: {value}", part


def _title(config: str, result: _Result) -> str:
    title = config
    if (subsamples := result.get("n_subsamples", 1)) > 1:
        title += f", averaged over {subsamples} subsamples"
    if clusters := result.get("n_clusters"):
        title += f"; seeds in {clusters:,} cluster{'s'[: clusters > 1]}"
    if left_out := result["n_seeds_left_out"]:
        title += f"; {left_out:,} seed{'s'[: left_out > 1]} left out, as predictions are missing"
    return title


def _is_whole(groups: Mapping[str, _Result], result: _Result) -> bool:
    """Tell whether the only group is all that there is."""
    counts = [(group["n_seeds"], group["n_variants"]) for group in groups.values()]
    return counts == [(result["n_seeds"], result["n_variants"])]


def _notes(result: _Result, correctness_threshold: int) -> Iterator[str]:
    if mixed := mixture(result["variants_per_seed"]):
        yield mixed
    if result.get("n_subsamples", 1) > 1:
        shown = ", ".join(
            f"{figure.heading} {percent(result[f'{figure.key}_std'], figure.unit):.1f}"
            for figure in (CATALOGUE[k].at(correctness_threshold) for k in _SPREADING)
        )
        yield f"standard deviation over the subsamples: {shown}"
    if "jsd_changed" in result:
        shown = "; ".join(
            f"{name} {_fraction(result[f'{key}_changed'])}, {_fraction(result[f'{key}_unchanged'])}"
            for name, key in (("JSD", "jsd"), ("KS", "ks"), ("σ", "sigma"))
        )
        yield f"label probabilities of variants (changed, unchanged): {shown}"


def _fraction(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
