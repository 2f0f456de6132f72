"""Variants of seeds that were answered right and of those answered wrong (paper, section 5.4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from merge_metric.analyses.measures import measures
from merge_metric.runs.run import Run
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.tables import Column, Table
from merge_metric.tables.plots import bar_panels, distinct

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def first_answers(runs: Iterable[Run]) -> Table:
    """A row per model and configuration; None where no seed is right, or none wrong."""
    rows = [
        {"config": run.config, "model": run.model}
        | _of("right", run.counts.take(run.counts.right))
        | _of("wrong", run.counts.take(~run.counts.right))
        for run in runs
    ]
    return Table(
        name="first-answers",
        title="Variant accuracy for seeds that were themselves answered right or wrong",
        columns=(
            Column("config", "source"),
            Column("model", "model"),
            Column("n_right", "right", "count"),
            Column("variant_accuracy_right", "var.acc", "share"),
            Column("sv_at_50_right", "SV@50", "share"),
            Column("sv_at_100_right", "SV@100", "share"),
            Column("n_wrong", "wrong", "count"),
            Column("variant_accuracy_wrong", "var.acc", "share"),
            Column("sv_at_50_wrong", "SV@50", "share"),
            Column("sv_at_100_wrong", "SV@100", "share"),
        ),
        rows=tuple(rows),
        notes=(
            "Numbers of seeds; of their variants, in percent, averaged over subsamples.",
            *_averages(rows),
        ),
    )


def _of(which: str, counts: SeedCounts) -> dict[str, Any]:
    keys = ("variant_accuracy", "sv_at_50", "sv_at_100")
    found = measures(counts) if counts.seed_ids else dict.fromkeys(keys)
    return {f"n_{which}": len(counts.seed_ids)} | {f"{key}_{which}": found[key] for key in keys}


def _averages(rows: list[dict[str, Any]]) -> list[str]:
    """For sources with several models, the two accuracies averaged over them."""
    notes = []
    for config in distinct(rows, "config"):
        shown = []
        for which in ("right", "wrong"):
            values = [row[f"variant_accuracy_{which}"] for row in rows if row["config"] == config]
            known = [value for value in values if value is not None]
            if len(known) > 1:
                shown.append(f"{100 * float(np.mean(known)):.1f} where {which}")
        if shown:
            notes.append(f"{config}: variant accuracy over models on average {', '.join(shown)}.")
    return notes


def plot_first_answers(table: Table) -> Figure:
    """A panel per configuration, two bars per model."""
    series = {f"seed answered {which}": f"variant_accuracy_{which}" for which in ("right", "wrong")}
    return bar_panels(table, series, "variant accuracy, %")
