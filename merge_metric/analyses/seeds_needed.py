"""Numbers of seeds needed to estimate a figure, and to show a difference of two models.

The paper evaluates language models on one of 100 draws of 500 seeds (appendix A.4.1), and says that
S moves by around 3 % between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np

from merge_dataset.schema import format_of
from merge_metric.analyses.measures import Bools, Floats, Ints, Row, titled
from merge_metric.analyses.registry import Request
from merge_metric.analyses.variant_groups import random_ranks
from merge_metric.frame.joined import VARIANT_IDS, Frame, by_config
from merge_metric.seed_variant_accuracy.counts import SeedCounts
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, Figure, figures, sv_at
from merge_metric.seed_variant_accuracy.options import USUAL, Settings
from merge_metric.seed_variant_accuracy.resampling import CONFIDENCE, interval, resampled_units
from merge_metric.tables import Table, plots
from merge_metric.tables.plots import COLUMN, PAGE, PALETTE, distinct

_Z: Final = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


def stability(
    request: Request,
    *,
    draws: int = 100,
    seeds: int = 500,
    width: float = 5.0,
    settings: Settings = USUAL,
) -> Table:
    """Make rows of labels, S and SV accuracy on draws of seeds without replacement.

    Models of the same seeds see the same draws. `width`, in points, is wanted of an interval.
    """
    ct, rows = settings.correctness_threshold, list[Row]()
    known: dict[str, list[Sequence[Any]]] = {}
    for config, model, ids, gold, labels, counts in _seeds(request):
        weights = draw_seeds(len(ids), seeds, draws, settings.rng_seed, config)
        before = known.setdefault(config, [])
        # Figure → each seed's contribution, (S,), and the figure in the draws.
        parts: list[tuple[str | None, str, Floats, Floats]] = []
        if ids not in before:
            # Labels are the same for all models, unless some were asked about other seeds.
            for code, label in enumerate(labels):
                influence = (gold == code).astype(np.float64)
                shares = weights @ influence / seeds
                parts.append((model if before else None, label, influence, shares))
            before.append(ids)
        if counts is not None:
            of_draws = figures(counts, ct, weights).means()
            for heading, key, holds in (
                (CATALOGUE["seed_accuracy"].heading, "seed_accuracy", counts.right[:, None]),
                (sv_at(ct).heading, "seed_variant_accuracy", counts.level >= ct),
            ):
                parts.append((model, heading, influence_of(holds, counts.present), of_draws[key]))
        for whose, heading, influence, drawn in parts:
            value = float(influence.mean())
            off = np.abs(drawn - value)
            rows.append({
                "config": config,
                "model": whose,
                "figure": heading,
                "n_seeds": len(influence),
                "n_drawn": seeds,
                "value": value,
                "value_ci": interval(drawn).tolist(),
                "mean_off": float(off.mean()),
                "largest_off": float(off.max()),
                "spread": float(drawn.std(ddof=1)) if len(drawn) > 1 else None,
                "needed": needed(influence, width / 100),
                "draws": drawn.tolist(),
            })  # fmt: skip
    too_few = any((row["needed"] or 0) > row["n_seeds"] for row in rows)
    return titled("stability", rows, draws=draws, seeds=seeds, width=width, too_few=too_few)


def influence_of(holds: Bools, present: Bools) -> Floats:
    """Compute each seed's contribution, (S,), to a share averaged over K subsamples.

    The mean of the contributions is the share. `holds`, (S, K) or (S, 1), says for which seeds the
    condition holds. A seed has more weight in subsamples with fewer seeds `present`, (S, K).
    """
    occurs: Bools = np.any(present, axis=0)
    present = present[:, occurs]
    in_each = np.broadcast_to(holds, (len(holds), len(occurs)))[:, occurs] & present
    n_present = present.sum(axis=0)
    shares = in_each.sum(axis=0) / n_present
    off = np.where(present, in_each - shares, 0.0) * len(present) / n_present
    return np.asarray(off.mean(axis=1) + shares.mean())


def _seeds(
    request: Request,
) -> Iterator[tuple[str, str | None, Sequence[Any], Ints, tuple[str, ...], SeedCounts | None]]:
    """Yield configurations, models, seeds, gold labels, labels, and counts where there are some."""
    if request.sources or request.at_hand:
        for frame in request.frames():
            of = frame.counts
            yield frame.config, frame.model, of.seed_ids, of.gold, of.labels, of
        return
    for config in request.chosen_configs():
        table = request.seeds(config).sort_by("seed_id")
        gold, labels = table["label"].to_numpy(), format_of(table.schema).labels
        yield config, None, table["seed_id"].to_pylist(), gold, labels, None


def draw_seeds(n_seeds: int, size: int, draws: int, rng_seed: int, where: str) -> Floats:
    """Draw seeds: (draws, n_seeds) with 1 for the seeds of a draw, 0 for all others."""
    if n_seeds <= size:
        raise ValueError(
            f"{where}: expected more seeds than are drawn, got {n_seeds:,}, of which {size:,} are "
            "to be drawn; draw fewer with `seeds`"
        )
    rng = np.random.default_rng(rng_seed)
    weights = np.zeros((draws, n_seeds))
    for row in weights:
        row[rng.choice(n_seeds, size, replace=False)] = 1.0
    return weights


def needed(influence: Floats, width: float) -> int | None:
    """Compute the fewest seeds with a 95 % interval of this width (0–1); None without variance."""
    spread = float(influence.std())
    if spread < 1e-12:
        return None
    return math.ceil((2 * _Z * spread / width) ** 2)


def plot_stability(table: Table) -> plots.Figure:
    """Draw a panel per configuration: the deviation of each draw, and the middle 95 % of draws."""
    figure, of_configs = plots.config_panels(table, stacked=True)
    longest, height = 0, 0.0
    for axes, rows in of_configs:
        models = distinct(rows, "model")
        for place, row in enumerate(rows):
            off = 100 * (np.array(row["draws"]) - row["value"])
            low, high = (100 * (bound - row["value"]) for bound in row["value_ci"])
            colour = PALETTE[models.index(row["model"]) % len(PALETTE)]
            axes.plot([low, high], [place, place], color=colour, linewidth=5, alpha=0.35)
            axes.plot(off, [place] * len(off), "|", color=colour, markersize=8, alpha=0.5)
        axes.axvline(0, color="black", linewidth=0.8)
        names = [f"{row['model'] or 'labels'}: {row['figure']}" for row in rows]
        longest, height = max(longest, *map(len, names)), height + (0.7 + 0.22 * len(rows))
        axes.set_yticks(range(len(rows)), names)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        plots.grid(axes, "x")
    figure.set_size_inches(min(PAGE, COLUMN + 0.03 * longest), height)
    figure.axes[-1].set_xlabel("draws minus all seeds, points")
    return figure


# --- A difference between two models ---
#
# Two models answer the same seeds, so what varies is their difference on a seed. Its variance, by
# seeds or by clusters of seeds, says how small a difference a data set shows, and how many seeds
# show a given one: the usual calculation for a paired test (Miller 2024, arXiv 2411.00640, does it
# for single questions). Variants of a seed are drawn from all that the data set has of it.

_Z_POWER: Final = _Z + NormalDist().inv_cdf(0.8)
"""Standard errors of a difference that is found significant with a probability of 0.8."""


class Answers(NamedTuple):
    """Answers of two models to the n distinct variants of the same S seeds."""

    seed: Ints
    """(n,) the seed of each variant, from 0 to S − 1."""
    right: Bools
    """(n, 2) whether each model answers each variant right."""
    seed_right: Bools
    """(S, 2) whether each model answers each seed right."""
    unit: Ints
    """(S,) each seed's cluster, which is its own without clusters."""


def answers_of(first: Frame, second: Frame) -> Answers:
    """Join the answers of two frames on one configuration, on the variants that both answer."""
    ids = [np.asarray(frame.values[VARIANT_IDS], str) for frame in (first, second)]
    _, *places = np.intersect1d(ids[0], ids[1], assume_unique=True, return_indices=True)
    in_order = np.argsort(places[0])
    right, own = [], []
    for rows, place in ((first.rows, places[0]), (second.rows, places[1])):
        seed, chosen = rows.seed[place[in_order]], place[in_order]
        right.append(rows.prediction[chosen] == rows.gold[seed])
        own.append((rows.own == rows.gold)[np.unique(seed)])
    seeds, seed = np.unique(first.rows.seed[places[0][in_order]], return_inverse=True)
    clusters = first.counts.clusters
    unit = seeds if clusters is None else clusters.code[seeds]
    units = np.unique(unit, return_inverse=True)[1]
    return Answers(seed, np.stack(right, 1), np.stack(own, 1), units)


def power_rows(
    answers: Answers, *, difference: float = 2.0, settings: Settings = USUAL
) -> Iterator[Row]:
    """Yield a row for S, and for variant and SV accuracy with each number of variants."""
    seed, right, seed_right, unit = answers
    ct, n_seeds, n_units = settings.correctness_threshold, len(unit), int(unit.max()) + 1
    own = seed_right.astype(np.float64) @ (1.0, -1.0)
    # Number of variants, figure, and seeds' contributions to the difference in K draws, (K, S).
    of_figures: list[tuple[str | None, Figure, Floats]]
    of_figures = [(None, CATALOGUE["seed_accuracy"], own[None])]
    median = float(np.median(np.bincount(seed)))
    sizes = (5, 10, 20, 40, 80)  # of variants per seed; a draw of the paper has 20 per class
    for size in (*(size for size in sizes if size <= median), None):
        counts = []  # per draw: variants of each seed, and variants that each model answers right
        for number in range(10 if size else 1):  # draws over which the variance is averaged
            chosen = np.ones(len(seed), np.bool_)
            if size is not None:
                chosen = random_ranks(seed, settings.rng_seed + number) < size
            parts = (chosen, chosen & right[:, 0], chosen & right[:, 1])
            counts.append([np.bincount(seed[part], minlength=n_seeds) for part in parts])
        n, first, second = np.stack(counts, axis=1)  # (K, S) each
        less, mean = first - second, n.mean(axis=1, keepdims=True)
        gap = less.mean(axis=1, keepdims=True) / mean
        a, b = ((100 * of_model >= ct * n) * 1.0 for of_model in (first, second))
        per_seed = str(size or "all")
        of_figures += [
            (per_seed, CATALOGUE["variant_accuracy"], (less - gap * n) / mean + gap),
            (per_seed, sv_at(ct), a - b),
        ]
    for variants, figure, influence in of_figures:
        off = influence - influence.mean(axis=1, keepdims=True)
        squares = [float((np.bincount(unit, of) ** 2).sum()) for of in off]
        error = math.sqrt(sum(squares) / len(squares) * n_units / max(n_units - 1, 1)) / n_seeds
        row: Row = {"figure": figure.heading, "per_seed": variants, "n_seeds": n_seeds}
        row |= {"difference": float(influence.mean())}
        row |= dict.fromkeys(("standard_error", "smallest", "needed"))
        if n_units > 1 and error > 1e-12:  # otherwise nothing varies
            row |= {"standard_error": error, "smallest": _Z_POWER * error}
            row["needed"] = math.ceil(n_seeds * (100 * _Z_POWER * error / difference) ** 2)
        yield row


def power(request: Request, *, difference: float = 2.0, settings: Settings = USUAL) -> Table:
    """Make rows for each pair of models; seeds may be clustered by a text, such as `premise`.

    `difference`, in points, is one that should be found significant.
    """
    rows: list[Row] = []
    for config, of_models in by_config(request.frames(with_rows=True)).items():
        for first, second in combinations(of_models, 2):
            who: Row = {"config": config, "a": first.model, "b": second.model}
            of_pair = power_rows(
                answers_of(first, second), difference=difference, settings=settings
            )
            rows += [who | row for row in of_pair]
    units = resampled_units(request.cluster)
    return titled("power", rows, units=units, difference=difference)


def plot_power(table: Table) -> plots.Figure:
    """Draw the smallest detectable difference by number of seeds, a panel per configuration."""
    figure, of_configs = plots.config_panels(table, stacked=True)
    for axes, rows in of_configs:
        shown = [r for r in rows if r["smallest"] and r["per_seed"] in (None, "20", "all")]
        for number, row in enumerate(shown):
            seeds = np.geomspace(50, 20_000, 50)
            per_seed = f", {row['per_seed']} variants" if row["per_seed"] else ""
            axes.plot(
                seeds,
                100 * row["smallest"] * np.sqrt(row["n_seeds"] / seeds),
                color=PALETTE[number % len(PALETTE)],
                label=f"{row['a']} – {row['b']}: {row['figure']}{per_seed}",
            )
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_ylabel("smallest shown, points")
        plots.grid(axes, "both")
    figure.axes[-1].set_xlabel("seeds")
    plots.legend_below(figure)
    return figure
