"""How sure models are of seeds, and of variants that do and do not change the prediction.

Arakelyan, Liu and Augenstein (2024), section 5.2 and figure 4: the standard deviation σ of the
label probabilities.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from merge_metric.analyses.averages import per_config, weighted_mean
from merge_metric.analyses.shift import COUNT_COLUMNS, COUNTS, average_notes, shift_row, signed
from merge_metric.runs.run import Run, common_labels
from merge_metric.seed_variant_accuracy.divergence import sigma
from merge_metric.tables import Column, Table
from merge_metric.tables.plots import GREY, config_bars, legend_below, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIGMAS: Final = ("sigma_seeds", "sigma_unchanged", "sigma_changed")
_NAMES: Final = ("seeds", "variants, prediction unchanged", "variants, prediction changed")


def confidence(runs: Iterable[Run]) -> Table:
    """A row per model and configuration, and averages.

    Args:
        runs: Models on configurations; they keep `probabilities` and `seed_probabilities`.

    Raises:
        ValueError: predictions without probabilities.
    """
    runs = list(runs)
    highest = _highest(len(common_labels(runs)))
    rows = [
        {key: value for key, value in shift_row(run).items() if not key.startswith(("jsd", "ks"))}
        | {"highest": highest}
        for run in runs
    ]
    averages = [row for row in per_config(rows, _SIGMAS, COUNTS) if row["averaged"]]
    means = per_config(rows, _SIGMAS)
    changed, seeds = (
        weighted_mean([row[key] for row in means]) for key in ("sigma_changed", "sigma_seeds")
    )
    less = [] if changed is None or seeds is None else [
        f"Changed less seeds, averaged over sources: {signed(changed - seeds)}."]  # fmt: skip
    return Table(
        name="confidence",
        title="Standard deviation σ of label probabilities: how sure models are",
        columns=(
            Column("config", "source"),
            Column("model", "model"),
            *COUNT_COLUMNS,
            Column("sigma_seeds", "σ seeds", "fraction"),
            Column("sigma_unchanged", "σ unch.", "fraction"),
            Column("sigma_changed", "σ ch.", "fraction"),
        ),
        rows=(*rows, *averages),
        notes=(
            f"Of the seeds answered right, and of their variants by whether the prediction "
            f"changed. The higher, the surer; at most {highest:.3f}.",
            *average_notes(averages),
            *less,
        ),
    )


def _highest(labels: int) -> float:
    """σ where one of so many labels has all."""
    return float(sigma(np.eye(labels))[0])


def plot_confidence(table: Table) -> Figure:
    """Three bars per configuration, averaged over models, below the highest σ there can be."""
    rows = per_config(table.rows, _SIGMAS)
    figure, ((axes,),) = panels(1, 1)
    config_bars(axes, rows, dict(zip(_NAMES, _SIGMAS, strict=True)))
    figure.set_size_inches(
        max(figure.get_figwidth(), 1.2 + 0.75 * len(rows)), figure.get_figheight()
    )
    axes.set_ylabel("σ of label probabilities")
    highest = table.rows[0]["highest"]
    axes.axhline(highest, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_ylim(0, max(0.5, 1.05 * highest))
    legend_below(figure, [axes])
    return figure
