"""Label probabilities: how far they move where the prediction changes, and how sure models are.

Arakelyan, Liu and Augenstein (2024), section 5.2 and figures 3 and 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from merge_metric.analyses.measures import (
    MEAN,
    MODELS,
    ROUNDS,
    RUN_COLUMNS,
    Row,
    per_config,
    weighted_mean,
)
from merge_metric.runs.run import Run, common_labels
from merge_metric.seed_variant_accuracy.divergence import sigma
from merge_metric.seed_variant_accuracy.formatting import show_value
from merge_metric.seed_variant_accuracy.scoring import shift_figures
from merge_metric.tables import Column, Table
from merge_metric.tables.plots import (
    COLUMN,
    GREY,
    PAGE,
    config_bars,
    legend_below,
    panels,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GROUPS: Final = ("unchanged", "changed")
"""Variants of seeds answered right, by whether the prediction is that of the seed."""

_COUNTS: Final = tuple(f"n_{group}" for group in _GROUPS)

_COUNT_COLUMNS: Final = tuple(Column(f"n_{group}", group, "count") for group in _GROUPS)

_JSD: Final = tuple(f"jsd_{group}" for group in _GROUPS)
_KS: Final = tuple(f"ks_{group}" for group in _GROUPS)


def shift(runs: Iterable[Run]) -> Table:
    """Make a row per model and configuration, and averages (figure 3).

    Raises:
        ValueError: predictions without probabilities.
    """
    rows = [_shift_row(run) for run in runs]
    averages = [row for row in per_config(rows, (*_JSD, *_KS), _COUNTS) if row["averaged"]]
    means, larger = per_config(rows, (*_JSD, *_KS)), []
    for name, (unchanged, changed) in (("JSD", _JSD), ("KS", _KS)):
        high, low = (weighted_mean([row[key] for row in means]) for key in (changed, unchanged))
        if high is not None and low is not None:
            larger.append(f"{name} {show_value(high - low, 'change')}")
    return Table(
        name="shift",
        title="Label probabilities of variants beside those of their seeds",
        columns=(
            *RUN_COLUMNS,
            *_COUNT_COLUMNS,
            Column("jsd_unchanged", "JSD unch.", "fraction"),
            Column("jsd_changed", "JSD ch.", "fraction"),
            Column("ks_unchanged", "KS unch.", "fraction"),
            Column("ks_changed", "KS ch.", "fraction"),
        ),
        rows=(*rows, *averages),
        notes=(
            "Of the variants of seeds answered right, by whether the prediction changed. JSD: "
            "Jensen–Shannon divergence in bits; KS: Kolmogorov–Smirnov distance, the largest "
            "difference of the cumulative distributions over the labels. Both of a variant and "
            "its seed, averaged over variants.",
            *_average_notes(averages),
            *(
                [f"Changed minus unchanged, averaged over sources: {', '.join(larger)}."]
                if larger
                else []
            ),
        ),
    )


def _shift_row(run: Run) -> Row:
    """Compute divergences and σ of a run, and count the variants that they are of.

    Raises:
        ValueError: it has no probabilities.
    """
    if run.shift is None:
        raise ValueError(
            f"{run.model}, {run.config}: expected label probabilities, in a column called "
            f"probabilities, got predictions without; `merge-nli predict` writes them"
        )
    return {
        "config": run.config,
        "model": run.model,
        "averaged": None,
        **{f"n_{group}": run.shift[f"jsd_{group}"][1] for group in _GROUPS},
        **shift_figures(run.shift),
    }


def _average_notes(averages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say what the averages among the rows are of."""
    notes = []
    if any(row["averaged"] == MODELS or row["model"] == MEAN for row in averages):
        notes.append("(mean): over models, which weigh the same.")
    if any(row["averaged"] == ROUNDS for row in averages):
        notes.append("anli: over its rounds, which weigh the same.")
    return notes


def plot_shift(table: Table) -> Figure:
    """Draw JSD and KS side by side: two bars per configuration, averaged over models."""
    rows = per_config(table.rows, (*_JSD, *_KS))
    figure, (row_of_axes,) = panels(1, 2)
    titles = ("Jensen–Shannon divergence, bits", "Kolmogorov–Smirnov distance")
    for axes, title, keys in zip(row_of_axes, titles, (_JSD, _KS), strict=True):
        names = (f"prediction {group}" for group in _GROUPS)
        config_bars(axes, rows, dict(zip(names, keys, strict=True)))
        axes.set_title(title, fontsize="medium")
        axes.set_ylim(0, 1)
    legend_below(figure, row_of_axes)
    return figure


# --- How sure models are ---

_SIGMAS: Final = ("sigma_seeds", "sigma_unchanged", "sigma_changed")
_NAMES: Final = ("seeds", "variants, prediction unchanged", "variants, prediction changed")


def confidence(runs: Iterable[Run]) -> Table:
    """Make a row per model and configuration, and averages (figure 4).

    Raises:
        ValueError: predictions without probabilities.
    """
    runs = list(runs)
    one_label = np.eye(len(common_labels(runs)))  # which has all of the probability
    highest = float(sigma(one_label)[0])
    rows = [
        {key: value for key, value in _shift_row(run).items() if not key.startswith(("jsd", "ks"))}
        | {"highest": highest}
        for run in runs
    ]
    averages = [row for row in per_config(rows, _SIGMAS, _COUNTS) if row["averaged"]]
    means = per_config(rows, _SIGMAS)
    changed, seeds = (
        weighted_mean([row[key] for row in means]) for key in ("sigma_changed", "sigma_seeds")
    )
    less = []
    if changed is not None and seeds is not None:
        difference = show_value(changed - seeds, "change")
        less.append(f"Changed minus seeds, averaged over sources: {difference}.")
    return Table(
        name="confidence",
        title="Standard deviation σ of label probabilities: how sure models are",
        columns=(
            *RUN_COLUMNS,
            *_COUNT_COLUMNS,
            Column("sigma_seeds", "σ seeds", "fraction"),
            Column("sigma_unchanged", "σ unch.", "fraction"),
            Column("sigma_changed", "σ ch.", "fraction"),
        ),
        rows=(*rows, *averages),
        notes=(
            f"Of the seeds answered right, and of their variants by whether the prediction "
            f"changed. The higher, the surer; at most {show_value(highest, 'fraction')}.",
            *_average_notes(averages),
            *less,
        ),
    )


def plot_confidence(table: Table) -> Figure:
    """Draw three bars per configuration, averaged over models, below the highest σ there can be."""
    rows = per_config(table.rows, _SIGMAS)
    figure, ((axes,),) = panels(1, 1)
    config_bars(axes, rows, dict(zip(_NAMES, _SIGMAS, strict=True)))
    figure.set_size_inches(min(PAGE, max(COLUMN, 0.9 + 0.6 * len(rows))), figure.get_figheight())
    axes.set_ylabel("σ of label probabilities")
    highest = table.rows[0]["highest"]
    axes.axhline(highest, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_ylim(0, max(0.5, 1.05 * highest))
    legend_below(figure, [axes])
    return figure
