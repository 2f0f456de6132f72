"""A predictions file → its figures: `merge-nli score`, also from Python."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from merge_metric.runs.join import Joined, join, label_columns, probability_table
from merge_metric.runs.predictions import PROBABILITIES, labels_of, read_predictions
from merge_metric.seed_variant_accuracy.inputs import split_predictions
from merge_metric.seed_variant_accuracy.options import SUM_TOLERANCE, check_threshold
from merge_metric.seed_variant_accuracy.scoring import score

log = logging.getLogger(__name__)

ALL_ROWS: Final = "all rows"
"""What results are called that are not of a configuration but of a whole file."""


def score_file(
    path: str | Path,
    dataset: str | Path | None = None,
    configs: Sequence[str] = (),
    *,
    by: Sequence[str] = (),
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
            for (see `coverage.choose`).
        by: Further columns of the dataset to group variants by (see `join.groupings`).
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
    check_threshold(correctness_threshold)
    path = Path(path)
    predictions = read_predictions(path, None if dataset is None else Path(dataset))
    _warn_of_other_order(predictions, path)
    if dataset is None:
        _refuse_without_dataset(configs=configs, by=by, allow_missing=allow_missing)
        joined = [_whole_file(predictions, path)]
    else:
        joined = join(predictions, Path(dataset), configs, by=by, allow_missing=allow_missing)
    return {
        each.config: score(
            **each.columns,
            correctness_threshold=correctness_threshold,
            n_bootstrap=n_bootstrap,
            rng_seed=rng_seed,
        )
        | {"n_seeds_left_out": each.n_seeds_left_out}
        for each in joined
    }


def _refuse_without_dataset(**options: object) -> None:
    for name, value in options.items():
        if value:
            flag = {"configs": "config"}.get(name, name).replace("_", "-")
            raise ValueError(
                f"expected a dataset folder with --{flag}, got none: only the dataset knows "
                f"configurations, columns and what is missing; add --dataset FOLDER"
            )


def _whole_file(predictions: pa.Table, path: Path) -> Joined:
    """The columns of `scoring.score` from the file alone."""
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
    return Joined(ALL_ROWS, columns | label_columns(predictions), n_seeds_left_out=0)


def _warn_of_other_order(predictions: pa.Table, path: Path) -> None:
    """Probabilities that favour other labels than were predicted are in another order."""
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
