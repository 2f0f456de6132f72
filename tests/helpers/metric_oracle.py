"""The metric again, slowly and obviously: loops and fractions, averaged at the very end."""

import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise
from typing import Any

import numpy as np
from scipy.spatial.distance import jensenshannon

LABELS = ("entailment", "neutral", "contradiction")
LETTERS = {"E": "entailment", "N": "neutral", "C": "contradiction"}
OPPOSITES = (("entailment", "contradiction"),)

FIGURES = (
    "seed_accuracy", "variant_accuracy", "seed_variant_accuracy", "qt_gap", "matching_threshold",
    "matching_threshold_low", "matching_threshold_high", "matching_gap", "holding_threshold",
    "relaxed_fooling_rate", "strict_fooling_rate", "sv_curve_area", "core_index",
    "contrast_consistency", "agreement", "agreement_gated_accuracy", "stable_but_wrong",
)  # fmt: skip

WHERE_CURVE_MEETS_S = FIGURES[4:9]
"""Figures that come from the averaged curve if there are several subsamples."""

Figures = dict[str, Fraction | None]


@dataclass(frozen=True)
class Row:
    seed_id: Any
    gold: str
    own: str | None
    """Prediction for the seed itself; None if it is no label."""
    prediction: str | None
    subsamples: tuple[int, ...] = (0,)
    groups: tuple[tuple[str, tuple[Any, ...]], ...] = ()


def problems(*lines: str) -> list[Row]:
    """Rows from lines such as "E E EENC": gold label, seed's prediction, variants' predictions."""
    rows = []
    for number, line in enumerate(lines):
        gold, own, variants = line.split()
        for letter in variants:
            rows.append(Row(f"s:{number}", LETTERS[gold], LETTERS[own], LETTERS[letter]))
    return rows


def random_problems(
    rng: random.Random,
    *,
    seeds: int,
    variants: tuple[int, int] = (1, 8),
    subsamples: int = 0,
    labels: Sequence[str] = LABELS,
    skill: float | None = None,
    unlabelled: float = 0,
) -> list[Row]:
    """Rows in random order. Group `word` has one value per row, group `mlm` any number."""
    rows = []
    for number in range(seeds):
        gold = rng.choice(labels)
        easy = rng.random() if skill is None else skill

        def answer(gold: str = gold, easy: float = easy) -> str | None:
            if unlabelled and rng.random() < unlabelled:
                return None
            return gold if rng.random() < easy else rng.choice(labels)

        own, count = answer(), rng.randint(*variants)
        drawn: list[set[int]] = [set() for _ in range(count)]
        for n in range(subsamples):
            rng.choice(drawn).add(n)  # each seed is in every subsample
            for chosen in drawn:
                if rng.random() < 0.4:
                    chosen.add(n)
        for chosen in drawn:
            mlms = tuple(m for m in ("bert", "roberta") if rng.random() < 0.6)
            groups = (("word", (rng.choice(("noun", "verb", "adjective")),)), ("mlm", mlms))
            order = tuple(rng.sample(sorted(chosen), len(chosen))) if subsamples else (0,)
            rows.append(Row(f"s:{number}", gold, own, answer(), order, groups))
    rng.shuffle(rows)
    return rows


def columns(
    rows: Sequence[Row],
    *,
    labels: Sequence[str] | None = None,
    subsamples: bool = False,
    groups: bool = False,
) -> dict[str, Any]:
    """Make keyword arguments of `score`; with `labels`, labels are their positions there."""

    def coded(label: str | None) -> Any:
        return label if labels is None or label is None else list(labels).index(label)

    result: dict[str, Any] = {
        "predictions": [coded(row.prediction) for row in rows],
        "references": [coded(row.gold) for row in rows],
        "seed_ids": [row.seed_id for row in rows],
        "seed_predictions": [coded(row.own) for row in rows],
    }
    if subsamples:
        result["subsamples"] = [list(row.subsamples) for row in rows]
    if groups:
        names = [name for name, _ in rows[0].groups]
        result["groups"] = {name: [list(dict(row.groups)[name]) for row in rows] for name in names}
    return result


# --- One subsample ---


def by_seed(rows: Iterable[Row]) -> dict[Any, list[Row]]:
    seeds: dict[Any, list[Row]] = {}
    for row in rows:
        seeds.setdefault(row.seed_id, []).append(row)
    return seeds


def seed_variant_accuracy(rows: Sequence[Row], threshold: int) -> Fraction:
    """Share of seeds with at least `threshold` percent of their variants right."""
    seeds = by_seed(rows)
    solved = 0
    for variants in seeds.values():
        right = sum(row.prediction == row.gold for row in variants)
        if Fraction(right, len(variants)) >= Fraction(threshold, 100):
            solved += 1
    return Fraction(solved, len(seeds))


def seed_accuracy(rows: Sequence[Row]) -> Fraction:
    seeds = by_seed(rows)
    return Fraction(sum(v[0].own == v[0].gold for v in seeds.values()), len(seeds))


def curve(rows: Sequence[Row]) -> list[Fraction]:
    """SV accuracy at thresholds of 1, 2, … 100 percent."""
    return [seed_variant_accuracy(rows, threshold) for threshold in range(1, 101)]


def matching(accuracy: Sequence[Fraction], wanted: Fraction) -> tuple[int, int, Fraction]:
    """First and last threshold at which the curve is closest to `wanted`, and the gap."""
    gap = min(abs(value - wanted) for value in accuracy)
    best = [n for n, value in enumerate(accuracy, start=1) if abs(value - wanted) == gap]
    assert best == list(range(best[0], best[-1] + 1))
    return best[0], best[-1], gap


def fooling_rates(
    rows: Sequence[Row], opposites: Iterable[Sequence[str]] = OPPOSITES
) -> tuple[Fraction | None, Fraction | None]:
    """Relaxed and strict rate over the seeds answered right; None if there are none."""
    right = [v for v in by_seed(rows).values() if v[0].own == v[0].gold]
    if not right:
        return None, None
    relaxed = strict = 0
    for variants in right:
        own = variants[0].own
        changed = [row.prediction for row in variants if row.prediction != own]
        opposite = {a: b for pair in opposites for a, b in (pair, pair[::-1])}.get(own)
        if changed:
            relaxed += 1
        labelled = [prediction for prediction in changed if prediction is not None]
        if opposite in labelled or (opposite is None and labelled):
            strict += 1
    return Fraction(relaxed, len(right)), Fraction(strict, len(right))


def mca(rows: Sequence[Row], consistency: Fraction) -> Fraction:
    """Minimum-consistency accuracy: seeds with at least such a share of variants right."""
    seeds = by_seed(rows).values()
    shares = [Fraction(sum(row.prediction == row.gold for row in v), len(v)) for v in seeds]
    return Fraction(sum(share >= consistency for share in shares), len(shares))


def warped_distance(one: Sequence[Fraction], other: Sequence[Fraction]) -> Fraction:
    """Least sum of differences over all alignments in time (dynamic time warping)."""
    paths: dict[tuple[int, int], Fraction] = {}
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            before = [paths[p] for p in ((i - 1, j), (i, j - 1), (i - 1, j - 1)) if p in paths]
            paths[i, j] = abs(a - b) + min(before, default=Fraction(0))
    return paths[len(one) - 1, len(other) - 1]


def core_index(rows: Sequence[Row]) -> Fraction:
    """Area under the CAR curve times its warped closeness to 1 (Cavalin et al., 2025)."""
    grid = [Fraction(n, 10) for n in range(11)]
    values = [mca(rows, consistency) for consistency in grid]
    area = sum((a + b) / 2 / 10 for a, b in pairwise(values))
    ideal, worst = [Fraction(1)] * 11, [Fraction(1)] + [Fraction(0)] * 10
    return area * (1 - warped_distance(values, ideal) / warped_distance(ideal, worst))


def commonest(variants: Sequence[Row]) -> tuple[Fraction, bool]:
    """Share of the commonest answer, and whether the gold label is as common."""
    answers = Counter(row.prediction for row in variants if row.prediction is not None)
    most = max(answers.values(), default=0)
    return Fraction(most, len(variants)), answers[variants[0].gold] == most


def kin(rows: Sequence[Row], threshold: int) -> Figures:
    """Compute related figures of the same sets: consistency, agreement, stable but wrong."""
    seeds = list(by_seed(rows).values())
    of_seed = [commonest(variants) for variants in seeds]
    all_right = [all(a == row.gold for row in v for a in (row.own, row.prediction)) for v in seeds]
    stable = [share >= Fraction(threshold, 100) for share, _ in of_seed]
    gated = [
        Fraction(sum(row.prediction == row.gold for row in variants), len(variants))
        for variants, kept in zip(seeds, stable, strict=True)
        if kept
    ]
    wrong = [kept and not gold for kept, (_, gold) in zip(stable, of_seed, strict=True)]
    return {
        "sv_curve_area": sum(curve(rows), Fraction(0)) / 100,
        "core_index": core_index(rows),
        "contrast_consistency": Fraction(sum(all_right), len(seeds)),
        "agreement": sum((share for share, _ in of_seed), Fraction(0)) / len(seeds),
        "agreement_gated_accuracy": mean(gated),
        "stable_but_wrong": Fraction(sum(wrong), len(seeds)),
    }


def where_curve_meets_s(accuracy: Sequence[Fraction], own: Fraction) -> Figures:
    """MC, its range and gap, and the last threshold at which the curve reaches `own`."""
    low, high, gap = matching(accuracy, own)
    holding = max((n for n, value in enumerate(accuracy, start=1) if value >= own), default=0)
    result = (Fraction(low), Fraction(low), Fraction(high), gap, Fraction(holding))
    return dict(zip(WHERE_CURVE_MEETS_S, result, strict=True))


def figures(
    rows: Sequence[Row], threshold: int = 90, opposites: Iterable[Sequence[str]] = OPPOSITES
) -> Figures:
    accuracy, own = curve(rows), seed_accuracy(rows)
    relaxed, strict = fooling_rates(rows, opposites)
    return {
        "seed_accuracy": own,
        "variant_accuracy": Fraction(sum(r.prediction == r.gold for r in rows), len(rows)),
        "seed_variant_accuracy": accuracy[threshold - 1],
        "qt_gap": own - accuracy[90 - 1],
        **where_curve_meets_s(accuracy, own),
        "relaxed_fooling_rate": relaxed,
        "strict_fooling_rate": strict,
        **kin(rows, threshold),
    }


# --- All subsamples ---


def mean(values: Iterable[Fraction | None]) -> Fraction | None:
    defined = [value for value in values if value is not None]
    return sum(defined, Fraction(0)) / len(defined) if defined else None


def spread(values: Iterable[Fraction | None]) -> float | None:
    """Sample standard deviation of the defined values; 0 for one value."""
    defined = [value for value in values if value is not None]
    if not defined:
        return None
    return statistics.stdev(defined) if len(defined) > 1 else 0.0


def parts(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows of each subsample that has any, in ascending order of the subsamples' numbers."""
    rows = list(rows)
    numbers = sorted({n for row in rows for n in row.subsamples})
    return [[row for row in rows if n in row.subsamples] for n in numbers]


def averaged(
    rows: Sequence[Row], threshold: int = 90, opposites: Iterable[Sequence[str]] = OPPOSITES
) -> dict[str, Any]:
    """Mean figures over subsamples, `_std`, counts, the mean curve and its matching threshold."""
    item = [figures(part, threshold, opposites) for part in parts(rows)]
    drawn = [row for row in rows if row.subsamples]
    spreading = [key for key in FIGURES if key not in WHERE_CURVE_MEETS_S]
    result: dict[str, Any] = {key: mean(one[key] for one in item) for key in FIGURES}
    result |= {f"{key}_std": spread(one[key] for one in item) for key in spreading}
    result |= {"n_seeds": len(by_seed(drawn)), "n_variants": len(drawn)}
    curves = [curve(part) for part in parts(rows)]
    accuracy = [sum(values, Fraction(0)) / len(curves) for values in zip(*curves, strict=True)]
    thresholds = [one["matching_threshold"] for one in item]
    return result | {
        "curve": accuracy,
        "matching_threshold_per_subsample": mean(thresholds),
        "matching_threshold_per_subsample_std": spread(thresholds),
        **where_curve_meets_s(accuracy, result["seed_accuracy"]),
    }


def scores(
    rows: Sequence[Row], threshold: int = 90, opposites: Iterable[Sequence[str]] = OPPOSITES
) -> dict[str, Any]:
    """All results of `score` from labels alone: exact fractions; `_std` as floats."""
    names = [name for name, _ in rows[0].groups]
    groups: dict[str, dict[Any, Any]] = {name: {} for name in names}
    for name in names:
        for value in {value for row in rows for value in dict(row.groups)[name]}:
            members = [row for row in rows if value in dict(row.groups)[name]]
            if any(row.subsamples for row in members):
                groups[name][value] = averaged(members, threshold, opposites)
    return {
        **averaged(rows, threshold, opposites),
        "n_subsamples": len(parts(rows)),
        "by_label": {
            gold: averaged([row for row in rows if row.gold == gold], threshold, opposites)
            for gold in {row.gold for row in rows}
        },
        "by_group": groups,
    }


# --- Resampling ---


def resampled(rows: Sequence[Row], times: Mapping[Any, int]) -> list[Row]:
    """The dataset with each seed repeated as often as in `times`; copies are separate seeds."""
    return [
        replace(row, seed_id=(row.seed_id, copy))
        for row in rows
        for copy in range(times.get(row.seed_id, 0))
    ]


def every_resample(seeds: Sequence[Any]) -> Iterator[tuple[dict[Any, int], Fraction]]:
    """Yield each multiset of the same number of seeds, with its probability in the bootstrap."""
    count = len(seeds)
    for drawn in combinations_with_replacement(seeds, count):
        times = {seed: drawn.count(seed) for seed in seeds}
        ways = math.factorial(count)
        for number in times.values():
            ways //= math.factorial(number)
        yield times, Fraction(ways, count**count)


def quantile(values: Sequence[tuple[float, float]], at: float) -> float:
    """Smallest value of (value, probability) pairs at which the distribution reaches `at`."""
    total = sum(probability for _, probability in values)
    reached = 0.0
    for value, probability in sorted(values):
        reached += probability / total
        if reached >= at:
            return value
    raise AssertionError(reached)


# --- Distributions ---


def divergences(
    rows: Sequence[Row],
    probabilities: Sequence[Sequence[float]],
    seed_probabilities: Sequence[Sequence[float]],
) -> dict[str, float | None]:
    """Mean divergences of variants of the seeds answered right, separately for changed ones."""
    result: dict[str, float | None] = {}
    right = [i for i, row in enumerate(rows) if row.own == row.gold]
    for name, wanted in (("changed", True), ("unchanged", False)):
        group = [i for i in right if (rows[i].prediction != rows[i].own) == wanted]
        pairs = [(seed_probabilities[i], probabilities[i]) for i in group]
        outcome = {
            f"jsd_{name}": [jensenshannon(before, after, base=2) ** 2 for before, after in pairs],
            f"ks_{name}": [abs(np.cumsum(b) - np.cumsum(a)).max() for b, a in pairs],
            f"sigma_{name}": [statistics.pstdev(after) for _, after in pairs],
        }
        result |= {
            k: sum(values) / len(values) if values else None for k, values in outcome.items()
        }
    of_seeds = {rows[i].seed_id: statistics.pstdev(seed_probabilities[i]) for i in right}
    result["sigma_seeds"] = sum(of_seeds.values()) / len(of_seeds) if of_seeds else None
    return result
