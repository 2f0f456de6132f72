"""Variants whose label may not hold, by the dataset's flags: how many, and figures of the rest.

The flags are `dataset_columns.LABEL_FLAGS`. They are for people and for reporting on the rest; a
benchmark without what models find doubtful would favour models like these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.dataset_columns import LABEL_FLAGS
from merge_dataset.layout import format_in
from merge_metric.analyses.measures import Row
from merge_metric.analyses.variant_rows import VariantRows
from merge_metric.runs.counting import FLAGS, NO_FLAG, flags_in
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, sv_at
from merge_metric.seed_variant_accuracy.options import USUAL, Settings
from merge_metric.seed_variant_accuracy.scoring import summarise
from merge_metric.tables import Column, Table, figure_column, figure_values
from merge_metric.tables.plots import bar_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL: Final = "all"

DOUBTFUL: Final = 4
"""Mean reasoning below which annotators find the label doubtful."""


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
    has_models, judged = (any(key in row for row in rows) for key in ("model", "n_judged"))
    return Table(
        name="labels",
        title="Variants whose label may not hold",
        columns=(
            Column("config", "source"),
            *([Column("model", "model")] if has_models else []),
            Column("part", "flag"),
            Column("n_variants", "variants", "count"),
            Column("share", "share", "share"),
            Column("n_seeds", "seeds", "count"),
            *(map(figure_column, figures) if has_models else ()),
            *(
                (
                    Column("n_judged", "judged", "count"),
                    Column("n_doubtful", f"R < {DOUBTFUL}", "count"),
                )
                if judged
                else ()
            ),
        ),
        rows=tuple(rows),
        notes=(
            "Each distinct variant once; one may have several flags. Variants without a flag have "
            "other seeds than all: most entailments may be missing, as beyond_premise flags whole "
            "seeds. Most flagged labels hold; leave nothing out of a benchmark for its flags."
            + judged
            * f" R < {DOUBTFUL}: variants whose mean reasoning, over annotators, is lower.",
        ),
    )


def plot_labels(table: Table) -> Figure:
    """Draw SV accuracy of all variants and of those without a flag; without models, shares."""
    figure = next((c for c in table.columns if c.key.startswith("sv_at")), None)
    if figure is None:
        shares = [{**row, "model": row["part"]} for row in table.rows if row["part"] != ALL]
        return bar_panels(replace(table, rows=tuple(shares)), {"variants": "share"}, "share, %")
    rows: dict[tuple[str, str], Row] = {}
    for row in table.rows:
        if row["part"] in (ALL, NO_FLAG):
            of_model = rows.setdefault((row["config"], row["model"]), {})
            of_model |= {"config": row["config"], "model": row["model"]}
            of_model[row["part"]] = row[figure.key]
    bars = replace(table, rows=tuple(rows.values()))
    return bar_panels(bars, {ALL: ALL, NO_FLAG: NO_FLAG}, f"{figure.heading}, %")
