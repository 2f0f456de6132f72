"""How automatic signals of variants relate to what models and annotators make of these.

The MERGE paper asks what makes variants good, and diverse ones hard (section 5.3, appendix A.3):
here for every signal that the dataset has.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from merge_dataset.annotation.answers import ENOUGH
from merge_dataset.layout import split_files
from merge_metric.agreement.coefficients import (
    auc,
    auc_interval,
    pooled,
    spearman,
    spearman_interval,
    within_seeds,
)
from merge_metric.analyses.measures import Row
from merge_metric.analyses.variant_rows import VariantRows
from merge_metric.runs.run import text_codes
from merge_metric.seed_variant_accuracy.inputs import Clusters
from merge_metric.seed_variant_accuracy.options import USUAL, Settings
from merge_metric.seed_variant_accuracy.resampling import interval, seed_weights
from merge_metric.tables import Column, Table
from merge_metric.tables.plots import (
    COLUMN,
    GREY,
    PALETTE,
    distinct,
    grid,
    legend_below,
    new_figure,
    percent_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

BootstrapWeights = Callable[[], Iterator[Floats]]
"""Gives the same resampled seeds for whatever is measured, (b, S) at a time."""

ALL: Final = "all"
"""Name of the row of all variants of which a signal is known."""

_HELD: Final = 2**24
"""Weights of a bootstrap held in memory: 128 MB."""

NONE: Final = "none"
"""Name of the row of variants whose signal is not known, or to which it does not apply."""

QUALITY: Final = "quality"
"""Signal that limits are meant for: rows say how many are good of the best of it."""
KEPT_SHARES: Final = (90, 75, 50, 25)
"""Percentages of judged variants that are kept, in rows `best … %`."""
_BEST: Final = "best "
_FOLDS: Final = 5


# --- Variants, their signals and what is made of them ---


@dataclass(frozen=True, slots=True, eq=False)
class Signal:
    """One signal of n variants."""

    name: str
    values: Floats
    """(n,) 0 and 1 for no and yes, NaN where it is not known or does not apply."""
    is_answer: bool
    """Whether values are no and yes."""


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """The n distinct variants of a configuration."""

    config: str
    model: str | None
    """Model whose predictions there are, if any."""
    seed: Ints
    """(n,) numbers from 0 to n_seeds − 1."""
    n_seeds: int
    signals: tuple[Signal, ...]
    right: NDArray[np.bool_] | None
    """(n,) whether the model answers the variant right."""
    judgements: Mapping[str, Floats]
    """(n,) `fluency`, `reasoning`, `good`; NaN where nobody judged. Empty without annotations."""
    clusters: Clusters | None = None
    """Seeds that are resampled together; None where each is by itself."""


def signal_columns(folder: Path, config: str) -> list[str]:
    """List the columns of a configuration that are signals."""
    names: list[str] = pq.read_schema(folder / split_files(folder, config)["variants"][0]).names
    return names[names.index("log_odds") : names.index("subsamples")]


def observe(variants: VariantRows, cluster: str = "") -> Observed:
    """Make arrays of variants, whose rows have signals and what is known of each variant.

    Args:
        variants: With the columns of `signal_columns`.
        cluster: Text by which seeds are clustered, such as `premise`, as their `seed_…` has it.
    """
    table = variants.table
    seeds = table["seed_id"].combine_chunks().dictionary_encode()
    seed = seeds.indices.to_numpy().astype(np.int64)
    known = table.column_names
    clusters = None
    if cluster:
        first = np.unique(seed, return_index=True)[1]
        clusters = Clusters(cluster, text_codes(table[f"seed_{cluster}"].take(first)))

    def floats(name: str) -> Floats:
        values: Floats = pc.fill_null(table[name].cast(pa.float64()), float("nan")).to_numpy()
        return values

    judged = [name for name in ("fluency", "reasoning", "good") if name in known]
    return Observed(
        config=variants.config,
        model=variants.model,
        seed=seed,
        n_seeds=len(seeds.dictionary),
        signals=tuple(
            Signal(name, floats(name), pa.types.is_boolean(table[name].type))
            for name in variants.columns
        ),
        right=table["right"].to_numpy() if "right" in known else None,
        judgements={name: floats(name) for name in judged},
        clusters=clusters,
    )


# --- The analysis ---


def signals(
    found: Iterable[VariantRows],
    *,
    cluster: str = "",
    bins: int = 5,
    settings: Settings = USUAL,
) -> Table:
    """Make, for each configuration, model and signal, a row of all variants and one per bin.

    Each distinct variant counts once, whatever subsamples it is in.

    Args:
        found: Variants of configurations, or of models on them.
        cluster: Text by which seeds are clustered.
        bins: Of equally many variants, as far as values differ; signals of no more different
            values than that have a row for each.
        settings: Of the bootstrap.
    """
    every = [observe(each, cluster) for each in found]
    judged = any(each.judgements for each in every)
    if judged and not any((~np.isnan(each.judgements["good"])).any() for each in every):
        raise ValueError(
            "expected annotations of variants of these configurations, got only others; are they "
            "of another dataset?"
        )
    rows: list[Row] = []
    unknown: dict[str, None] = {}
    for each in every:
        weights: BootstrapWeights | None = None
        if settings.n_bootstrap:
            weights = partial(seed_weights, each.n_seeds, settings, each.clusters)
            if each.n_seeds * settings.n_bootstrap <= _HELD:
                weights = list(weights()).__iter__
        for signal in each.signals:
            if np.isnan(signal.values).all():
                unknown[signal.name] = None
                continue
            rows += _rows(each, signal, bins, weights, settings.rng_seed)
    if not rows:
        raise ValueError(
            "expected signals of the variants, got none that is known: "
            f"{', '.join(unknown)}; build the dataset again, and merge-nli signals before it"
        )
    return Table(
        name="signals",
        title="Automatic signals of variants, and what models and annotators make of these",
        columns=_columns(with_models=any(each.model for each in every), judged=judged),
        rows=tuple(rows),
        notes=_notes(list(unknown), judged=judged),
    )


def _columns(*, with_models: bool, judged: bool) -> tuple[Column, ...]:
    model = (
        Column("variant_accuracy", "right", "share", interval="variant_accuracy_ci"),
        Column("rho_right", "ρ right", "correlation", interval="rho_right_ci"),
        Column("within_right", "within", "correlation", interval="within_right_ci"),
    )
    annotators = (
        Column("n_judged", "judged", "count"),
        Column("fluency", "F", "number"),
        Column("reasoning", "R", "number"),
        Column("good", "good", "share", interval="good_ci"),
        Column("auc", "AUC good", "number", interval="auc_ci"),
        Column("rho_judged", "ρ F+R", "correlation", interval="rho_judged_ci"),
        Column("within_judged", "within", "correlation", interval="within_judged_ci"),
    )
    return (
        Column("config", "source"),
        *([Column("model", "model")] if with_models else []),
        Column("signal", "signal"),
        Column("bin", "values"),
        Column("n_variants", "variants", "count"),
        Column("n_seeds", "seeds", "count"),
        *(model if with_models else ()),
        *(annotators if judged else ()),
    )


def _notes(unknown: Sequence[str], *, judged: bool) -> tuple[str, ...]:
    human = (
        " F, R: mean fluency and reasoning, 1–5, over variants, of each the mean over its "
        f"annotators; good: share with F + R of {ENOUGH} or more; AUC: how often a good variant "
        "has a higher value than one that is not good, where 0.5 is chance."
    )
    best = (
        f" {_BEST}… %, of {QUALITY}: judged variants at or above the limit that keeps that share "
        f"of other seeds' ({_FOLDS} folds); good is then the precision of that limit."
    )
    missing = f"Not known of any variant: {', '.join(unknown)}."
    if any(name.endswith("_pll_change") for name in unknown):
        missing += " Changes of pseudo-log-likelihood are computed by merge-nli signals."
    return (
        "Each distinct variant once; bins of equally many, from the first value up to but not "
        f"including the second; {NONE}: where a signal is not known or does not apply. ρ: "
        "Spearman's correlation of the signal; within: the same of ranks within each seed, so "
        "that it does not matter how hard seeds are. 95 % intervals by bootstrap over seeds, as "
        "variants of a seed are alike." + (human + best) * judged,
        *([missing] if unknown else []),
    )


# --- Rows ---


def _rows(
    observed: Observed, signal: Signal, bins: int, weights: BootstrapWeights | None, rng_seed: int
) -> list[Row]:
    known = ~np.isnan(signal.values)
    parts: list[tuple[str, Mask]] = [(ALL, known), *bins_of(signal, bins)]
    if signal.name == QUALITY and observed.judgements:
        judged = known & ~np.isnan(observed.judgements["good"])
        parts += best_of(signal, judged, observed.seed, rng_seed)
    if not known.all():
        parts.append((NONE, ~known))
    rows = []
    for name, part in parts:
        row: Row = {
            "config": observed.config,
            "model": observed.model,
            "signal": signal.name,
            "bin": name,
            "lowest": None if name == NONE else float(signal.values[part].min()),
            "highest": None if name == NONE else float(signal.values[part].max()),
            "n_variants": int(part.sum()),
            "n_seeds": len(np.unique(observed.seed[part])),
        }
        if observed.right is not None:
            right = observed.right.astype(np.float64)
            row |= _mean("variant_accuracy", right, part, observed, weights)
        if observed.judgements:
            there = part & ~np.isnan(observed.judgements["good"])
            row["n_judged"] = int(there.sum())
            for key in ("fluency", "reasoning"):
                row |= _mean(key, observed.judgements[key], there, observed)
            row |= _mean("good", observed.judgements["good"], there, observed, weights)
        if name == ALL:
            row |= _correlations(observed, signal, known, weights)
        rows.append(row)
    return rows


def best_of(signal: Signal, part: Mask, seed: Ints, rng_seed: int = 0) -> list[tuple[str, Mask]]:
    """Name shares of the best variants by a signal, and mask them; by limits of other seeds.

    Seeds are dealt to folds. The limit that keeps a share of the other folds' variants decides
    about a fold's own, so that no variant has a say in its own limit.

    Args:
        signal: Higher is better.
        part: (n,) which variants there are.
        seed: (n,) their seeds.
        rng_seed: Of the folds.
    """
    dealt = np.random.default_rng(rng_seed).permutation(seed.max(initial=-1) + 1) % _FOLDS
    fold, found = dealt[seed], []
    for share in KEPT_SHARES:
        mask = np.zeros(len(seed), np.bool_)
        for number in range(_FOLDS):
            others, own = part & (fold != number), part & (fold == number)
            if others.any():
                limit = np.quantile(signal.values[others], 1 - share / 100)
                mask |= own & (signal.values >= limit)
        if mask.any():
            found.append((f"{_BEST}{share} %", mask))
    return found


def bins_of(signal: Signal, bins: int) -> list[tuple[str, Mask]]:
    """Name the values of each bin, and mask its variants.

    A value stands in one bin only, so bins are of equally many variants only where values
    differ.
    """
    known = ~np.isnan(signal.values)
    values = signal.values[known]
    different = np.unique(values)
    if len(different) <= max(bins, 2):
        names = ["no", "yes"] if signal.is_answer else [f"{value:g}" for value in different]
        chosen = different.astype(int) if signal.is_answer else range(len(different))
        return [
            (names[n], known & (signal.values == value))
            for n, value in zip(chosen, different, strict=True)
        ]
    # Bounds are values that are there, so that no bin is empty.
    firsts = np.sort(values)[np.arange(bins) * len(values) // bins]
    bounds = [*np.unique(firsts).tolist(), np.inf]
    for digits in itertools.count(2):  # enough to tell them apart
        texts = [f"{bound:.{digits}f}".replace("-", "−") for bound in bounds[:-1]]
        if len(set(texts)) == len(texts):
            break
    names = [f"{low} to {high}" for low, high in itertools.pairwise(texts)]
    names.append(f"{texts[-1]} or more")
    return [
        (name, (signal.values >= low) & (signal.values < high))
        for name, (low, high) in zip(names, itertools.pairwise(bounds), strict=True)
    ]


def _mean(
    key: str,
    values: Floats,
    part: Mask,
    observed: Observed,
    weights: BootstrapWeights | None = None,
) -> Row:
    """Average over some variants; with weights, with an interval."""
    seed, found = observed.seed[part], values[part]
    row: Row = {key: float(found.mean()) if len(found) else None}
    if weights is None:
        return row
    sums = np.bincount(seed, found, minlength=observed.n_seeds)
    sizes = np.bincount(seed, minlength=observed.n_seeds)
    with np.errstate(invalid="ignore"):  # 0/0: none was drawn
        replicates = np.concatenate([(w @ sums) / (w @ sizes) for w in weights()])
    bounds = interval(replicates)
    return row | {f"{key}_ci": None if np.isnan(bounds).any() else bounds.tolist()}


def _correlations(
    observed: Observed, signal: Signal, known: Mask, weights: BootstrapWeights | None
) -> Row:
    """Correlate a signal with whether the model is right, with F + R, and with who is good."""
    pairs: dict[str, tuple[Floats, Mask]] = {}
    if observed.right is not None:
        pairs["right"] = (observed.right.astype(np.float64), known)
    if observed.judgements:
        scores = observed.judgements["fluency"] + observed.judgements["reasoning"]
        pairs["judged"] = (scores, known & ~np.isnan(scores))
    row: Row = {}
    if observed.judgements:
        part = known & ~np.isnan(observed.judgements["good"])
        x, is_good = signal.values[part], observed.judgements["good"][part] == 1
        row = {"auc": None, "auc_ci": None}
        if is_good.any() and not is_good.all():
            groups = np.unique(x, return_inverse=True)[1]
            row["auc"] = float(auc(groups, is_good, np.ones((1, len(x))))[0])
            if weights is not None:
                bounds = auc_interval(x, is_good, observed.seed[part], weights())
                row["auc_ci"] = None if np.isnan(bounds).any() else bounds.tolist()
    for key, (values, part) in pairs.items():
        x, y, seed = signal.values[part], values[part], observed.seed[part]
        sums = within_seeds(x, y, seed, observed.n_seeds)
        within = float(pooled(sums.sum(axis=0)))
        row[f"rho_{key}"] = spearman(x, y)
        row[f"within_{key}"] = None if np.isnan(within) else within
        if weights is None:
            continue
        row |= {f"rho_{key}_ci": None, f"within_{key}_ci": None}
        if row[f"rho_{key}"] is not None:
            row[f"rho_{key}_ci"] = spearman_interval(x, y, seed, weights()).tolist()
        if row[f"within_{key}"] is not None:
            row[f"within_{key}_ci"] = interval(
                np.concatenate([pooled(drawn @ sums) for drawn in weights()])
            ).tolist()
    return row


# --- Plot ---

_HEIGHT: Final = 1.9


def plot_signals(table: Table) -> Figure:
    """Draw a panel per signal (row) and configuration (column): accuracy and good ones by bin."""
    names, configs = distinct(table.rows, "signal"), distinct(table.rows, "config")
    figure = new_figure(COLUMN * len(configs), _HEIGHT * len(names) + 0.6)
    axes_of = figure.subplots(len(names), len(configs), sharey=True, squeeze=False)
    for name, row_of_axes in zip(names, axes_of.tolist(), strict=True):
        for config, axes in zip(configs, row_of_axes, strict=True):
            rows = [r for r in table.rows if r["config"] == config and r["signal"] == name]
            draw_bins(axes, rows)
            axes.set_title(name if len(configs) == 1 else f"{name}, {config}", fontsize="medium")
    legend_below(figure, axes_of.flat)
    return figure


def draw_bins(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw one signal of one configuration: a line per model, and one of the annotators."""
    names = [name for name in distinct(rows, "bin") if name != ALL]
    bins = [name for name in names if not name.startswith(_BEST)]
    models = distinct(rows, "model")
    for number, model in enumerate(models):
        of_bin = {row["bin"]: row for row in rows if row["model"] == model}
        if model is not None:
            style = {"color": PALETTE[number % len(PALETTE)], "marker": "o"}
            _draw_line(axes, of_bin, bins, "variant_accuracy", f"right: {model}", style)
        if number == 0 and any(row.get("n_judged") for row in rows):
            style = {"color": GREY, "marker": "s", "linestyle": "--"}
            _draw_line(axes, of_bin, bins, "good", "good (annotators)", style)
    short = [name.replace(" to ", "\nto ").replace(" or ", "\nor ") for name in bins]
    axes.set_xticks(range(len(bins)), short, fontsize="small")
    axes.set_xlim(-0.5, len(bins) - 0.5)
    axes.set_ylim(0, 1)
    percent_ticks(axes.yaxis)
    axes.set_ylabel("variants, %", fontsize="small")
    axes.tick_params(labelsize="small")
    grid(axes, "y")


def _draw_line(
    axes: Axes,
    of_bin: Mapping[str, Mapping[str, Any]],
    bins: Sequence[str],
    key: str,
    label: str,
    style: Mapping[str, Any],
) -> None:
    """Draw means with their intervals; a gap where there is none, and before `NONE`."""
    values = [of_bin[name][key] if name in of_bin else None for name in bins]
    heights = [np.nan if value is None else value for value in values]
    if NONE in bins:
        axes.plot(bins.index(NONE), heights.pop(), **{**style, "markersize": 4})
    axes.plot(range(len(heights)), heights, label=label, markersize=4, linewidth=1.4, **style)
    for place, name in enumerate(bins):
        if bounds := of_bin.get(name, {}).get(f"{key}_ci"):
            axes.vlines(place, *bounds, color=style["color"], linewidth=1.0)
