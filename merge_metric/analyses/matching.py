"""The matching correctness threshold of models on sources (paper, figures 5 and 17)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from merge_metric.analyses.measures import measures
from merge_metric.runs.run import Run
from merge_metric.tables import Column, Table
from merge_metric.tables.plots import heat_map

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def matching(runs: Iterable[Run]) -> Table:
    """A row per model, a column per configuration.

    The value is the lowest threshold at which SV comes closest to S, per subsample, then
    averaged; the JSON has the highest too, under `<configuration>_high`.
    """
    rows: dict[str, dict[str, Any]] = {}
    configs: dict[str, None] = {}
    for run in runs:
        configs[run.config] = None
        found = measures(run.counts)
        rows.setdefault(run.model, {"model": run.model}).update(
            {
                run.config: found["matching_threshold_low"],
                f"{run.config}_high": found["matching_threshold_high"],
            }
        )
    empty = {key: None for config in configs for key in (config, f"{config}_high")}
    return Table(
        name="matching",
        title="Matching correctness threshold (MC): the CT at which SV accuracy matches S",
        columns=(
            Column("model", "model"),
            *(Column(config, config, "threshold") for config in configs),
        ),
        rows=tuple(empty | row for row in rows.values()),
        notes=(
            "In percent; 100 would be perfect generalisation. Averaged over subsamples; "
            "where several thresholds match equally, the lowest.",
        ),
    )


def plot_matching(table: Table) -> Figure:
    """A heat map, numbers in its cells."""
    from matplotlib.figure import Figure

    configs = [column.key for column in table.columns if column.kind == "threshold"]
    values = [[row[config] for config in configs] for row in table.rows]
    low, high = _limits([value for row in values for value in row if value is not None])
    longest = max(len(str(row["model"])) for row in table.rows)
    size = (1.2 + 0.085 * longest + 0.95 * len(configs), 1.3 + 0.32 * len(values))
    figure = Figure(figsize=size, layout="constrained", dpi=150)
    axes = figure.subplots()
    image = heat_map(axes, values, (low, high), "{:.0f}")
    axes.set_xticks(range(len(configs)), configs, rotation=30, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(values)), [row["model"] for row in table.rows])
    figure.colorbar(image, ax=axes, label="MC, %", shrink=min(1.0, 3 / len(values) + 0.4))
    return figure


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """Multiples of ten around the values, so that differences show.

    >>> _limits([46.0, 62.1]), _limits([])
    ((40.0, 70.0), (0.0, 100.0))
    """
    if not values:
        return 0.0, 100.0
    low, high = 10.0 * (min(values) // 10), 10.0 * (max(values) // 10 + 1)
    return low, min(100.0, high)
