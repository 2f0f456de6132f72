"""Relation of variants' automatic signals to models' answers and annotators' judgements.

The MERGE paper asks what makes variants good, and diverse ones hard (section 5.3, appendix A.3).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from merge_dataset.annotation import ENOUGH
from merge_dataset.layout import split_files
from merge_metric.agreement.coefficients import (
    auc,
    pooled,
    spearman,
    weighted_spearman,
    within_seeds,
)
from merge_metric.analyses.measures import Bools, Floats, Ints, Row, intervals, titled
from merge_metric.analyses.registry import Request
from merge_metric.analyses.variant_rows import VariantRows
from merge_metric.frame.joined import text_codes
from merge_metric.seed_variant_accuracy.inputs import Clusters
from merge_metric.seed_variant_accuracy.options import USUAL, Settings
from merge_metric.tables import Table, plots
from merge_metric.tables.plots import distinct

ALL: Final = "all"
"""Name of the row of all variants of which a signal is known."""

NONE: Final = "none"
"""Name of the row of variants whose signal is not known, or to which it does not apply."""

_BEST: Final = "best "
_FOLDS: Final = 5


def signal_columns(folder: Path, config: str) -> list[str]:
    """List the columns of a configuration that are signals."""
    names: list[str] = pq.read_schema(folder / split_files(folder, config)["variants"][0]).names
    return names[names.index("log_odds") : names.index("subsamples")]


def _floats(table: pa.Table, name: str) -> Floats:
    return np.asarray(pc.fill_null(table[name].cast(pa.float64()), float("nan")).to_numpy())


# --- The analysis ---


def signals(
    request: Request, *, annotations: Sequence[str] = (), bins: int = 5, settings: Settings = USUAL
) -> Table:
    """Make rows for each signal: all distinct variants, then bins of equal size, or values."""
    texts = (request.cluster,) if request.cluster else ()
    every = list(request.variants(signal_columns, texts, annotations=annotations))
    rows = [row for of in every for row in _rows(of, request.cluster, bins, settings)]
    names = ((of, name) for of in every for name in of.columns)
    unknown = dict.fromkeys(n for of, n in names if np.isnan(_floats(of.table, n)).all())
    return titled(
        "signals",
        rows,
        judged=annotations,
        enough=ENOUGH,
        folds=_FOLDS,
        unknown=unknown,
        changes=any(name.endswith("_pll_change") for name in unknown),
    )


Figures = Mapping[str, tuple[float | None, Callable[[Floats], Floats] | None]]
"""Key → figure and, where it has an interval, the function to it, (b,), from weights of seeds.

The weights, (b, S), are a block of the bootstrap's.
"""


def _rows(variants: VariantRows, cluster: str, bins: int, settings: Settings) -> Iterator[Row]:
    """Yield rows of each signal that is known: all variants, parts of them, and the others."""
    table = variants.table
    encoded, clusters = table["seed_id"].combine_chunks().dictionary_encode(), None
    seed, n_seeds = encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
    if cluster:
        first = table[f"seed_{cluster}"].take(np.unique(seed, return_index=True)[1])
        clusters = Clusters(cluster, text_codes(first))
    about = ("right", "fluency", "reasoning", "good")
    outcomes = {key: _floats(table, key) for key in about if key in table.column_names}
    for name in variants.columns:
        values = _floats(table, name)
        known = ~np.isnan(values)
        if not known.any():
            continue
        is_answer = pa.types.is_boolean(table[name].type)
        parts = [(ALL, known), *bins_of(values, bins, is_answer=is_answer)]
        if name == "quality" and "good" in outcomes:  # limits are meant for this signal
            parts += best_of(values, known & ~np.isnan(outcomes["good"]), seed, settings.rng_seed)
        parts += [] if known.all() else [(NONE, ~known)]
        made = list[tuple[Row, list[Figures]]]()
        for bin_name, part in parts:
            row: Row = {
                "config": variants.config,
                "model": variants.model,
                "signal": name,
                "bin": bin_name,
                "lowest": None,
                "highest": None,
                "n_variants": int(part.sum()),
                "n_seeds": len(np.unique(seed[part])),
            }
            if bin_name != NONE:
                row |= {"lowest": float(values[part].min()), "highest": float(values[part].max())}
            made.append((row, list(_outcomes(outcomes, part, seed, n_seeds))))
        made[0][1].extend(_correlations(values, known, outcomes, seed, n_seeds))
        yield from _with_figures(made, n_seeds, settings, clusters)


def _with_figures(
    made: Sequence[tuple[Row, Sequence[Figures]]],
    n_seeds: int,
    settings: Settings,
    clusters: Clusters | None,
) -> Iterator[Row]:
    """Yield rows with the values of their figures and, if asked for, their intervals."""
    functions = {
        (number, key): of
        for number, (_, parts) in enumerate(made)
        for figures in parts
        for key, (value, of) in figures.items()
        if of is not None and value is not None
    }
    with np.errstate(invalid="ignore"):  # 0/0: no such variant was drawn
        bounds = intervals(
            lambda w: {name: of(w) for name, of in functions.items()}, n_seeds, settings, clusters
        )
    for number, (row, parts) in enumerate(made):
        for figures in parts:
            row |= {key: value for key, (value, _) in figures.items()}
            for key, (_, of) in figures.items() if settings.n_bootstrap else ():
                if of is not None:
                    row[f"{key}_ci"] = bounds.get((number, key))
        yield row


def _outcomes(
    outcomes: Mapping[str, Floats], part: Bools, seed: Ints, n_seeds: int
) -> Iterator[Figures]:
    """Yield averages of outcomes over a part of the variants, and over the judged ones of these."""

    def mean(values: Floats, seed: Ints) -> tuple[float | None, Callable[[Floats], Floats]]:
        sums, sizes = (np.bincount(seed, weights, minlength=n_seeds) for weights in (values, None))
        return float(values.mean()) if len(values) else None, lambda w: (w @ sums) / (w @ sizes)

    if "right" in outcomes:
        yield {"variant_accuracy": mean(outcomes["right"][part], seed[part])}
    if "good" in outcomes:
        judged = part & ~np.isnan(outcomes["good"])
        yield {"n_judged": (int(judged.sum()), None)}
        for key in ("fluency", "reasoning"):
            yield {key: (mean(outcomes[key][judged], seed[judged])[0], None)}
        yield {"good": mean(outcomes["good"][judged], seed[judged])}


def _correlations(
    signal: Floats, known: Bools, outcomes: Mapping[str, Floats], seed: Ints, n_seeds: int
) -> Iterator[Figures]:
    """Yield figures that compare a signal with what is right, and what annotators find good."""
    compared = {"right": outcomes["right"]} if "right" in outcomes else {}
    if "good" in outcomes:
        compared["judged"] = outcomes["fluency"] + outcomes["reasoning"]
        part = known & ~np.isnan(outcomes["good"])
        is_good, of_part = outcomes["good"][part] == 1, seed[part]
        groups, area = np.unique(signal[part], return_inverse=True)[1], None
        if is_good.any() and not is_good.all():
            area = float(auc(groups, is_good, np.ones((1, len(groups))))[0])
        yield {"auc": (area, lambda w: auc(groups, is_good, w[:, of_part]))}
    for key, outcome in compared.items():
        part = known & ~np.isnan(outcome)
        yield _related(key, signal[part], outcome[part], seed[part], n_seeds)


def _related(key: str, signal: Floats, outcome: Floats, seed: Ints, n_seeds: int) -> Figures:
    """Correlate a signal with an outcome, over all variants and within seeds."""
    a, b = (np.unique(side, return_inverse=True)[1] for side in (signal, outcome))
    sums = within_seeds(signal, outcome, seed, n_seeds)
    within = float(pooled(sums.sum(axis=0)))
    return {
        f"rho_{key}": (
            spearman(signal, outcome),
            lambda w: np.array([weighted_spearman(a, b, drawn[seed]) for drawn in w]),
        ),
        f"within_{key}": (None if np.isnan(within) else within, lambda w: pooled(w @ sums)),
    }


# --- Parts of the variants ---


def best_of(values: Floats, part: Bools, seed: Ints, rng_seed: int = 0) -> list[tuple[str, Bools]]:
    """List names and masks, (n,), of the variants of `part` with the highest values of a signal.

    There is one mask per share kept. Seeds, numbered in `seed` (n,), are dealt to folds. The limit
    for a fold keeps the share of the other folds' variants, so no variant sets its own limit.
    """
    dealt = np.random.default_rng(rng_seed).permutation(seed.max(initial=-1) + 1) % _FOLDS
    fold, best = dealt[seed], []
    for share in (90, 75, 50, 25):
        mask = np.zeros(len(seed), np.bool_)
        for number in range(_FOLDS):
            others, own = part & (fold != number), part & (fold == number)
            if others.any():
                limit = np.quantile(values[others], 1 - share / 100)
                mask |= own & (values >= limit)
        if mask.any():
            best.append((f"{_BEST}{share} %", mask))
    return best


def bins_of(signal: Floats, bins: int, *, is_answer: bool = False) -> list[tuple[str, Bools]]:
    """List names and masks of a signal's bins, (n,); equal values share one, NaN is in none."""
    known = ~np.isnan(signal)
    values = signal[known]
    different = np.unique(values)
    if len(different) <= max(bins, 2):
        names = ["no", "yes"] if is_answer else [f"{value:g}" for value in different]
        chosen = different.astype(int) if is_answer else range(len(different))
        return [
            (names[n], known & (signal == value))
            for n, value in zip(chosen, different, strict=True)
        ]
    # Bounds are values that occur, so that no bin is empty.
    firsts = np.sort(values)[np.arange(bins) * len(values) // bins]
    bounds = [*np.unique(firsts).tolist(), np.inf]
    for digits in itertools.count(2):  # enough to tell them apart
        texts = [f"{bound:.{digits}f}".replace("-", "−") for bound in bounds[:-1]]
        if len(set(texts)) == len(texts):
            break
    names = [f"{low} to {high}" for low, high in itertools.pairwise(texts)]
    names.append(f"{texts[-1]} or more")
    return [
        (name, (signal >= low) & (signal < high))
        for name, (low, high) in zip(names, itertools.pairwise(bounds), strict=True)
    ]


# --- Plot ---


def plot_signals(table: Table) -> plots.Figure:
    """Draw a panel per signal (row) and configuration (column): accuracy, share of good, by bin."""
    names, configs = distinct(table.rows, "signal"), distinct(table.rows, "config")
    figure = plots.new_figure(plots.COLUMN * len(configs), 1.9 * len(names) + 0.6)
    axes_of = figure.subplots(len(names), len(configs), sharey=True, squeeze=False)
    for axes, (name, config) in zip(axes_of.flat, product(names, configs), strict=True):
        rows = [r for r in table.rows if r["config"] == config and r["signal"] == name]
        bins = [bin for bin in distinct(rows, "bin") if bin != ALL and not bin.startswith(_BEST)]
        for number, model in enumerate(distinct(rows, "model")):
            of_bin = {row["bin"]: row for row in rows if row["model"] == model}
            series: dict[str, tuple[str, dict[str, Any]]] = {}
            if model is not None:
                style = {"color": plots.PALETTE[number % len(plots.PALETTE)], "marker": "o"}
                series["variant_accuracy"] = (f"right: {model}", style)
            if number == 0 and any(row.get("n_judged") for row in rows):
                style = {"color": plots.GREY, "marker": "s", "linestyle": "--"}
                series["good"] = ("good (annotators)", style)
            for key, (label, style) in series.items():
                values = [of_bin.get(bin, {}).get(key) for bin in bins]
                heights = [np.nan if value is None else value for value in values]
                if NONE in bins:
                    axes.plot(bins.index(NONE), heights.pop(), markersize=4, **style)
                axes.plot(heights, label=label, linewidth=1.4, markersize=4, **style)
                for place, bin in enumerate(bins):
                    if bounds := of_bin.get(bin, {}).get(f"{key}_ci"):
                        axes.vlines(place, *bounds, color=style["color"], linewidth=1.0)
        short = [bin.replace(" to ", "\nto ").replace(" or ", "\nor ") for bin in bins]
        axes.set_xticks(range(len(bins)), short, fontsize="small")
        axes.set_xlim(-0.5, len(bins) - 0.5)
        axes.set_ylim(0, 1)
        plots.percent_ticks(axes.yaxis)
        axes.set_ylabel("variants, %", fontsize="small")
        axes.tick_params(labelsize="small")
        plots.grid(axes, "y")
        axes.set_title(name if len(configs) == 1 else f"{name}, {config}", fontsize="medium")
    plots.legend_below(figure)
    return figure
