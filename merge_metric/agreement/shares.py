"""Shares of good variants, of scores, of equivalent paraphrases; LMs to drop (figures 9, 10)."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any, Final

import numpy as np

from merge_dataset.annotation import ENOUGH
from merge_dataset.annotation.sample import Item
from merge_dataset.schema import VARIANT_CLASSES
from merge_metric.agreement.coefficients import resampled, titled
from merge_metric.agreement.judgements import (
    FLUENCY,
    REASONING,
    SAME,
    SCORES,
    Bools,
    Cell,
    Judgements,
)
from merge_metric.seed_variant_accuracy.figures import Floats
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.resampling import interval
from merge_metric.tables import Table

ANSWERS: Final = tuple(str(n) for n in range(1, SCORES[FLUENCY] + 1))
WEIGHTED: Final = "weighted"

_Z: Final = 1.959963984540054
"""Standard errors to either side in a 95 % interval of a normal distribution."""


def share_table(judgements: Judgements, settings: Settings) -> Table:
    """Tabulate shares of good variants by group, and shares weighted by seeds if known."""
    items, seeds = judgements.items, judgements.seeds
    draws = resampled(judgements.seed_ids, settings)
    rows: list[dict[str, Any]] = []
    for by, group, chosen, part in groups(judgements):
        n, good = len(part.variant_ids), int(part.good.sum())
        means = _means(part, np.ones(n), draws[:, chosen], "")
        share = {"good": good / n, "good_ci": wilson(good, n)}
        rows.append({"by": by, "group": group, "n": n, "n_good": good, **means, **share})
    if seeds and items:
        weights = item_weights(judgements, np.ones(len(items)))
        # Seeds are resampled within each source and class, so that none is ever without items;
        # and weights of sources and classes stay the same, however many items are drawn, or
        # the intervals would be of other figures.
        drawn = np.zeros((settings.n_bootstrap, len(items)))
        for number, of_cell in enumerate(_by_cell(items).values()):
            own = replace(settings, rng_seed=settings.rng_seed + number)
            drawn[:, of_cell] = resampled([items[i].seed_id for i in of_cell], own)
        resamplings = item_weights(judgements, drawn)
        for row, (_, _, chosen, part) in zip(rows, groups(judgements), strict=True):
            row |= _means(part, weights[chosen], resamplings[:, chosen], "_weighted")
    judged = {item.cell for item in items} if seeds else set()
    alike = {item.cell for item in items if item.chance is None} & judged
    return titled(
        "shares",
        rows,
        enough=ENOUGH,
        n_bootstrap=settings.n_bootstrap,
        weighted={cell: n for cell, n in seeds.items() if cell in judged},
        is_likely=bool(judged - alike),
        alike=alike,
        left_out={cell: n for cell, n in seeds.items() if judged and n and cell not in judged},
    )


def score_shares_table(judgements: Judgements) -> Table:
    """Tabulate shares of scores: a row per score and group (all, classes, masked LMs)."""
    rows: list[dict[str, Any]] = []
    groups_of = []
    for by, group, _, part in groups(judgements, ("class", "MLM"), annotators=False):
        alike = np.ones(len(part.variant_ids))
        groups_of.append((by, group, part, alike))
        if by == "all" and judgements.seeds and judgements.items:
            groups_of.append((by, WEIGHTED, part, item_weights(judgements, alike)))
    for score in (FLUENCY, REASONING):
        for by, group, part, weights in groups_of:
            # Each annotator of a variant has an equal part of its weight.
            chosen = np.eye(SCORES[score] + 1)[part.codes[score]][:, :, 1:].sum(axis=0)
            shares = np.average(chosen / part.n_annotators[:, None], axis=0, weights=weights)
            row = {"score": score, "by": by, "group": group, "n": len(part.variant_ids)}
            rows.append(row | dict(zip(ANSWERS, shares.tolist(), strict=True)))
    return titled("scores", rows)


def meaning_table(judgements: Judgements) -> Table:
    """Tabulate shares of paraphrases found to mean the same: all, by source, by annotator.

    Arakelyan et al. (2024), section 3.1, have 100 pairs, whose annotators "marked the samples as
    equivalent" in 99 % of the cases, with κ = 0.94. Both hold where 99 % is agreement: 90 pairs
    that both find the same, 9 that neither does and one that only one does have κ = 0.942.
    """
    rows = []
    for by, group, _, part in groups(judgements, ("source",)):
        answers = part.codes[SAME]
        n_yes, n_answers = int((answers == 2).sum()), int((answers > 0).sum())
        n, by_all = len(part.variant_ids), int((answers != 1).all(axis=0).sum())
        rows.append(
            {"by": by, "group": group, "n": n, "n_answers": n_answers, "n_yes": n_yes}
            | {"yes": n_yes / n_answers, "yes_ci": wilson(n_yes, n_answers)}
            | {"n_by_all": by_all, "by_all": by_all / n, "by_all_ci": wilson(by_all, n)}
        )
    return titled("meaning", rows)


# --- Groups ---


def groups(
    judgements: Judgements,
    by: Sequence[str] = ("class", "source", "MLM", "number of MLMs"),
    *,
    annotators: bool = True,
) -> Iterator[tuple[str, str, Bools, Judgements]]:
    """Yield all judgements, then groups: kind of group, name, mask of variants (N,), judgements."""
    yield "all", "", np.ones(len(judgements.variant_ids), np.bool_), judgements
    kinds: dict[str, tuple[Callable[[Item], Collection[str]], Callable[[str], Any] | None]] = {
        "class": (lambda item: (item.word_class,), VARIANT_CLASSES.index),
        "source": (lambda item: (item.source,), None),
        "MLM": (lambda item: item.mlms, None),
        "number of MLMs": (lambda item: (str(len(item.mlms)),) if item.mlms else (), int),
    }
    for name in by:
        of_item, order = kinds[name]
        of_items = [of_item(item) for item in judgements.items]
        for group in sorted({group for mine in of_items for group in mine}, key=order):
            chosen = np.array([group in mine for mine in of_items])
            yield name, group, chosen, judgements.take(chosen)
    if annotators and len(judgements.annotators) > 1:
        for number, annotator in enumerate(judgements.annotators):
            chosen = judgements.answered[number]
            codes = {name: codes[[number]] for name, codes in judgements.codes.items()}
            own = replace(judgements, annotators=(annotator,), codes=codes)
            yield "annotator", annotator, chosen, own.take(chosen)


# --- Figures ---


def _means(part: Judgements, weights: Floats, resamplings: Floats, suffix: str) -> dict[str, Any]:
    """Average good, F and R with weights (n,) and, for intervals, resampled weights (B, n)."""
    good = part.good.astype(np.float64)
    values = {"good": good, "fluency": part.mean(FLUENCY), "reasoning": part.mean(REASONING)}
    several = len({*part.seed_ids}) > 1  # else every replicate equals the sample
    row: dict[str, Any] = {}
    for key, value in values.items():
        row[f"{key}{suffix}"] = float(np.average(value, weights=weights))
        row[f"{key}{suffix}_ci"] = None
        if len(resamplings) and several:
            total = resamplings.sum(axis=1)
            drawn = total > 0  # perhaps nothing of a small group was drawn
            replicates = (resamplings @ value)[drawn] / total[drawn]
            row[f"{key}{suffix}_ci"] = interval(replicates).tolist() if drawn.any() else None
    return row


def wilson(count: float, n: float) -> list[float]:
    """Compute the 95 % interval of a share (Wilson 1927).

    >>> [round(bound, 3) for bound in wilson(9, 10)]
    [0.596, 0.982]
    """
    share, square = count / n, _Z**2
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = _Z * sqrt(share * (1 - share) / n + square / (4 * n**2)) / (1 + square / n)
    return [max(0.0, middle - half), min(1.0, middle + half)]


def newcombe(count_a: float, n_a: float, count_b: float, n_b: float) -> list[float]:
    """Compute the 95 % interval of a difference of two shares (Newcombe 1998, method 10)."""
    a, b = count_a / n_a, count_b / n_b
    (low_a, high_a), (low_b, high_b) = wilson(count_a, n_a), wilson(count_b, n_b)
    return [
        a - b - sqrt((a - low_a) ** 2 + (high_b - b) ** 2),
        a - b + sqrt((high_a - a) ** 2 + (b - low_b) ** 2),
    ]


# --- Weights ---


def item_weights(judgements: Judgements, drawn: Floats) -> Floats:
    """Weight items drawn so often, (…, N), by 1 / chance (Horvitz and Thompson 1952).

    The items of a cell sum to its seeds, and count alike if the chance of one is not known.
    """
    weights = np.zeros_like(drawn)
    for cell, of_cell in _by_cell(judgements.items).items():
        chances = [judgements.items[i].chance or np.nan for i in of_cell]
        inverse = 1.0 if np.isnan(chances).any() else 1 / np.array(chances)
        own = drawn[..., of_cell] * inverse
        scale = judgements.seeds.get(cell, 0) / own.sum(axis=-1, keepdims=True)
        weights[..., of_cell] = own * scale
    return weights


def _by_cell(items: Sequence[Item]) -> dict[Cell, list[int]]:
    cells = [item.cell for item in items]
    return {cell: [i for i, own in enumerate(cells) if own == cell] for cell in sorted({*cells})}


# --- Masked LMs to drop ---

DROP: Final = "drop"
KEEP: Final = "keep"
UNKNOWN: Final = "unknown"

FEWEST: Final = 10
"""Fewest judged variants that must go, and that must stay, for a verdict on a masked LM."""


def drop_table(judgements: Judgements) -> Table:
    """Tabulate the variants that would be lost without each masked LM, a row per LM."""
    mlms = sorted({mlm for item in judgements.items for mlm in item.mlms})
    rows = []
    for mlm in mlms:
        # Variants that no other LM validated in one of their texts.
        needed = np.array([[mlm] in item.mlms_by_field.values() for item in judgements.items])
        validated = np.array([mlm in item.mlms for item in judgements.items])
        row: dict[str, Any] = {"mlm": mlm}
        for name, chosen in (("validated", validated), ("goes", needed), ("stays", ~needed)):
            n, good = int(chosen.sum()), int(judgements.good[chosen].sum())
            row |= {f"n_{name}": n, f"n_good_{name}": good}
            row |= {name: good / n if n else None, f"{name}_ci": wilson(good, n) if n else None}
        row |= {"difference": None, "difference_ci": None, "verdict": UNKNOWN}
        if row["n_goes"] and row["n_stays"]:
            row["difference"] = row["goes"] - row["stays"]
            row["difference_ci"] = newcombe(
                row["n_good_goes"], row["n_goes"], row["n_good_stays"], row["n_stays"]
            )
            if min(row["n_goes"], row["n_stays"]) >= FEWEST:
                row["verdict"] = DROP if row["difference_ci"][1] < 0 else KEEP
        rows.append(row)
    return titled("mlms", rows, fewest=FEWEST)
