"""Figures of parts of a configuration: of variants by label flag, of seeds by phenomenon.

Label flags are `dataset_columns.LABEL_FLAGS`: the label of such variants may not hold. They are for
people and for reporting on the rest; a benchmark without what models find doubtful would favour
models like these.

Phenomena are a quantifier, a negation, an expression of time. Where reasoning hangs on such words,
do replacements leave it alone? Annotators' judgements say how many variants are good there, and
models how they do. Another dataset, of `--ablation union`, is the control that lacks a filter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.dataset_columns import LABEL_FLAGS
from merge_dataset.layout import format_in
from merge_metric.agreement.shares import wilson
from merge_metric.analyses.measures import Row
from merge_metric.analyses.variant_rows import VariantRows
from merge_metric.runs.counting import FLAGS, NO_FLAG, flags_in
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, Figure, sv_at
from merge_metric.seed_variant_accuracy.options import USUAL, Settings
from merge_metric.seed_variant_accuracy.scoring import summarise
from merge_metric.tables import Column, Table, figure_column, figure_values
from merge_metric.tables.plots import bar_panels, distinct

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

DOUBTFUL: Final = 4
"""Mean reasoning below which annotators find the label doubtful."""

_N_JUDGED: Final = Column("n_judged", "judged", "count")
_N_DOUBTFUL: Final = Column("n_doubtful", f"R < {DOUBTFUL}", "count")


def _columns(
    rows: Sequence[Row],
    counts: Sequence[Column],
    figures: Sequence[Figure],
    judged: Sequence[Column],
) -> tuple[Column, ...]:
    """Make the columns of parts; those of data sets, models and judgements where there are some."""
    has_models, is_judged = (any(key in row for row in rows) for key in ("model", "n_judged"))
    return (
        Column("config", "source"),
        *([Column("dataset", "data set")] if len({row.get("dataset") for row in rows}) > 1 else []),
        *([Column("model", "model")] if has_models else []),
        *counts,
        *(map(figure_column, figures) if has_models else ()),
        *(judged if is_judged else ()),
    )


def _draw(table: Table, part: str, value: str, label: str) -> Drawing:
    """Draw a bar per part, a group of bars per model."""
    bars: dict[tuple[str, str], Row] = {}
    for row in table.rows:
        key = (row["config"], row.get("model") or row["dataset"])
        bars.setdefault(key, {"config": key[0], "model": key[1]})[row[part]] = row.get(value)
    series = {name: name for name in distinct(table.rows, part)}
    return bar_panels(replace(table, rows=tuple(bars.values())), series, label)


def _sv_column(table: Table) -> Column | None:
    return next((column for column in table.columns if column.key.startswith("sv_at")), None)


# --- Variants by label flag ---

ALL: Final = "all"


def require_flags(folder: Path, config: str) -> tuple[str, ...]:
    """List the label flags of a configuration; raise ValueError where it has none."""
    if not (flags := flags_in(format_in(folder, config))):
        raise ValueError(
            f"{folder}: expected label flags in {config}, got none of the columns "
            f"{', '.join(LABEL_FLAGS)}; build it with merge-nli build --label-flags"
        )
    return flags


def flag_masks(table: pa.Table) -> dict[str, NDArray[np.bool_]]:
    """Mask all variants, those without a flag, and those with each; unknown flags nothing."""
    of_all = np.ones(len(table), np.bool_)
    flags = {
        name: pc.fill_null(table[name], False).to_numpy()
        for name in LABEL_FLAGS
        if name in table.column_names
    }
    flagged = np.any([*flags.values()], axis=0)
    return {ALL: of_all, NO_FLAG: ~flagged} | {n: flags.get(n, ~of_all) for n in LABEL_FLAGS}


def labels(found: Iterable[VariantRows], settings: Settings = USUAL) -> Table:
    """Make rows of all variants, of those without a flag, and of those with each flag."""
    figures = (CATALOGUE["variant_accuracy"], sv_at(settings.correctness_threshold))
    rows: list[Row] = []
    for each in found:
        table = each.table
        for name, mask in flag_masks(table).items():
            part = table.filter(mask)
            row: Row = {
                "config": each.config,
                "part": name,
                "n_variants": len(part),
                "share": float(mask.mean()),
                "n_seeds": len(part["seed_id"].unique()),
            }
            if each.run is not None and len(part):
                counts = each.run.counts if name == ALL else each.run.groups[FLAGS][name]
                result = summarise(counts, settings)
                row |= {"model": each.run.model, **figure_values(result, figures)}
            if "reasoning" in part.column_names:
                reasoning = part["reasoning"].drop_null()
                row["n_judged"] = len(reasoning)
                row["n_doubtful"] = pc.sum(pc.less(reasoning, DOUBTFUL), min_count=0).as_py()
            rows.append(row)
    counts_of_part = (
        Column("part", "flag"),
        Column("n_variants", "variants", "count"),
        Column("share", "share", "share"),
        Column("n_seeds", "seeds", "count"),
    )
    judged = f" R < {DOUBTFUL}: variants whose mean reasoning, over annotators, is lower."
    return Table(
        name="labels",
        title="Variants whose label may not hold",
        columns=_columns(rows, counts_of_part, figures, (_N_JUDGED, _N_DOUBTFUL)),
        rows=tuple(rows),
        notes=(
            "Each distinct variant once; one may have several flags. Variants without a flag have "
            "other seeds than all: most entailments may be missing, as beyond_premise flags whole "
            "seeds. Most flagged labels hold; leave nothing out of a benchmark for its flags."
            + judged
            * any("n_judged" in row for row in rows),
        ),
    )


def plot_labels(table: Table) -> Drawing:
    """Draw SV accuracy of all variants and of those without a flag; without models, shares."""
    figure = _sv_column(table)
    if figure is None:
        shares = [{**row, "model": row["part"]} for row in table.rows if row["part"] != ALL]
        return bar_panels(replace(table, rows=tuple(shares)), {"variants": "share"}, "share, %")
    shown = tuple(r for r in table.rows if r["part"] in (ALL, NO_FLAG) and r["n_variants"])
    return _draw(replace(table, rows=shown), "part", figure.key, f"{figure.heading}, %")


# --- Seeds by phenomenon ---

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
"""Phenomenon → pattern (RE2, case does not matter) that one of the seed's texts has."""

NONE: Final = "none of these"


def phenomena(found: Iterable[VariantRows], settings: Settings = USUAL) -> Table:
    """Make rows of the seeds with each phenomenon, of which one may have several, and of the rest.

    Args:
        found: Variants with `seed_premise` and `seed_hypothesis`.
        settings: CT, and bootstrap of intervals.
    """
    names = ("seed_accuracy", "variant_accuracy", "relaxed_fooling_rate")
    figures = (*(CATALOGUE[name] for name in names), sv_at(settings.correctness_threshold))
    rows: list[Row] = []
    for each in found:
        table = each.table
        text = pc.binary_join_element_wise(*(table[f"seed_{name}"] for name in TEXTS), "\n")
        masks = {
            name: pc.match_substring_regex(text, pattern, ignore_case=True).to_numpy()
            for name, pattern in PHENOMENA.items()
        }
        masks[NONE] = ~np.any([*masks.values()], axis=0)
        for name, mask in masks.items():
            part = table.filter(mask)
            seeds = set(part["seed_id"].to_pylist())
            row: Row = {"config": each.config, "dataset": each.dataset, "phenomenon": name}
            row |= {"n_seeds": len(seeds), "n_variants": len(part)}
            if each.run is not None:
                row["model"] = each.run.model
                counts = each.run.counts
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
    counts_of_part = (
        Column("phenomenon", "seeds with"),
        Column("n_seeds", "seeds", "count"),
        Column("n_variants", "variants", "count"),
    )
    judged = (
        " Good: of the judged ones, with Wilson's 95 % interval, which takes these for "
        f"independent. R < {DOUBTFUL}: mean reasoning, over annotators, is lower."
    )
    good = Column("good", "good", "share", "good_ci")
    return Table(
        name="phenomena",
        title="Seeds with a quantifier, a negation or an expression of time",
        columns=_columns(rows, counts_of_part, figures, (_N_JUDGED, good, _N_DOUBTFUL)),
        rows=tuple(rows),
        notes=(
            "By words in the seed's texts, whether or not they are replaced, and whether or not "
            "the label hangs on them; a seed may have several phenomena. Variants: each distinct "
            "one once." + judged * any("n_judged" in row for row in rows),
        ),
    )


def plot_phenomena(table: Table) -> Drawing:
    """Draw the models' SV accuracy on each group of seeds; without models, shares of good ones."""
    figure = _sv_column(table)
    label = f"{figure.heading}, %" if figure else "good variants, %"
    return _draw(table, "phenomenon", figure.key if figure else "good", label)
