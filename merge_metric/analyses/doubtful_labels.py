"""Variants whose label may not hold, by the dataset's flags: how many, and figures of the rest.

The flags are `dataset_columns.LABEL_FLAGS`. They are for people and for reporting on the rest; a
benchmark without what models find doubtful would favour models like these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from merge_dataset.dataset_columns import LABEL_FLAGS
from merge_dataset.layout import format_in, split_files
from merge_metric.analyses.measures import Row
from merge_metric.analyses.signals import MeanJudgement
from merge_metric.runs.coverage import read_columns
from merge_metric.runs.flags import FLAGS, NO_FLAG, flag_lists, flags_in
from merge_metric.runs.run import Run
from merge_metric.seed_variant_accuracy.counts import count
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, sv_at
from merge_metric.seed_variant_accuracy.scoring import summarise
from merge_metric.tables import Column, Table, figure_column, figure_values
from merge_metric.tables.plots import bar_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL: Final = "all"

DOUBTFUL: Final = 4
"""Mean reasoning below which annotators find the label doubtful."""


@dataclass(frozen=True, slots=True)
class Flagged:
    """The n distinct variants of a configuration and their flags."""

    config: str
    variant_ids: Sequence[str]
    seed_ids: Sequence[str]
    flags: Sequence[Sequence[str]]
    """As `join.flag_lists` gives them."""
    run: Run | None = None
    """A model's answers to them, in the same order."""


def require_flags(folder: Path, config: str) -> None:
    """Raise ValueError unless a configuration has label flags."""
    if not flags_in(format_in(folder, config)):
        raise ValueError(
            f"{folder}: expected label flags in {config}, got none of the columns "
            f"{', '.join(LABEL_FLAGS)}; build it with merge-nli build --label-flags"
        )


def read_flags(folder: Path, config: str) -> Flagged:
    """Read the flags of a configuration's variants.

    Raises:
        ValueError: it has none.
    """
    require_flags(folder, config)
    names = flags_in(format_in(folder, config))
    files = split_files(folder, config)["variants"]
    rows = read_columns(folder, files, ("variant_id", "seed_id", *names))
    ids, seeds = (rows[name].to_pylist() for name in ("variant_id", "seed_id"))
    return Flagged(config, ids, seeds, flag_lists(rows, names).to_pylist())


def flags_of(run: Run) -> Flagged:
    """Take the flags of a run, which has the group `FLAGS` and keeps `variant_ids`."""
    require_flags(run.folder, run.config)
    seeds = [run.rows.seed_ids[number] for number in run.rows.seed]
    return Flagged(run.config, run.kept["variant_ids"], seeds, run.groups[FLAGS], run)


def labels(
    found: Iterable[Flagged],
    judgements: Mapping[str, MeanJudgement] | None = None,
    *,
    correctness_threshold: int = 90,
    n_bootstrap: int = 1000,
    rng_seed: int = 0,
) -> Table:
    """Make rows of all variants, of those without a flag, and of those with each flag.

    Args:
        found: Configurations, or models on them.
        judgements: By variant, if any.
        correctness_threshold: CT of SV accuracy.
        n_bootstrap: Replicates for intervals; 0 for none.
        rng_seed: Of the bootstrap.
    """
    figures = (CATALOGUE["variant_accuracy"], sv_at(correctness_threshold))
    rows: list[Row] = []
    has_models = False
    for each in found:
        for name, part in _parts(each):
            row: Row = {
                "config": each.config,
                "part": name,
                "n_variants": int(part.sum()),
                "share": float(part.mean()),
                "n_seeds": len({each.seed_ids[n] for n in np.flatnonzero(part).tolist()}),
            }
            if each.run is not None and part.any():
                has_models = True
                kept = part[each.run.rows.draw_row]
                counts = count(each.run.rows, draws=np.flatnonzero(kept))
                result = summarise(
                    counts,
                    correctness_threshold=correctness_threshold,
                    n_bootstrap=n_bootstrap,
                    rng_seed=rng_seed,
                )
                row |= {"model": each.run.model, **figure_values(result, figures)}
            if judgements is not None:
                row |= _judged(each, part, judgements)
            rows.append(row)
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
            *(_JUDGED_COLUMNS if judgements is not None else ()),
        ),
        rows=tuple(rows),
        notes=_notes(judged=judgements is not None),
    )


_JUDGED_COLUMNS: Final = (
    Column("n_judged", "judged", "count"),
    Column("n_doubtful", f"R < {DOUBTFUL}", "count"),
)


def _notes(*, judged: bool) -> tuple[str, ...]:
    return (
        "Each distinct variant once; one may have several flags. Variants without a flag have "
        "other seeds than all: most entailments may be missing, as beyond_premise flags whole "
        "seeds. Most flagged labels hold; leave nothing out of a benchmark for its flags."
        + (
            f" R < {DOUBTFUL}: variants whose mean reasoning, over annotators, is lower."
            if judged
            else ""
        ),
    )


def _parts(each: Flagged) -> list[tuple[str, NDArray[np.bool_]]]:
    names = (NO_FLAG, *LABEL_FLAGS)
    masks = [(name, np.array([name in flags for flags in each.flags], np.bool_)) for name in names]
    return [(ALL, np.ones(len(each.flags), np.bool_)), *masks]


def _judged(
    each: Flagged, part: NDArray[np.bool_], judgements: Mapping[str, MeanJudgement]
) -> dict[str, int]:
    ids = (each.variant_ids[n] for n in np.flatnonzero(part).tolist())
    reasoning = [judgements[variant].reasoning for variant in ids if variant in judgements]
    return {"n_judged": len(reasoning), "n_doubtful": sum(r < DOUBTFUL for r in reasoning)}


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
