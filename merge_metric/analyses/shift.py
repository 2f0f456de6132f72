"""How far label probabilities move where the prediction changes (Arakelyan et al. 2024, 5.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from merge_metric.analyses.averages import MEAN, MODELS, ROUNDS, per_config, weighted_mean
from merge_metric.runs.run import Run
from merge_metric.seed_variant_accuracy.scoring import label_shift
from merge_metric.tables import Column, Table
from merge_metric.tables.plots import config_bars, legend_below, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUPS: Final = ("unchanged", "changed")
"""Variants of seeds answered right, by whether the prediction is that of the seed."""

COUNTS: Final = tuple(f"n_{group}" for group in GROUPS)

COUNT_COLUMNS: Final = tuple(Column(f"n_{group}", group, "count") for group in GROUPS)

_JSD: Final = tuple(f"jsd_{group}" for group in GROUPS)
_KS: Final = tuple(f"ks_{group}" for group in GROUPS)


def shift(runs: Iterable[Run]) -> Table:
    """A row per model and configuration, and averages (figure 3).

    Args:
        runs: Models on configurations; they keep `probabilities` and `seed_probabilities`.

    Raises:
        ValueError: predictions without probabilities.
    """
    rows = [shift_row(run) for run in runs]
    averages = [row for row in per_config(rows, (*_JSD, *_KS), COUNTS) if row["averaged"]]
    return Table(
        name="shift",
        title="Label probabilities of variants beside those of their seeds",
        columns=(
            Column("config", "source"),
            Column("model", "model"),
            *COUNT_COLUMNS,
            Column("jsd_unchanged", "JSD unch.", "fraction"),
            Column("jsd_changed", "JSD ch.", "fraction"),
            Column("ks_unchanged", "KS unch.", "fraction"),
            Column("ks_unchanged_p_value", "p", "p_value"),
            Column("ks_changed", "KS ch.", "fraction"),
            Column("ks_changed_p_value", "p", "p_value"),
        ),
        rows=(*rows, *averages),
        notes=(
            "Of the variants of seeds answered right, by whether the prediction changed. JSD: "
            "Jensen–Shannon divergence in bits, averaged over variants; KS: Kolmogorov–Smirnov "
            "statistic of the probabilities of the label predicted for the seed. p takes variants "
            "for independent, which those of one seed are not.",
            *average_notes(averages),
            *_difference_note(rows),
        ),
    )


def shift_row(run: Run) -> dict[str, Any]:
    """Divergences and σ of a run, and of how many variants they are.

    Raises:
        ValueError: it has no probabilities.
    """
    if "probabilities" not in run.kept:
        raise ValueError(
            f"{run.model}, {run.config}: expected label probabilities, in a column called "
            f"probabilities, got predictions without; `merge-nli predict` writes them"
        )
    rows = run.rows
    drawn = np.unique(rows.draw_row)
    own, gold = rows.own[rows.seed[drawn]], rows.gold[rows.seed[drawn]]
    changed = (rows.prediction[drawn] != own)[own == gold]
    return {
        "config": run.config,
        "model": run.model,
        "averaged": None,
        "n_unchanged": int((~changed).sum()),
        "n_changed": int(changed.sum()),
    } | label_shift(rows, run.kept["probabilities"], run.kept["seed_probabilities"])


def average_notes(averages: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the averages among the rows are of."""
    notes = []
    if any(row["averaged"] == MODELS or row["model"] == MEAN for row in averages):
        notes.append("(mean): over models, which weigh the same.")
    if any(row["averaged"] == ROUNDS for row in averages):
        notes.append("anli: over its rounds, which weigh the same.")
    return notes


def signed(difference: float) -> str:
    """A difference of fractions, with a minus as in tables.

    >>> signed(-0.1), signed(0.25)
    ('−0.100', '+0.250')
    """
    return f"{difference:+.3f}".replace("-", "−")


def _difference_note(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """By how much the divergences are larger where the prediction changed."""
    means = per_config(rows, (*_JSD, *_KS))
    found = []
    for name, (unchanged, changed) in (("JSD", _JSD), ("KS", _KS)):
        values = [weighted_mean([row[key] for row in means]) for key in (changed, unchanged)]
        if values[0] is not None and values[1] is not None:
            found.append(f"{name} {signed(values[0] - values[1])}")
    return [f"Changed less unchanged, averaged over sources: {', '.join(found)}."] if found else []


def plot_shift(table: Table) -> Figure:
    """JSD and KS side by side: two bars per configuration, averaged over models."""
    rows = per_config(table.rows, (*_JSD, *_KS))
    figure, (row_of_axes,) = panels(1, 2)
    titles = ("Jensen–Shannon divergence, bits", "Kolmogorov–Smirnov statistic")
    for axes, title, keys in zip(row_of_axes, titles, (_JSD, _KS), strict=True):
        names = (f"prediction {group}" for group in GROUPS)
        config_bars(axes, rows, dict(zip(names, keys, strict=True)))
        axes.set_title(title, fontsize="medium")
        axes.set_ylim(0, 1)
    legend_below(figure, row_of_axes)
    return figure
