"""Accuracy on all test problems, on seeds and on variants (paper, figures 3 and 16)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.schema import parse_config_name
from merge_metric.analyses.measures import measures
from merge_metric.runs.join import preview
from merge_metric.runs.run import Run
from merge_metric.tables import Column, Table
from merge_metric.tables.plots import bar_panels, distinct

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

Right = Mapping[str, bool]
"""Id of a test problem → whether a model answers it right."""


def answered_right(predictions: pa.Table) -> dict[str, bool]:
    """The test problems of a predictions table: its rows that are no variants."""
    problems = predictions.filter(pc.equal(predictions["variant_id"], predictions["seed_id"]))
    right = pc.equal(problems["label"], problems["prediction"])
    return dict(zip(problems["variant_id"].to_pylist(), right.to_pylist(), strict=True))


def accuracy(
    runs: Iterable[Run],
    tests: Mapping[str, Right] | None = None,
    *,
    n_subsamples: int = 100,
    rng_seed: int = 0,
) -> Table:
    """A row per model and configuration.

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
        row = {"config": run.config, "model": run.model} | measures(run.counts)
        del row["curve"]
        row |= {"n_test": None, "test_accuracy": None, "higher_share": None}
        if tests and run.model in tests:
            row |= _beside_test(run, tests[run.model], n_subsamples, rng_seed)
        rows.append(row)
    return Table(
        name="accuracy",
        title="Accuracy (S) on all test problems, on the seeds among them, and on variants",
        columns=(
            Column("config", "source"),
            Column("model", "model"),
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
            *_averages(rows),
        ),
    )


def _beside_test(run: Run, test: Right, n_subsamples: int, rng_seed: int) -> dict[str, Any]:
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
    """(n_subsamples,) how many of `size` problems, drawn without replacement, are right."""
    rng = np.random.default_rng(rng_seed)
    draws = (rng.choice(len(right), size, replace=False) for _ in range(n_subsamples))
    return np.array([int(right[draw].sum()) for draw in draws], np.int64)


def _averages(rows: list[dict[str, Any]]) -> list[str]:
    """For sources with several models, the average share of higher test subsamples."""
    notes = []
    for config in distinct(rows, "config"):
        shares = [row["higher_share"] for row in rows if row["config"] == config]
        known = [share for share in shares if share is not None]
        if len(known) > 1:
            notes.append(f"{config}: higher in {100 * float(np.mean(known)):.1f} on average.")
    return notes


def plot_accuracy(table: Table) -> Figure:
    """A panel per configuration: bars for test problems, where known, seeds and variants."""
    series = {
        "test problems": "test_accuracy",
        "seeds": "seed_accuracy",
        "variants": "variant_accuracy",
    }
    if all(row["test_accuracy"] is None for row in table.rows):
        del series["test problems"]
    return bar_panels(table, series, "accuracy, %")
