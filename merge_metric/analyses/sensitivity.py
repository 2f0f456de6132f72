"""Semantic sensitivity: fooling rates, label probabilities where predictions change; calibration.

Arakelyan, Liu and Augenstein (2024): rates overall and by label (tables 2 and 3) and by number of
parameters (figure 2); shifts of label probabilities (section 5.2, figure 3); confidence of models
(figure 4).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Final

import numpy as np

from merge_dataset.provenance import n_problems
from merge_dataset.schema import parse_config_name
from merge_metric.analyses.measures import (
    CONFIGS,
    FOOLING,
    Floats,
    Row,
    fooling_of,
    identity,
    intervals,
    per_config,
    sums_by,
    titled,
    values_of_models,
    weighted_mean,
)
from merge_metric.analyses.registry import Request
from merge_metric.frame.answer_table import PredictionsSource
from merge_metric.frame.counting import CONFIDENCE, SEED_CONFIDENCE
from merge_metric.frame.joined import Frame, common_labels
from merge_metric.frame.predictions import read_metadata
from merge_metric.seed_variant_accuracy.figures import CATALOGUE
from merge_metric.seed_variant_accuracy.formatting import show_value
from merge_metric.seed_variant_accuracy.options import NO_LABEL, OPPOSITES, USUAL, Settings
from merge_metric.seed_variant_accuracy.scoring import means, sigma
from merge_metric.tables import Table, initials, plots
from merge_metric.tables.plots import distinct

STRICT, RELAXED = FOOLING


def fooling(
    request: Request, *, in_domain: Sequence[str] = (), settings: Settings = USUAL
) -> Table:
    """Make a row per model and configuration, and averages, also without `in_domain` sources.

    Models have equal weights (table 3). Configurations are weighted by seeds answered right; where
    numbers of problems are known, another row is weighted by these, as in the paper.
    """
    frames = list(request.frames())
    labels = common_labels(frames)
    sources = {parse_config_name(frame.config)[0] for frame in frames}
    if unknown := [name for name in in_domain if name not in sources]:
        raise ValueError(
            f"--in-domain: expected sources of the predictions, {', '.join(sorted(sources))}, got "
            f"{', '.join(unknown)}"
        )
    ends = ("", *(f"_{label}" for label in labels))  # all seeds, and those of each gold label
    rows = []
    for frame in frames:
        counts = frame.counts
        row = identity(frame) | {"averaged": None}
        row |= {"n_problems": n_problems(frame.folder, *parse_config_name(frame.config))}
        by_label = (counts.take(counts.gold == code) for code in range(len(labels)))
        for end, part in zip(ends, (counts, *by_label), strict=True):
            for key, value in fooling_of(part, settings).items():
                stem = key.removesuffix("_ci")  # the keys of intervals still end in it
                row[f"{stem}{end}{key.removeprefix(stem)}"] = value
        rows.append(row)
    weights = {f"{key}{end}": f"n_right{end}" for end in ends for key in FOOLING}
    n_right = [f"n_right{end}" for end in ends]
    means = per_config(rows, [*weights, "n_problems"], n_right, merge_rounds=False)
    every = [*rows, *(row for row in means if row["averaged"])]
    of_labels = {
        f"{key}_{label}": f"{CATALOGUE[key].heading} {letter}"
        for label, letter in zip(labels, initials(labels), strict=True)
        for key in FOOLING
    }
    return titled(
        "fooling",
        (*every, *_over_domains(every, weights, n_right, in_domain)),
        of_labels=of_labels,
        without=[label for label in labels if not any(label in pair for pair in OPPOSITES)],
        in_domain=in_domain,
    )


def _over_domains(
    rows: Sequence[Row],
    weights: Mapping[str, str],
    n_right: Sequence[str],
    in_domain: Sequence[str],
) -> Iterator[Row]:
    """Average over configurations, all and those out of domain, weighted in either way."""
    domains = {"all": rows}
    if in_domain:
        outside = [r for r in rows if parse_config_name(r["config"])[0] not in in_domain]
        domains["out of domain"] = outside
    for name, of_domain in domains.items():
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in of_domain:
            groups.setdefault((row["config"].partition("_")[2], row["model"]), []).append(row)
        weightings: dict[str, Mapping[str, str]] = {"right": weights}
        if all(row["n_problems"] is not None for row in of_domain):
            # Numbers of problems by gold label are not known.
            weightings["problems"] = dict.fromkeys(FOOLING, "n_problems")
        for (weighted_by, weight_of), ((suffix, model), group) in product(
            weightings.items(), groups.items()
        ):
            if len(group) > 1:
                mean: Row = {key: sum(row[key] for row in group) for key in n_right}
                mean |= {} if weight_of is weights else dict.fromkeys(weights)
                mean |= {"config": f"({f'{name} {suffix}'.strip()})", "model": model}
                mean["averaged"] = CONFIGS
                for key, weight in weight_of.items():
                    mean[key] = weighted_mean([r[key] for r in group], [r[weight] for r in group])
                mean |= {key: sum(row[key] for row in group) for key in weight_of.values()}
                yield mean | {"weighted_by": weighted_by}


def plot_fooling(table: Table) -> plots.Figure:
    """Draw a panel per configuration, a bar per model: strict within relaxed."""
    rows = tuple(row for row in table.rows if row["averaged"] is None)
    series = {
        f"changed ({CATALOGUE[RELAXED].symbol})": RELAXED,
        f"to the opposite ({CATALOGUE[STRICT].symbol})": STRICT,
    }
    return plots.bar_panels(replace(table, rows=rows), series, "fooled seeds, %", nested=True)


# --- By numbers of parameters ---

PARAMETERS: Final = "parameters"
"""Key in the metadata of a predictions file: how many parameters its model has."""

_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}


def read_sizes(
    sources: Sequence[PredictionsSource], texts: Sequence[str]
) -> dict[str, tuple[int, str]]:
    """Find models' sizes, as given by `texts` or in their files, and families (architectures).

    A family shares a line in the plot.
    """
    models = list(dict.fromkeys(source.model for source in sources))
    given = values_of_models("sizes", texts, models, "bert=110M", r"\d+(\.\d+)?[KMB]?")
    sizes: dict[str, tuple[int, str]] = {}
    for model in models:
        facts = [read_metadata(source.path) for source in sources if source.model == model]
        stated = {int(fact[PARAMETERS]) for fact in facts if fact.get(PARAMETERS)}
        if model in given:
            number = given[model].upper().rstrip("KMB")
            stated = {round(float(number) * _UNITS[given[model].upper().removeprefix(number)])}
        if len(stated) != 1:
            raise ValueError(
                f"{model}: expected one number of parameters, got "
                f"{' and '.join(f'{n:,}' for n in sorted(stated)) or 'none'} from its "
                f"predictions; add --size {model}=NUMBER, such as 86M, or name models apart: "
                "NAME=FILE"
            )
        # `Deberta` of `DebertaForSequenceClassification`, the architecture without its task.
        names = [str(fact["architecture"]) for fact in facts if fact.get("architecture")]
        family = re.sub(r"(For[A-Z]\w+|LMHeadModel|Model)$", "", names[0]) if names else "other"
        sizes[model] = min(stated), family
    return sizes


def sizes(request: Request, *, sizes: Sequence[str] = (), settings: Settings = USUAL) -> Table:
    """Make a row per model and configuration: by configuration, family, and size."""
    known = read_sizes(request.sources, sizes)
    rows = []
    for frame in request.frames():
        parameters, family = known[frame.model]
        size = {"family": family, "parameters": parameters}
        rows.append(identity(frame) | size | fooling_of(frame.counts, settings))
    orders = {key: distinct(rows, key) for key in ("config", "family")}
    rows.sort(key=lambda row: (*(o.index(row[k]) for k, o in orders.items()), row["parameters"]))
    return titled("sizes", rows)


def plot_sizes(table: Table) -> plots.Figure:
    """Draw a panel per configuration, with a line for r_r and a dashed one for r_s per family."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    families = distinct(table.rows, "family")
    figure, of_configs = plots.config_panels(table)
    for axes, of_config in of_configs:
        axes.set_xscale("log")
        plots.grid(axes)
        axes.set_xlabel("parameters")
        for family, rows in plots.grouped(of_config, "family").items():
            colour = plots.PALETTE[families.index(family) % len(plots.PALETTE)]
            x = [row["parameters"] for row in rows]
            for key, style in (
                (RELAXED, {"linestyle": "-", "marker": "o"}),
                (STRICT, {"linestyle": (0, (5, 1.5)), "marker": "s", "fillstyle": "none"}),
            ):
                name = CATALOGUE[key].symbol
                y = [np.nan if row[key] is None else row[key] for row in rows]
                axes.plot(x, y, label=f"{family}, {name}", color=colour, linewidth=1.6, **style)
            name_style: Any = {"color": colour, "fontsize": "small", "rotation": 25}
            name_style |= {"xytext": (2, 4), "textcoords": "offset points"}
            for row in (row for row in rows if row[RELAXED] is not None):
                axes.annotate(row["model"], (row["parameters"], row[RELAXED]), **name_style)
    plots.label_left(figure, "fooled seeds, %")
    highest = max(row[key] or 0.0 for row in table.rows for key in FOOLING)
    axes = figure.axes[0]  # whose scales the others share
    plots.percent_axis(axes, highest + 0.08)  # room for a name
    sizes = [row["parameters"] for row in table.rows]
    axes.set_xlim(min(sizes) / 1.8, max(sizes) * 1.8)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    plots.legend_below(figure)
    return figure


def short(number: float) -> str:
    """Write a number of parameters in few characters."""
    # A number that would be rounded to 1,000 of a unit is 1 of the next.
    unit = max((u for u, n in _UNITS.items() if number >= 0.9995 * n), key=_UNITS.__getitem__)
    return f"{number / _UNITS[unit]:.3g}{unit}"


# --- Label probabilities ---

_GROUPS: Final = ("unchanged", "changed")
"""Groups of variants of seeds answered right, by whether the prediction changes."""

_SIGMAS: Final = {
    "seeds": "sigma_seeds",
    "variants, prediction unchanged": "sigma_unchanged",
    "variants, prediction changed": "sigma_changed",
}
_SHIFTS: Final = {
    "Jensen–Shannon divergence, bits": {f"prediction {group}": f"jsd_{group}" for group in _GROUPS},
    "Kolmogorov–Smirnov distance": {f"prediction {group}": f"ks_{group}" for group in _GROUPS},
}


def shift(request: Request) -> Table:
    """Make a row per model and configuration, and averages (figure 3)."""
    pairs = {"JSD ": ("jsd_unchanged", "jsd_changed"), "KS ": ("ks_unchanged", "ks_changed")}
    keys = [key for pair in pairs.values() for key in pair]
    return _of_probabilities("shift", request.frames(), keys, pairs)


def no_probabilities(frame: Frame) -> ValueError:
    """Make the error for a frame without label probabilities."""
    return ValueError(
        f"{frame.model}, {frame.config}: expected label probabilities, in a column called "
        f"probabilities, got predictions without; `merge-nli predict` writes them"
    )


def _of_probabilities(
    name: str,
    frames: Iterable[Frame],
    keys: Sequence[str],
    pairs: Mapping[str, Sequence[str]],
    **more: Any,
) -> Table:
    """Tabulate figures of label probabilities, and their averages.

    A note says how far apart the two figures of each of `pairs` are, averaged over sources.
    """
    rows = []
    kinds = ("sigma", *(key.partition("_")[0] for key in keys))
    for frame in frames:
        if frame.shift is None:
            raise no_probabilities(frame)
        row = identity(frame) | {"averaged": None}
        row |= {f"n_{group}": frame.shift[f"jsd_{group}"][1] for group in _GROUPS}
        row |= {key: value for key, value in means(frame.shift).items() if key.startswith(kinds)}
        rows.append(row | more)
    of_configs = per_config(rows, keys, [f"n_{group}" for group in _GROUPS])
    gaps = []
    for what, pair in pairs.items():
        low, high = (weighted_mean(row[key] for row in of_configs) for key in pair)
        if low is not None and high is not None:
            gaps.append(f"{what}{show_value(high - low, 'change')}")
    averages = (row for row in of_configs if row["averaged"])
    return titled(name, (*rows, *averages), gaps=gaps, **more)


def plot_shift(table: Table) -> plots.Figure:
    """Draw JSD and KS side by side: two bars per configuration, averaged over models."""
    keys = [key for series in _SHIFTS.values() for key in series.values()]
    return plots.bars_by_config(per_config(table.rows, keys), _SHIFTS, top=1)


def confidence(request: Request) -> Table:
    """Make a row per model and configuration, and averages (figure 4)."""
    frames = list(request.frames())
    one_label = np.eye(len(common_labels(frames)))  # which has all of the probability
    pairs = {"": ("sigma_seeds", "sigma_changed")}
    highest = float(sigma(one_label)[0])
    return _of_probabilities("confidence", frames, [*_SIGMAS.values()], pairs, highest=highest)


def plot_confidence(table: Table) -> plots.Figure:
    """Draw three bars per configuration, averaged over models, and a line at the largest σ."""
    rows, highest = per_config(table.rows, [*_SIGMAS.values()]), table.rows[0]["highest"]
    parts, top = {"σ of label probabilities": _SIGMAS}, max(0.5, 1.05 * highest)
    figure = plots.bars_by_config(rows, parts, top=top)
    figure.axes[0].axhline(highest, color=plots.GREY, linewidth=0.8, linestyle=":")
    return figure


# --- Calibration ---
#
# Does confidence, the highest probability of an answer, say how often a model is right? Expected
# calibration error (Naeini et al. 2015) over bins of equal mass (Nguyen and O'Connor 2015), the
# Brier score (1950) of confidence as a forecast of being right, and its parts (Murphy 1973).


def calibration(request: Request, *, bins: int = 15, settings: Settings = USUAL) -> Table:
    """Make a row for seeds and one for variants of each model and configuration."""
    frames = request.frames(with_rows=True)
    rows = [row for frame in frames for row in calibration_rows(frame, bins, settings)]
    return titled("calibration", rows, bins=bins)


def calibration_rows(frame: Frame, bins: int, settings: Settings) -> Iterator[Row]:
    """Yield the rows of a frame: of its seeds, each once, and of its distinct variants.

    Bins lie between quantiles of the confidence; answers of equal confidence share one.
    """
    if CONFIDENCE not in frame.values:
        raise no_probabilities(frame)
    rows, cluster = frame.rows, frame.counts.clusters
    confidence, own = (np.asarray(frame.values[key]) for key in (CONFIDENCE, SEED_CONFIDENCE))
    seeds, first = np.unique(rows.seed, return_index=True)
    right = rows.prediction == rows.gold[rows.seed]
    parts = {
        "seeds": (own[first], (rows.own == rows.gold)[seeds], seeds),
        "variants": (confidence, right, rows.seed),
    }
    # By seed: how many answers are the seed's, and their confidence; then of the others: (S, 4).
    own_answer, n_seeds = rows.own[rows.seed], len(rows.seed_ids)
    group = np.where(own_answer == NO_LABEL, 2, (rows.prediction != own_answer).astype(np.int64))
    of_group = sums_by(rows.seed, group, (n_seeds, 3), np.ones(len(group)), confidence)
    groups = of_group[:, :2].reshape(n_seeds, 4)
    for of, (sure, is_right, seed) in parts.items():
        bin_of = np.searchsorted(np.quantile(sure, np.linspace(0, 1, bins + 1))[1:-1], sure)
        one, errors = np.ones(len(seed)), (sure - is_right) ** 2
        n_bins = int(bin_of.max()) + 1
        sums = sums_by(seed, bin_of, (n_seeds, n_bins), one, sure, is_right, errors)

        def figures(weights: Floats, sums: Floats = sums, of: str = of) -> dict[str, Floats]:
            made = calibration_of(weights, sums)
            if of == "variants":  # mean confidence where answers differ, less where they do not
                same, of_same, changed, of_changed = (weights @ groups).T
                with np.errstate(invalid="ignore", divide="ignore"):
                    made["drop"] = np.asarray(of_changed / changed - of_same / same)
            return made

        row: Row = identity(frame) | {"of": of, "n": len(sure), "drop": None}
        bounds = intervals(figures, len(sums), settings, cluster)
        for key, (value,) in figures(np.ones((1, len(sums)))).items():
            row[key] = None if np.isnan(value) else float(value)
            if key in ("ece", "brier", "drop") and key in bounds:
                row[f"{key}_ci"] = bounds[key]
        n, *means = sums.sum(axis=0)[:, :3].T
        filled = n > 0
        row["curve"] = [(mean[filled] / n[filled]).tolist() for mean in means]
        yield row


def calibration_of(weights: Floats, sums: Floats) -> dict[str, Floats]:
    """Compute figures of B weightings, (B, S), of answers summed by seed and bin; each (B,).

    The sums, (S, bins, 4), are of answers, confidence, right ones and squared errors.
    `ece` is |right − confidence|, weighted by n / N, over bins; `brier` the mean squared error;
    `reliability` − `resolution` + `uncertainty` is the Brier score of the bins' means.
    """
    n, confidence, right, errors = np.tensordot(weights, sums, axes=1).transpose(2, 0, 1)
    total = n.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = right.sum(axis=1) / total
        gaps = np.nan_to_num((confidence - right) ** 2 / n)
        spread = np.nan_to_num((right - n * rate[:, None]) ** 2 / n)
        return {
            "accuracy": rate,
            "confidence": confidence.sum(axis=1) / total,
            "ece": np.abs(confidence - right).sum(axis=1) / total,
            "brier": errors.sum(axis=1) / total,
            "reliability": gaps.sum(axis=1) / total,
            "resolution": spread.sum(axis=1) / total,
            "uncertainty": rate * (1 - rate),
        }


def plot_calibration(table: Table) -> plots.Figure:
    """Draw a panel per configuration: share right by confidence, a line per model and part."""
    models = plots.distinct(table.rows, "model")
    figure, of_configs = plots.config_panels(table)
    for axes, rows in of_configs:
        axes.plot([0, 1], [0, 1], color="0.7", lw=0.8)
        for row in rows:
            style = plots.line_style(models.index(row["model"]))
            dashes = {"linestyle": ":"} if row["of"] == "seeds" else {}
            axes.plot(*row["curve"], label=f"{row['model']}, {row['of']}", **(style | dashes))
        axes.set_ylim(0, 1)
        for axis in (axes.xaxis, axes.yaxis):
            plots.percent_ticks(axis)
        plots.grid(axes)
        axes.set_xlabel("confidence, %")
    plots.label_left(figure, "right, %")
    plots.legend_below(figure)
    return figure
