"""The seeds that models fail on (paper, section 5.4 and table 11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from merge_dataset.schema import NLI, ProblemFormat, format_of
from merge_metric.analyses.hardness import Ints, hardest_first, mean_right
from merge_metric.runs.run import Run, by_config, common_labels, on_common_seeds
from merge_metric.seed_variant_accuracy.inputs import Rows
from merge_metric.tables import Column, Table, initials, legend
from merge_metric.tables.plots import GREY, PALETTE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

_SHOWN_OF_SEEDS: Final = ("seed_id", "label", "annotator_labels")
_SHOWN: Final = 40
"""Seeds in a plot."""


def hardest(runs: Iterable[Run], seeds: Mapping[str, pa.Table], *, top: int | None = None) -> Table:
    """A row per seed, the hardest first (see `hardness`).

    Args:
        runs: Models on configurations.
        seeds: Configuration → its split `seeds`, with the columns that `shown` names.
        top: How many seeds of each configuration; by default those that every model
            answers wrong.
    """
    rows: list[dict[str, Any]] = []
    notes = []
    runs = list(runs)
    labels, fields = common_labels(runs), _fields(seeds)
    for config, group in by_config(runs).items():
        found = _seeds(config, group, seeds[config])
        wrong = [row for row in found if not row["n_right"]]
        rows += wrong if top is None else found[:top]
        notes.append(_summary(config, len(group), wrong, len(found)))
    what = "Seeds that every model answers wrong" if top is None else "The hardest seeds"
    return Table(
        name="hardest",
        title=f"{what}, by the share of variants that models answer right",
        columns=(
            Column("seed_id", "seed"),
            Column("gold", "gold"),
            Column("votes", "votes"),
            Column("variants_right", "variants right", "share"),
            Column("answers", "answers"),
            *(
                Column(field, field[0].upper() if fields == NLI.fields else field, "passage")
                for field in fields
            ),
        ),
        rows=tuple(rows),
        notes=(
            "Variants right in percent, averaged over models; each distinct variant counts once. "
            "Votes of the annotators, where known, and answers of the models to the seed itself: "
            f"{legend(labels)}.",
            *notes,
        ),
    )


def _seeds(config: str, runs: Sequence[Run], texts: pa.Table) -> list[dict[str, Any]]:
    counts = on_common_seeds([run.counts for run in runs], config)
    ids = counts[0].seed_ids
    n_right, n_variants = (
        np.stack(tables)
        for tables in zip(*(_variants_per_seed(run.rows, ids) for run in runs), strict=True)
    )
    by_model, mean = n_right / n_variants, mean_right(n_right, n_variants)
    n_models_right = np.sum([each.right for each in counts], axis=0)
    text_of = {text["seed_id"]: text for text in texts.to_pylist()}
    labels, fields = counts[0].labels, _fields({config: texts})
    return [
        {
            "config": config,
            "seed_id": ids[n],
            "gold": labels[counts[0].gold[n]],
            "votes": _tally(text_of[ids[n]]["annotator_labels"], labels),
            "answers": _tally([int(each.own[n]) for each in counts], labels),
            "variants_right": float(mean[n]),
            "n_right": int(n_models_right[n]),
            "n_models": len(runs),
            "by_model": {
                run.model: float(value) for run, value in zip(runs, by_model[:, n], strict=True)
            },
            **{field: text_of[ids[n]][field] for field in fields},
            "annotator_labels": [labels[v] for v in text_of[ids[n]]["annotator_labels"] or ()],
        }
        for n in hardest_first(mean, len(runs) - n_models_right).tolist()
    ]


def _variants_per_seed(rows: Rows, seed_ids: Sequence[Any]) -> tuple[Ints, Ints]:
    """Distinct variants answered right, and all, of each of some seeds, in their order."""
    right = rows.prediction == rows.gold[rows.seed]
    wanted = np.isin(np.asarray(rows.seed_ids, object), np.asarray(seed_ids, object))
    return (
        np.bincount(rows.seed[right], minlength=len(wanted))[wanted],
        np.bincount(rows.seed, minlength=len(wanted))[wanted],
    )


def shown(problem_format: ProblemFormat = NLI) -> tuple[str, ...]:
    """Columns of the split `seeds` that the table shows."""
    return *_SHOWN_OF_SEEDS, *problem_format.fields


def _fields(seeds: Mapping[str, pa.Table]) -> tuple[str, ...]:
    """The texts among `shown`."""
    found = {format_of(table.schema).fields for table in seeds.values()}
    if len(found) > 1:
        raise ValueError(
            f"expected seeds with the same texts, got {' and '.join(map(', '.join, sorted(found)))}"
            "; name configurations of one kind by --config"
        )
    return next(iter(found), NLI.fields)


def _tally(codes: Sequence[int] | None, labels: Sequence[str]) -> str | None:
    """Such as "E3 N2 C0"; None where there are none."""
    if not codes:
        return None
    times = Counter(codes)
    # A number would run into the letter's, if the letter is one.
    between = ":" if initials(labels)[0].isdigit() else ""
    return " ".join(
        f"{letter}{between}{times[code]}" for code, letter in enumerate(initials(labels))
    )


def _summary(config: str, n_models: int, wrong: Sequence[Mapping[str, Any]], n_seeds: int) -> str:
    """How many seeds every model answers wrong, and how much annotators disagree on them."""
    note = (
        f"{config}: {len(wrong):,} of {n_seeds:,} seeds ({100 * len(wrong) / n_seeds:.2f} %) are "
        f"answered wrong by {'every one of' if n_models > 1 else 'the'} {n_models} "
        f"model{'s' * (n_models > 1)}"
    )
    voted = [row for row in wrong if len(row["annotator_labels"]) > 1]
    split = [row for row in voted if len(set(row["annotator_labels"])) > 1]
    if voted:
        note += f"; annotators disagree on {len(split):,} of {len(voted):,} with several votes"
    return f"{note}."


def plot_hardest(table: Table) -> Figure:
    """A line per seed: a dot per model, a bar at their mean; the first 40 seeds."""
    from matplotlib.figure import Figure

    rows = table.rows[:_SHOWN]
    figure = Figure(figsize=(7, 1.2 + 0.24 * max(1, len(rows))), layout="constrained", dpi=150)
    axes = figure.subplots()
    models = list(dict.fromkeys(model for row in rows for model in row["by_model"]))
    for number, model in enumerate(models):
        few = len(models) <= len(PALETTE)
        axes.plot(
            [row["by_model"].get(model, np.nan) for row in rows],
            range(len(rows)),
            linestyle="none",
            marker="os^Dv<>"[number % 7] if few else "o",
            markersize=5,
            color=PALETTE[number] if few else GREY,
            alpha=0.9 if few else 0.4,
            label=model if few else "a model" if not number else None,
        )
    axes.plot(
        [row["variants_right"] for row in rows],
        range(len(rows)),
        linestyle="none",
        marker="|",
        markersize=11,
        markeredgewidth=2,
        color="black",
        label="mean",
    )
    axes.set_yticks(range(len(rows)), [row["seed_id"] for row in rows], fontsize="x-small")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xticks(np.arange(0, 1.01, 0.2), [str(n) for n in range(0, 101, 20)])
    axes.set_xlabel("variants answered right, %")
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize="small")
    return figure
