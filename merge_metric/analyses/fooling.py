"""How many seeds answered right have a variant that fools the model (tables 2 and 3).

The fooling rates of Arakelyan, Liu and Augenstein (2024), section 3.2: relaxed, r_r, where the
prediction changes at all, strict, r_s, where it changes to the opposite label. They are of
paraphrases there, and as well defined for replacements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from merge_metric.analyses.averages import of_models, over_configs, over_models
from merge_metric.analyses.measures import FOOLING, fooling
from merge_metric.runs.run import Run, common_labels
from merge_metric.seed_variant_accuracy.options import OPPOSITES
from merge_metric.tables import Column, Table, initials
from merge_metric.tables.plots import (
    distinct,
    legend_below,
    model_axes,
    model_panels,
    percent_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STRICT, RELAXED = FOOLING

_COLOURS: Final = {RELAXED: "#56B4E9", STRICT: "#0072B2"}


def fooling_rates(runs: Iterable[Run], *, n_bootstrap: int = 1000, rng_seed: int = 0) -> Table:
    """A row per model and configuration, and averages.

    Averages over models weigh them alike (as in table 3); averages over configurations of a
    class of variants weigh them by their seeds answered right.

    Args:
        runs: Models on configurations.
        n_bootstrap: Replicates for 95 % intervals; 0 for none.
        rng_seed: Of the bootstrap.
    """
    runs = list(runs)
    labels = common_labels(runs)
    rows = [_row(run, n_bootstrap, rng_seed) for run in runs]
    weights = {f"{key}{part}": f"n_right{part}" for part in _parts(labels) for key in FOOLING}
    of_configs = over_models(rows, list(weights), list(dict.fromkeys(weights.values())))
    of_all = over_configs([*rows, *of_configs], weights)
    without = [label for label in labels if not any(label in pair for pair in OPPOSITES)]
    notes = ["r_s, r_r: the share of seeds answered right (right: how many) of which at least one "
             "variant changes the prediction to the opposite label (r_s), to any other (r_r), in "
             f"percent; {', '.join(without)} {'has' if len(without) == 1 else 'have'} no opposite, "
             "so any change counts as strict."]  # fmt: skip
    if of_configs:
        notes.append("(mean): over models, which weigh the same; their seeds are added up.")
    if of_all:
        notes.append("(all): over the sources, weighted by the seeds answered right.")
    return Table(
        name="fooling",
        title="Fooling rates: seeds answered right with a variant that changes the prediction",
        columns=(
            Column("config", "source"),
            Column("model", "model"),
            Column("n_right", "right", "count"),
            *(Column(key, _heading(key), "share", interval=f"{key}_ci") for key in FOOLING),
            *(
                Column(f"{key}_{label}", f"{_heading(key)} {letter}", "share")
                for label, letter in zip(labels, initials(labels), strict=True)
                for key in FOOLING
            ),
        ),
        rows=(*rows, *of_configs, *of_all),
        notes=tuple(notes),
    )


def _row(run: Run, n_bootstrap: int, rng_seed: int) -> dict[str, Any]:
    counts = run.counts
    row: dict[str, Any] = {"config": run.config, "model": run.model, "averaged": None}
    by_label = (counts.take(counts.gold == code) for code in range(len(counts.labels)))
    for part, each in zip(_parts(counts.labels), (counts, *by_label), strict=True):
        found = fooling(each, n_bootstrap=n_bootstrap, rng_seed=rng_seed)
        row |= {_key(key, part): value for key, value in found.items()}
    return row


def _parts(labels: Sequence[str]) -> tuple[str, ...]:
    """What the keys of all seeds, and of those of a gold label, end in."""
    return "", *(f"_{label}" for label in labels)


def _key(key: str, part: str) -> str:
    """The key of a part's figure; intervals still end in `_ci`."""
    stem = key.removesuffix("_ci")
    return f"{stem}{part}{key.removeprefix(stem)}"


def _heading(key: str) -> str:
    return {STRICT: "r_s", RELAXED: "r_r"}[key]


def plot_fooling(table: Table) -> Figure:
    """A panel per configuration, a bar per model: what is strict, within what is relaxed."""
    rows = of_models(table.rows)
    configs, models = distinct(rows, "config"), distinct(rows, "model")
    figure, panels = model_panels(configs, models, 1)
    top = max((_top(row) for row in rows), default=0.0)
    for axes, config in zip(panels, configs, strict=True):
        by_model = {row["model"]: row for row in rows if row["config"] == config}
        for key, label, shift in (
            (RELAXED, "changed (r_r)", 0.12),
            (STRICT, "to the opposite (r_s)", -0.12),
        ):
            _draw(axes, [by_model.get(model) for model in models], key, label, shift)
        model_axes(axes, config, models, "fooled seeds, %")
        percent_axis(axes, top)
    legend_below(figure, panels)
    return figure


def _top(row: Mapping[str, Any]) -> float:
    """The highest that is drawn of a row."""
    interval = row[f"{RELAXED}_ci"]
    return max(row[RELAXED] or 0.0, interval[1] if interval else 0.0)


def _draw(
    axes: Axes, rows: Sequence[Mapping[str, Any] | None], key: str, label: str, shift: float
) -> None:
    """One rate of all models, with its intervals beside the other rate's."""
    values = [np.nan if row is None or row[key] is None else row[key] for row in rows]
    axes.bar(
        range(len(rows)),
        values,
        width=0.6,
        label=label,
        color=_COLOURS[key],
        hatch="////" if key == STRICT else "",
        edgecolor="white",
        linewidth=0.5,
    )
    known = [n for n, row in enumerate(rows) if row is not None and row[f"{key}_ci"]]
    bounds = np.array([rows[n][f"{key}_ci"] for n in known]).reshape(-1, 2)  # type: ignore[index]
    axes.vlines(
        [n + shift for n in known], bounds[:, 0], bounds[:, 1], color="black", linewidth=1.0
    )
