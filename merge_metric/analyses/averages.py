"""Averages of an analysis' rows: over models, over the rounds of ANLI, over configurations.

An average is a row like those that it is of, with its kind in `averaged`; of theirs that is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from merge_dataset.schema import ANLI_SOURCES, parse_config_name
from merge_metric.tables.plots import distinct

Row = dict[str, Any]

MEAN: Final = "(mean)"
"""What averages over models have for a model."""

MODELS: Final = "models"
ROUNDS: Final = "rounds"
CONFIGS: Final = "configurations"
"""Values of `averaged`: what a row is an average over."""

_ANLI: Final = "anli"


def weighted_mean(
    values: Sequence[float | None], weights: Sequence[float] | None = None
) -> float | None:
    """The mean of the values that are known; None where their weights sum to 0.

    >>> weighted_mean([0.5, None, 0.25], [100, 50, 300])
    0.3125
    """
    given = [1.0] * len(values) if weights is None else weights
    known = [(x, w) for x, w in zip(values, given, strict=True) if x is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def over_models(
    rows: Iterable[Mapping[str, Any]], means: Sequence[str], sums: Sequence[str] = ()
) -> list[Row]:
    """A row per configuration that several models have; models weigh the same.

    Args:
        rows: Of models on configurations.
        means: Keys that are averaged; models without a value do not count.
        sums: Keys that are summed up.
    """
    return [
        {"config": config, "model": MEAN, "averaged": MODELS} | _merged(group, means, sums)
        for config, group in _by_config(rows).items()
        if len(group) > 1
    ]


def per_config(
    rows: Iterable[Mapping[str, Any]],
    means: Sequence[str],
    sums: Sequence[str] = (),
    *,
    merge_rounds: bool = True,
) -> list[Row]:
    """A row per configuration: the average over models, or the only model's values.

    Args:
        rows: Of models on configurations, and any averages, which do not count.
        means: Keys that are averaged.
        sums: Keys that are summed up.
        merge_rounds: Have one row for the rounds of ANLI, where there are several: the
            average over rounds of the averages over models.
    """
    found: dict[str, list[Row]] = {}
    for config, group in _by_config(rows).items():
        several = len(group) > 1
        row = {
            "config": config,
            "model": MEAN if several else group[0]["model"],
            "averaged": MODELS if several else None,
        } | _merged(group, means, sums)
        found.setdefault(_without_round(config) if merge_rounds else config, []).append(row)
    return [
        group[0]
        if len(group) == 1
        else {"config": config, "model": _model(group), "averaged": ROUNDS}
        | _merged(group, means, sums)
        for config, group in found.items()
    ]


def over_configs(rows: Iterable[Mapping[str, Any]], weights: Mapping[str, str]) -> list[Row]:
    """A row per model (or `MEAN`) that has several configurations of a class of variants.

    Args:
        rows: Of models on configurations, and their averages over models.
        weights: Key that is averaged → key of what it is weighted by, which is summed up.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["config"].partition("_")[2], row["model"]), []).append(row)
    found = []
    for (suffix, model), group in groups.items():
        if len(group) < 2:
            continue
        row = {"config": f"({f'all {suffix}'.strip()})", "model": model, "averaged": CONFIGS}
        for key, weight in weights.items():
            row[key] = weighted_mean([r[key] for r in group], [r[weight] for r in group])
        found.append(row | {key: sum(r[key] for r in group) for key in weights.values()})
    return found


def of_models(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows that are no averages."""
    return [row for row in rows if row["averaged"] is None]


def _by_config(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    own = of_models(rows)
    return {
        config: [row for row in own if row["config"] == config]
        for config in distinct(own, "config")
    }


def _merged(
    rows: Sequence[Mapping[str, Any]], means: Sequence[str], sums: Sequence[str]
) -> dict[str, Any]:
    averages = {key: weighted_mean([row[key] for row in rows]) for key in means}
    return {key: sum(row[key] for row in rows) for key in sums} | averages


def _model(rows: Sequence[Mapping[str, Any]]) -> str:
    models = distinct(rows, "model")
    return str(models[0]) if len(models) == 1 else MEAN


def _without_round(config: str) -> str:
    """`anli_paraphrases` for `anli-r1_paraphrases`; others as they are."""
    source, _ = parse_config_name(config)
    return _ANLI + config.removeprefix(source) if source in ANLI_SOURCES else config
