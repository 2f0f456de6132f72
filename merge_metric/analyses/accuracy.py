"""Accuracy on all test problems, on seeds, on variants, and on variants by their seeds' answers.

Figures 3 and 16, and section 5.4 of the paper.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.schema import parse_config_name
from merge_metric.analyses.measures import RUN_COLUMNS, Row, measures
from merge_metric.runs.coverage import preview
from merge_metric.runs.model import parse_source
from merge_metric.runs.predictions import read_predictions
from merge_metric.runs.run import HasCounts
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.figures import CATALOGUE
from merge_metric.tables import Column, Table
from merge_metric.tables.plots import bar_panels, distinct

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

_SOLVED: Final = ("any", "half", "all")
"""How many of a seed's variants are right, at least."""

Right = Mapping[str, bool]
"""Id of a test problem → whether a model answers it right."""


def read_tests(files: Sequence[str], models: Sequence[str]) -> dict[str, dict[str, bool]]:
    """Read predictions for all test problems.

    Args:
        files: Predictions files, as FILE or NAME=FILE.
        models: Names of the models that are analysed.

    Returns:
        Model → id of a test problem → whether it is answered right.

    Raises:
        ValueError: a file is of none of the models.
    """
    tests: dict[str, dict[str, bool]] = {}
    for source in map(parse_source, files):
        if source.model not in models:
            raise ValueError(
                f"{source.path}: expected test predictions of {', '.join(dict.fromkeys(models))}, "
                f"got those of {source.model!r}; name them alike: NAME=FILE"
            )
        tests.setdefault(source.model, {}).update(answered_right(read_predictions(source.path)))
    return tests


def answered_right(predictions: pa.Table) -> dict[str, bool]:
    """Say which test problems, rows that are no variants, a predictions table has right."""
    problems = predictions.filter(pc.equal(predictions["variant_id"], predictions["seed_id"]))
    right = pc.equal(problems["label"], problems["prediction"])
    return dict(zip(problems["variant_id"].to_pylist(), right.to_pylist(), strict=True))


def accuracy(
    runs: Iterable[HasCounts],
    tests: Mapping[str, Right] | None = None,
    *,
    n_subsamples: int = 100,
    rng_seed: int = 0,
) -> Table:
    """Make a row per model and configuration.

    Are the seeds easier than the problems they were chosen from? So many random test
    problems as there are seeds are drawn, without replacement and the same for every
    model; `higher_share` is how often S on them is higher than on the seeds.

    Args:
        runs: Models on configurations.
        tests: Model → its answers to all test problems of the sources, seeds included.
            Models without any have no value there.
        n_subsamples: How many times test problems are drawn.
        rng_seed: Of the draws.

    Raises:
        ValueError: seeds are not among a model's test problems.
    """
    rows = []
    for run in runs:
        row: Row = {"config": run.config, "model": run.model} | measures(run.counts)
        del row["curve"]
        row |= {"n_test": None, "test_accuracy": None, "higher_share": None}
        if tests and run.model in tests:
            row |= _beside_test(run, tests[run.model], n_subsamples, rng_seed)
        rows.append(row)
    return Table(
        name="accuracy",
        title="Accuracy (S) on all test problems, on the seeds among them, and on variants",
        columns=(
            *RUN_COLUMNS,
            Column("n_test", "test problems", "count"),
            Column("n_seeds", "seeds", "count"),
            Column("test_accuracy", "S test", "share"),
            Column("seed_accuracy", "S seeds", "share"),
            Column("variant_accuracy", "S variants", "share"),
            Column("higher_share", "higher", "share"),
        ),
        rows=tuple(rows),
        notes=(
            f"In percent; variants averaged over subsamples. Higher: the share of "
            f"{n_subsamples} random sets of as many test problems as there are seeds on which S "
            f"is higher than on the seeds.",
            *_mean_higher_share(rows),
        ),
    )


def _beside_test(run: HasCounts, test: Right, n_subsamples: int, rng_seed: int) -> Row:
    source, _ = parse_config_name(run.config)
    ids = sorted(name for name in test if name.startswith(f"{source}:"))
    right = np.array([test[name] for name in ids], bool)
    seeds = [str(seed) for seed in run.counts.seed_ids]
    if missing := sorted(set(seeds) - set(ids)):
        raise ValueError(
            f"{run.model}, {run.config}: expected the seeds among the test problems, with ids "
            f"such as {seeds[0]!r}, got {len(ids):,} test problems of {source!r} without "
            f"{len(missing):,} of {len(seeds):,} seeds: {preview(pa.array(missing))}"
        )
    own = run.counts.right
    if differ := int((np.array([test[seed] for seed in seeds]) != own).sum()):
        log.warning(
            "%s, %s: %s of %s seeds are right in only one of the predictions for the dataset "
            "and those for all test problems: the same model, in the same precision?",
            run.model,
            run.config,
            f"{differ:,}",
            f"{len(seeds):,}",
        )
    scores = subsample_scores(right, len(seeds), n_subsamples, rng_seed)
    return {
        "n_test": len(ids),
        "test_accuracy": float(right.mean()),
        "higher_share": float((scores > own.sum()).mean()),
    }


def subsample_scores(
    right: NDArray[np.bool_], size: int, n_subsamples: int, rng_seed: int
) -> NDArray[np.int64]:
    """Count, (n_subsamples,), how many of `size` problems drawn without replacement are right."""
    rng = np.random.default_rng(rng_seed)
    draws = (rng.choice(len(right), size, replace=False) for _ in range(n_subsamples))
    return np.array([int(right[draw].sum()) for draw in draws], np.int64)


def _mean_higher_share(rows: list[Row]) -> list[str]:
    """Say the average share of higher test subsamples of sources with several models."""
    notes = []
    for config in distinct(rows, "config"):
        shares = [row["higher_share"] for row in rows if row["config"] == config]
        known = [share for share in shares if share is not None]
        if len(known) > 1:
            notes.append(f"{config}: higher in {100 * float(np.mean(known)):.1f} on average.")
    return notes


def plot_accuracy(table: Table) -> Figure:
    """Draw a panel per configuration: bars for test problems, where known, seeds and variants."""
    series = {
        "test problems": "test_accuracy",
        "seeds": "seed_accuracy",
        "variants": "variant_accuracy",
    }
    if all(row["test_accuracy"] is None for row in table.rows):
        del series["test problems"]
    return bar_panels(table, series, "accuracy, %")


# --- By the answers to the seeds ---


def first_answers(runs: Iterable[HasCounts]) -> Table:
    """Make a row per model and configuration; None where no seed is right, or none wrong.

    Beside shares, rows have numbers of seeds: those answered right or wrong of which at least
    one variant, at least half, or every one is answered right. Section 5.4 has numbers of seeds
    answered wrong of which variants are right, and does not say how many of them.
    """
    rows = [
        {"config": run.config, "model": run.model}
        | _part("right", run.counts.take(run.counts.right))
        | _part("wrong", run.counts.take(~run.counts.right))
        for run in runs
    ]
    return Table(
        name="first-answers",
        title="Variant accuracy for seeds that were themselves answered right or wrong",
        columns=(
            *RUN_COLUMNS,
            *(column for which in ("right", "wrong") for column in _part_columns(which)),
        ),
        rows=tuple(rows),
        notes=(
            "Numbers of seeds answered right, and wrong; accuracy over their variants, in percent; "
            "any, half, all: numbers of these seeds of which at least one variant, at least half, "
            "all are answered right. Averaged over subsamples.",
            *_mean_accuracies(rows),
        ),
    )


def _part_columns(which: str) -> list[Column]:
    figure = CATALOGUE["variant_accuracy"]
    return [
        Column(f"n_{which}", which, "count"),
        Column(f"{figure.key}_{which}", figure.heading, "share"),
        *(Column(f"n_{key}_{which}", key, "threshold") for key in _SOLVED),
    ]


def _part(which: str, counts: SeedCounts) -> Row:
    keys = ("variant_accuracy", "sv_at_50", "sv_at_100")
    found = measures(counts) if counts.seed_ids else dict.fromkeys(keys)
    row = {f"n_{which}": len(counts.seed_ids)} | {f"{key}_{which}": found[key] for key in keys}
    n_right, n = counts.n_correct, counts.n_variants
    enough = {"any": n_right > 0, "half": 2 * n_right >= n, "all": n_right == n}
    for key in _SOLVED:  # in numbers of seeds, averaged over subsamples
        row[f"n_{key}_{which}"] = float((enough[key] & counts.present).sum() / n.shape[1])
    return row


def _mean_accuracies(rows: list[Row]) -> list[str]:
    """Say accuracies and numbers of seeds averaged over models, of sources with several."""
    notes = []
    for config in distinct(rows, "config"):
        mine = [row for row in rows if row["config"] == config]
        shown = []
        for which in ("right", "wrong"):
            values = [row[f"variant_accuracy_{which}"] for row in mine]
            known = [value for value in values if value is not None]
            if len(known) > 1:
                shown.append(f"{100 * float(np.mean(known)):.1f} where {which}")
        if shown:
            numbers = ", ".join(
                f"{key} in {float(np.mean([row[f'n_{key}_wrong'] for row in mine])):.1f}"
                for key in _SOLVED
            )
            wrong = float(np.mean([row["n_wrong"] for row in mine]))
            notes.append(
                f"{config}: variant accuracy over models on average {', '.join(shown)}; of "
                f"{wrong:.1f} seeds answered wrong variants are right: {numbers}."
            )
    return notes


def plot_first_answers(table: Table) -> Figure:
    """Draw a panel per configuration, two bars per model."""
    series = {f"seed answered {which}": f"variant_accuracy_{which}" for which in ("right", "wrong")}
    return bar_panels(table, series, "variant accuracy, %")
