"""Shares of good variants, mean fluency and reasoning: in the sample, and weighted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from merge_dataset.annotation.answers import ENOUGH
from merge_dataset.schema import VARIANT_CLASSES
from merge_metric.agreement.coefficients import Floats, resampled
from merge_metric.agreement.judgements import (
    FLUENCY,
    REASONING,
    Bools,
    Cell,
    Item,
    Judgements,
)
from merge_metric.seed_variant_accuracy.resampling import CONFIDENCE, interval
from merge_metric.tables import Column, Table

COMBINED: Final = (
    f"A variant is good where F + R ≥ {ENOUGH}, F and R averaged over its annotators; in the row "
    "of an annotator, by that one's scores."
)


def share_table(
    judgements: Judgements,
    seeds: Mapping[Cell, int] | None = None,
    *,
    n_bootstrap: int,
    rng_seed: int,
) -> Table:
    """A row for all variants, and one for each group of them.

    Args:
        judgements: Of one annotator or more.
        seeds: Source and class → seeds in the dataset, for what is weighted; None where they
            are not known.
        n_bootstrap: Replicates for intervals of means and of what is weighted; 0 for none.
        rng_seed: Of the bootstrap.
    """
    items = judgements.items or ()
    draws = resampled(judgements.seed_ids, n_bootstrap, rng_seed)
    rows = [
        {"by": by, "group": group, **_in_sample(part, draws[:, chosen])}
        for by, group, chosen, part in groups(judgements)
    ]
    columns = [Column("by", "by"), Column("group", ""), Column("n", "variants", "count")]
    columns += [Column("good", "good, %", "share", "good_ci"), *_mean_columns("")]
    if seeds and items:
        weights = item_weights(items, seeds)
        resamplings = _resampled_weights(items, seeds, n_bootstrap, rng_seed)
        for row, (_, _, chosen, part) in zip(rows, groups(judgements), strict=True):
            row |= _means(part, weights[chosen], resamplings[:, chosen], "_weighted")
        columns.append(Column("good_weighted", "weighted, %", "share", "good_weighted_ci"))
        columns += _mean_columns("_weighted", "weighted ")
    return Table(
        name="shares",
        title="Good variants",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(_notes(items, seeds or {}, n_bootstrap)),
    )


# --- Groups ---


def groups(judgements: Judgements) -> Iterator[tuple[str, str, Bools, Judgements]]:
    """What is grouped by, the group, (N,) which variants are in it, and what was said of them."""
    everything = np.ones(len(judgements.variant_ids), np.bool_)
    yield "all", "", everything, judgements
    items = judgements.items or ()
    for by, names in _names(items).items():
        for name in names:
            chosen = np.array([name in _groups_of(item, by) for item in items])
            yield by, name, chosen, judgements.take(chosen)
    if len(judgements.annotators) > 1:
        for number, annotator in enumerate(judgements.annotators):
            chosen = judgements.codes[FLUENCY][number] > 0
            yield "annotator", annotator, chosen, judgements.by_one(number).take(chosen)


def _names(items: Sequence[Item]) -> dict[str, list[str]]:
    """What variants are grouped by → the groups that there are, in order."""
    classes = {item.word_class for item in items}
    counts = {len(item.mlms) for item in items if item.mlms}
    return {
        "class": [name for name in VARIANT_CLASSES if name in classes],
        "source": sorted({item.source for item in items}),
        "MLM": sorted({mlm for item in items for mlm in item.mlms}),
        "number of MLMs": [str(count) for count in sorted(counts)],
    }


def _groups_of(item: Item, by: str) -> frozenset[str]:
    """The groups that a variant is in, which of MLMs may be several."""
    if by == "MLM":
        return item.mlms
    if by == "number of MLMs":
        return frozenset({str(len(item.mlms))})
    return frozenset({item.source if by == "source" else item.word_class})


# --- Figures ---


def _in_sample(part: Judgements, draws: Floats) -> dict[str, Any]:
    """Of variants that weigh the same; the interval of the share is Wilson's."""
    n, good = len(part.variant_ids), int(part.good.sum())
    means = _means(part, np.ones(n), draws, "")
    return {"n": n, "n_good": good, **means, "good": good / n, "good_ci": wilson(good, n)}


def _means(part: Judgements, weights: Floats, resamplings: Floats, suffix: str) -> dict[str, Any]:
    """Share of good variants and means of F and R, by weights (n,), and in resamplings (B, n)."""
    good = part.good.astype(np.float64)
    values = {"good": good, "fluency": part.mean(FLUENCY), "reasoning": part.mean(REASONING)}
    several = len({*part.seed_ids}) > 1  # else every replicate is the sample
    row: dict[str, Any] = {}
    for key, value in values.items():
        row[f"{key}{suffix}"] = float(np.average(value, weights=weights))
        row[f"{key}{suffix}_ci"] = None
        if len(resamplings) and several:
            total = resamplings.sum(axis=1)
            drawn = total > 0  # of a small group maybe nothing is
            replicates = (resamplings @ value)[drawn] / total[drawn]
            row[f"{key}{suffix}_ci"] = interval(replicates).tolist() if drawn.any() else None
    return row


def wilson(count: int, n: int) -> list[float]:
    """95 % interval of a share (Wilson 1927), by statsmodels."""
    from statsmodels.stats.proportion import proportion_confint

    return [float(x) for x in proportion_confint(count, n, alpha=1 - CONFIDENCE, method="wilson")]


# --- Weights ---


def item_weights(items: Sequence[Item], seeds: Mapping[Cell, int]) -> Floats:
    """(N,) for how much each counts.

    Items of one source and class together as much as this has seeds; beside each other the
    more, the less likely they were to be drawn (Horvitz and Thompson 1952), where that is known.
    """
    weights: Floats = _scaled(_inverse_chances(items)[None], items, seeds)[0]
    return weights


def _inverse_chances(items: Sequence[Item]) -> Floats:
    """(N,) or, where that of another of the same source and class is not known, just 1."""
    alike = _without_chances(items)
    return np.array(
        [1.0 if item.chance is None or item.cell in alike else 1 / item.chance for item in items]
    )


def _without_chances(items: Sequence[Item]) -> set[Cell]:
    """Sources and classes with variants of which it is not known how they were drawn."""
    return {item.cell for item in items if item.chance is None}


def _resampled_weights(
    items: Sequence[Item], seeds: Mapping[Cell, int], n_bootstrap: int, rng_seed: int
) -> Floats:
    """(n_bootstrap, N) `item_weights` where the seeds of each source and class are resampled.

    As many as there are, so that none is ever without items; and however many items these have,
    sources and classes weigh what they weigh, or the intervals would be of other figures.
    """
    drawn = np.zeros((n_bootstrap, len(items)))
    for number, mine in enumerate(_by_cell(items).values()):
        seed_ids = [items[i].seed_id for i in mine]
        drawn[:, mine] = resampled(seed_ids, n_bootstrap, rng_seed + number)
    return _scaled(drawn * _inverse_chances(items), items, seeds)


def _scaled(weights: Floats, items: Sequence[Item], seeds: Mapping[Cell, int]) -> Floats:
    """(…, N) the same so that those of each source and class sum to its seeds."""
    scaled = np.zeros_like(weights)
    for cell, mine in _by_cell(items).items():
        own = weights[:, mine]
        scaled[:, mine] = own * (seeds.get(cell, 0) / own.sum(axis=1, keepdims=True))
    return scaled


def _by_cell(items: Sequence[Item]) -> dict[Cell, list[int]]:
    """Numbers of the items of each source and class, sorted by these."""
    mine: dict[Cell, list[int]] = defaultdict(list)
    for number, item in enumerate(items):
        mine[item.cell].append(number)
    return dict(sorted(mine.items()))


# --- Columns and notes ---


def _mean_columns(suffix: str, prefix: str = "") -> list[Column]:
    return [
        Column(f"{key}{suffix}", prefix + heading, "number", f"{key}{suffix}_ci")
        for key, heading in (("fluency", "F"), ("reasoning", "R"))
    ]


def _notes(items: Sequence[Item], seeds: Mapping[Cell, int], n_bootstrap: int) -> Iterator[str]:
    resampling = f"; of the rest percentiles over {n_bootstrap:,} resamplings of the seeds"
    yield (
        f"{COMBINED} In brackets 95 % intervals: of shares of the sample Wilson's, which take "
        "variants of a seed for independent" + (f"{resampling}." if n_bootstrap else ".")
    )
    if not (items and seeds):
        return
    there = {item.cell for item in items}
    alike = _without_chances(items)
    within = (
        "; within them the less likely a variant was to be drawn, the more it counts, as the "
        "sample is spread evenly over masked LMs"
    )
    yield (
        "Weighted: each source and class by its seeds in the dataset, "
        f"{_listed({cell: n for cell, n in seeds.items() if cell in there})}"
        f"{within if there - alike else ''}."
    )
    if alike:
        yield (
            "How likely variants were to be drawn is not known of "
            f"{', '.join(f'{source} {name}' for source, name in sorted(alike))}: there each counts "
            "as much, although a sample that is spread evenly over masked LMs has too many of "
            "some; --session says how they were drawn."
        )
    if left_out := {cell: n for cell, n in seeds.items() if n and cell not in there}:
        yield f"Not judged, and so not counted in what is weighted: {_listed(left_out)}."


def _listed(seeds: Mapping[Cell, int]) -> str:
    return ", ".join(f"{source} {name} {n:,}" for (source, name), n in sorted(seeds.items()))
