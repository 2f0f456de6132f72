"""Figures of the seeds with a phenomenon: a quantifier, a negation, an expression of time.

Do replacements preserve reasoning that depends on these words? Annotators' judgements say how many
variants of these seeds are good. A dataset of `--ablation union` is the control without a filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow.compute as pc

from merge_metric.agreement.shares import wilson
from merge_metric.analyses.measures import COUNT_COLUMNS, Row, titled
from merge_metric.analyses.registry import Request
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, sv_at
from merge_metric.seed_variant_accuracy.options import USUAL, Settings
from merge_metric.seed_variant_accuracy.scoring import summarise
from merge_metric.tables import (
    Table,
    columns,
    figure_column,
    figure_values,
    interval_columns,
    plots,
)

DOUBTFUL: Final = 4
"""Mean reasoning score (1–5) below which annotators find the label doubtful."""

TEXTS: Final = ("premise", "hypothesis")

PHENOMENA: Final = {
    "quantifier": r"\b(?:all|any|both|each|every|few|fewer|half|less|many|more|most|much|several"
    r"|some)\b",
    "negation": r"\b(?:no|not|cannot|never|nobody|none|nothing|nowhere|neither|nor|without)\b"
    r"|n['’]t\b",
    "time": r"\b(?:after|afternoon|ago|already|always|before|days?|during|early|evening|hours?"
    r"|late|later|minutes?|months?|morning|night|now|often|since|soon|still|then|today|tomorrow"
    r"|tonight|until|weeks?|when|while|years?|yesterday)\b",
}
"""Phenomenon → pattern (RE2, case-insensitive) that one of the seed's texts must match."""

NONE: Final = "none of these"


def phenomena(
    request: Request, *, annotations: Sequence[str] = (), settings: Settings = USUAL
) -> Table:
    """Make a row for the seeds with each phenomenon in a text, and a row for all other seeds."""
    names = ("seed_accuracy", "variant_accuracy", "relaxed_fooling_rate")
    figures = (*(CATALOGUE[name] for name in names), sv_at(settings.correctness_threshold))
    rows: list[Row] = []
    for variants in request.variants(of_seeds=TEXTS, annotations=annotations):
        table = variants.table
        text = pc.binary_join_element_wise(*(table[f"seed_{name}"] for name in TEXTS), "\n")
        masks = {
            name: pc.match_substring_regex(text, pattern, ignore_case=True).to_numpy()
            for name, pattern in PHENOMENA.items()
        }
        masks[NONE] = ~np.any([*masks.values()], axis=0)
        for name, mask in masks.items():
            part = table.filter(mask)
            seeds = set(part["seed_id"].to_pylist())
            row: Row = {"config": variants.config, "dataset": variants.dataset, "phenomenon": name}
            row |= {"n_seeds": len(seeds), "n_variants": len(part)}
            if variants.frame is not None:
                row["model"] = variants.frame.model
                counts = variants.frame.counts
                chosen = np.array([seed in seeds for seed in counts.seed_ids], np.bool_)
                if chosen.any():
                    row |= figure_values(summarise(counts.take(chosen), settings), figures)
            if "good" in part.column_names:
                good, reasoning = (part[key].drop_null() for key in ("good", "reasoning"))
                n_good, n_judged = pc.sum(good, min_count=0).as_py(), len(good)
                row |= {"n_judged": n_judged, "n_doubtful": 0}
                if n_judged:
                    row |= {"good": n_good / n_judged, "good_ci": wilson(n_good, n_judged)}
                    row["n_doubtful"] = pc.sum(pc.less(reasoning, DOUBTFUL)).as_py()
            rows.append(row)
    has_models, is_judged = (any(key in row for row in rows) for key in ("model", "n_judged"))
    shown = [*columns(config="source")]
    if len({row["dataset"] for row in rows}) > 1:
        shown += columns(dataset="data set")
    if has_models:
        shown += columns(model="model")
    shown += columns(phenomenon="seeds with")
    shown += COUNT_COLUMNS
    if has_models:
        shown += map(figure_column, figures)
    if is_judged:
        shown += columns("count", n_judged="judged")
        shown += interval_columns("share", good="good")
        shown += columns("count", n_doubtful=f"R < {DOUBTFUL}")
    return titled("phenomena", shown, rows, judged=is_judged, doubtful=DOUBTFUL)


def plot_phenomena(table: Table) -> plots.Figure:
    """Draw models' SV accuracy by group of seeds; without models, shares of good variants."""
    figure = next((column for column in table.columns if column.key.startswith("sv_at")), None)
    bars: dict[tuple[str, str], Row] = {}
    for row in table.rows:
        key = (row["config"], row.get("model") or row["dataset"])
        bar = bars.setdefault(key, {"config": key[0], "model": key[1]})
        bar[row["phenomenon"]] = row.get(figure.key if figure else "good")
    series = {name: name for name in plots.distinct(table.rows, "phenomenon")}
    label = f"{figure.heading}, %" if figure else "good variants, %"
    return plots.bar_panels(replace(table, rows=tuple(bars.values())), series, label)
