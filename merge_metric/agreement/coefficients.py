"""Agreement of annotators: κ and α, of a sample and of many resampled ones at once; Spearman's ρ.

For κ and α each item has a confusion or coincidence matrix. The matrix of a resampled set is the
sum of its items' matrices, weighted by how often each item was drawn.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from merge_metric.agreement.judgements import (
    FLUENCY,
    GOOD,
    N_ANSWERS,
    REASONING,
    SAME,
    SCORES,
    Bools,
    Codes,
    Judgements,
)
from merge_metric.seed_variant_accuracy.figures import Floats
from merge_metric.seed_variant_accuracy.inputs import Ints
from merge_metric.seed_variant_accuracy.options import Settings
from merge_metric.seed_variant_accuracy.resampling import interval, seed_weights
from merge_metric.tables import Table, Texts

Weighting = Literal["plain", "linear", "quadratic"]
Level = Literal["nominal", "ordinal", "interval"]


def resampled(seed_ids: Sequence[str], settings: Settings) -> Floats:
    """Resample seeds of items, (n,): how often each item is drawn, (replicates, n)."""
    seeds, of_item = np.unique(np.array(seed_ids, np.str_), return_inverse=True)
    none = np.empty((0, len(seeds)))
    return np.concatenate([none, *seed_weights(len(seeds), settings)])[:, of_item]


# --- Cohen's κ ---


def confusions(a: Codes, b: Codes, k: int) -> Floats:
    """Make a confusion matrix per item, (n, k, k): a's answers in rows, b's in columns."""
    return _one_hot(a, k)[:, :, None] * _one_hot(b, k)[:, None, :]


def kappas(matrices: Floats, weighting: Weighting) -> Floats:
    """Compute κ of two annotators (Cohen 1960, 1968), (B,); NaN where it is undefined.

    `matrices`, (B, k, k), are those of `confusions`, summed over items. Disagreements have equal
    weights, or weights by distance or by its square.
    """
    distance = _distance(matrices.shape[-1], weighting)
    rows, columns = matrices.sum(axis=2), matrices.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        by_chance = rows[:, :, None] * columns[:, None, :] / rows.sum(axis=1)[:, None, None]
        return _chance_corrected(matrices, by_chance, distance)


def _distance(k: int, weighting: Weighting) -> Floats:
    apart = np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(np.float64)
    if weighting == "plain":
        return np.sign(apart)
    return apart if weighting == "linear" else apart**2


# --- Krippendorff's α ---


def coincidences(codes: Codes, k: int) -> Floats:
    """Make a coincidence matrix per item, (n, k, k), of codes (A, n) (Krippendorff 2011).

    Ordered pairs of answers by two annotators are divided by one less than the number of answers;
    an item with fewer than two has none.
    """
    counts = _one_hot(codes.reshape(-1), k).reshape(*codes.shape, k).sum(axis=0)
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(k)
    return np.asarray(pairs / np.maximum(counts.sum(axis=1) - 1, 1)[:, None, None])


def alphas(matrices: Floats, level: Level) -> Floats:
    """Compute α (Krippendorff 2011), (B,), of summed `coincidences` (B, k, k); NaN if undefined."""
    counts, k = matrices.sum(axis=2), matrices.shape[-1]
    total = counts.sum(axis=1)[:, None, None]
    if level == "ordinal":  # from one answer's mean rank to the other's
        middle = np.cumsum(counts, axis=1) - counts / 2
        distance = (middle[:, :, None] - middle[:, None, :]) ** 2
    else:
        distance = _distance(k, "plain" if level == "nominal" else "quadratic")
    with np.errstate(invalid="ignore", divide="ignore"):
        by_chance = counts[:, :, None] * counts[:, None, :] / (total - 1)
        return _chance_corrected(matrices, by_chance, distance)


# --- Both ---


def _one_hot(codes: Codes, k: int) -> Floats:
    """Encode answers as one-hot rows, (n, k); zeros where there is no answer."""
    return np.eye(k + 1)[codes][:, 1:]


def _chance_corrected(observed: Floats, by_chance: Floats, distance: Floats) -> Floats:
    """Compute 1 − observed / expected disagreement; NaN where no disagreement is expected."""
    seen = (observed * distance).sum(axis=(1, 2))
    expected = (by_chance * distance).sum(axis=(1, 2))
    return np.where(expected > 0, 1 - seen / np.where(expected > 0, expected, 1), np.nan)


# --- Spearman's ρ ---


def spearman(x: Floats, y: Floats) -> float | None:
    """Compute Spearman's ρ by SciPy; None where `x` or `y` is constant."""
    from scipy.stats import spearmanr

    if len(np.unique(x)) < 2 or len(np.unique(y)) < 2:
        return None
    return round(float(spearmanr(x, y).statistic), 12)


def within_seeds(x: Floats, y: Floats, seed: Ints, n_seeds: int) -> Floats:
    """Rank x and y within each seed; sum products and squares of centred ranks, (n_seeds, 3)."""
    ranks = []
    for values in (x, y):
        group = np.unique(values, return_inverse=True)[1]
        # Distinct values of each seed in turn: ranks start again at every seed.
        _, of_seed, sizes = np.unique(
            seed * (group.max(initial=0) + 1) + group, return_inverse=True, return_counts=True
        )
        mean_rank = np.cumsum(sizes) - (sizes - 1) / 2
        rank, n = mean_rank[of_seed], np.bincount(seed, minlength=n_seeds)
        means = np.bincount(seed, rank, minlength=n_seeds) / np.maximum(n, 1)
        ranks.append(rank - means[seed])
    a, b = ranks
    sums: Floats = np.stack(
        [np.bincount(seed, part, minlength=n_seeds) for part in (a * b, a * a, b * b)], axis=1
    )
    return sums


def pooled(sums: Floats) -> Floats:
    """Compute ρ, (…,), from sums of `within_seeds` over seeds, (…, 3); NaN if all tie."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums[..., 0] / np.sqrt(sums[..., 1] * sums[..., 2]))


def weighted_spearman(x: Ints, y: Ints, weight: Floats) -> float:
    """Compute ρ of dense ranks from 0, (n,), with integer weights, (n,); NaN if one is constant."""
    total = weight.sum()
    ranks = []
    for group in (x, y):  # from 1, equal values sharing the mean of their ranks
        sizes = np.bincount(group, weights=weight)
        ranks.append((np.cumsum(sizes) - (sizes - 1) / 2)[group])
    # Ranks average (total + 1) / 2 whatever their ties.
    a, b = (rank - (total + 1) / 2 for rank in ranks)
    spread = (weight * a * a).sum() * (weight * b * b).sum()
    return float((weight * a * b).sum() / np.sqrt(spread)) if spread > 0 else float("nan")


def auc(groups: Ints, is_good: Bools, weights: Floats) -> Floats:
    """Compute areas under ROC curves, (b,): how often a good variant has the higher signal.

    Ties count half; NaN without good variants, or with only good ones. `groups`, (n,), are dense
    ranks of the signal from 0, ascending; `weights`, (b, n), say how often each variant counts.

    >>> signal, is_good = np.array([0, 1, 1, 2]), np.array([False, True, False, True])
    >>> auc(signal, is_good, np.ones((1, 4))).tolist()
    [0.875]
    """
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    good, bad = (
        np.add.reduceat((weights * part)[:, order], starts, axis=1) for part in (is_good, ~is_good)
    )
    below = np.cumsum(bad, axis=1) - bad / 2
    with np.errstate(invalid="ignore"):  # 0/0: no good variant, or no other one, was drawn
        return np.asarray((good * below).sum(1) / (good.sum(1) * bad.sum(1)))


# --- Tables of annotators' agreement ---

Measure = Callable[[Floats], Floats]
"""Function from matrices of B samples, (B, k, k), to a figure of each, (B,)."""

MEAN: Final = "(mean)"

titled: Final = Texts.read(Path(__file__).with_name("tables.toml")).table
"""Function that makes a table with the title and the notes of its text in `tables.toml`."""

_KAPPAS: Final[Mapping[str, Measure]] = {
    "kappa": partial(kappas, weighting="plain"),
    "kappa_linear": partial(kappas, weighting="linear"),
    "kappa_quadratic": partial(kappas, weighting="quadratic"),
}
_ALPHAS: Final[Mapping[str, Measure]] = {
    "alpha_nominal": partial(alphas, level="nominal"),
    "alpha_ordinal": partial(alphas, level="ordinal"),
    "alpha_interval": partial(alphas, level="interval"),
}


def pair_table(judgements: Judgements, settings: Settings) -> Table:
    """Tabulate Cohen's κ of pairs of annotators, by class and score, and averaged over pairs."""
    measures, rows = {"agreement": _agreement, **_KAPPAS}, list[dict[str, Any]]()
    for name, part in judgements.by_class():
        draws = _draws(part, settings)
        for score, codes in part.codes.items():
            about, pairs = {"class": name, "score": score}, list[dict[str, Floats]]()
            for one, other in combinations(range(len(part.annotators)), 2):
                a, b = codes[[one, other]]
                both = (a > 0) & (b > 0)
                pairs.append(_measure(confusions(a, b, N_ANSWERS[score]), measures, draws))
                who = {"a": part.annotators[one], "b": part.annotators[other]}
                note = _note(np.concatenate([a[both], b[both]]), score, "both judged none")
                cells = _with_intervals(pairs[-1])
                rows.append({**about, **who, "n_both": int(both.sum()), **cells, "note": note})
            if len(pairs) < 2:
                continue
            # The mean is over the pairs with a figure; a replicate counts if all of them have it.
            means = {}
            for key in pairs[0]:
                have = [pair[key] for pair in pairs if not np.isnan(pair[key][0])] or [
                    np.full(1, np.nan)
                ]
                figure, samples = [own[0] for own in have], [own[1:] for own in have]
                means[key] = np.append(np.mean(figure), np.mean(samples, axis=0))
            defined = sum(not np.isnan(pair["kappa"][0]) for pair in pairs)
            note = "" if defined == len(pairs) else f"κ: of the {defined} pairs that have one"
            mean = {**about, "a": f"{len(pairs)} pairs", "b": MEAN, "n_both": None}
            rows.append({**mean, **_with_intervals(means), "note": note})
    same = judgements.about_meaning
    return titled("kappa", rows, n_bootstrap=settings.n_bootstrap, same=same)


def alpha_table(judgements: Judgements, settings: Settings) -> Table:
    """Tabulate Krippendorff's α of all annotators, over the variants that two or more judged."""
    rows: list[dict[str, Any]] = []
    for name, part in judgements.by_class():
        draws = _draws(part, settings)
        for score, codes in part.codes.items():
            pairable = codes[:, (codes > 0).sum(axis=0) >= 2]
            given = pairable[pairable > 0]
            row = {"class": name, "score": score, "n_items": pairable.shape[1]}
            figures = _measure(coincidences(codes, N_ANSWERS[score]), _ALPHAS, draws)
            note = _note(given, score, "no two judged the same")
            rows.append({**row, "n_answers": len(given), **_with_intervals(figures), "note": note})
    return titled("alpha", rows, n_bootstrap=settings.n_bootstrap)


def confusion_tables(judgements: Judgements) -> list[Table]:
    """Make confusion matrices of each pair of annotators: of scores and of verdicts."""
    same = judgements.about_meaning
    answers = [str(n) for n in range(1, SCORES[FLUENCY] + 1)]
    tables, rows = [], []
    for one, other in combinations(range(len(judgements.annotators)), 2):
        a, b = judgements.annotators[one], judgements.annotators[other]
        counts = {
            score: confusions(codes[one], codes[other], N_ANSWERS[score]).sum(axis=0).astype(int)
            for score, codes in judgements.codes.items()
        }
        (neither, only_b), (only_a, both) = counts[SAME if same else GOOD].tolist()
        rows.append(
            {"a": a, "b": b, "both": both, "a_only": only_a, "b_only": only_b, "neither": neither}
        )
        if same:
            continue
        cells = {f"{score}{n}": f"{score} {n}" for score in (FLUENCY, REASONING) for n in answers}
        both_scores = np.concatenate([counts[FLUENCY], counts[REASONING]], axis=1).tolist()
        of_answers = [
            {"answer": answer, **dict(zip(cells, numbers, strict=True))}
            for answer, numbers in zip(answers, both_scores, strict=True)
        ]
        name = f"confusion {a} {b}"
        tables.append(titled("confusion", of_answers, name, a=a, b=b, cells=cells))
    name = "confusion same" if same else "confusion good"
    return [*tables, titled("binary", rows, name, same=same)] if rows else []


# --- Rows ---


def _measure(matrices: Floats, measures: Mapping[str, Measure], draws: Floats) -> dict[str, Floats]:
    """Compute figures of items' (n, k, k) matrices, and of replicates of them, (1 + B,).

    `draws`, (B, n), count items in replicates. With two answers, κ, and α, are one.
    """
    samples = (matrices.sum(axis=0)[None], np.tensordot(draws, matrices, axes=1))
    others = {*list(_KAPPAS)[1:], *list(_ALPHAS)[1:]} if matrices.shape[-1] == 2 else ()
    known = [(key, measure) for key, measure in measures.items() if key not in others]
    return {key: np.concatenate([of(some) for some in samples]) for key, of in known}


def _agreement(matrices: Floats) -> Floats:
    """Compute the share, (B,), on the diagonal of confusion matrices (B, k, k); NaN of empty."""
    total = matrices.sum(axis=(1, 2))
    equal = np.trace(matrices, axis1=1, axis2=2)
    return np.where(total > 0, equal / np.maximum(total, 1), np.nan)


def _note(given: Codes, score: str, none: str) -> str:
    answers = np.unique(given)
    if len(answers) > 1:
        return ""
    if not len(answers):
        return none
    names = {GOOD: ("not good", "good"), SAME: ("no", "yes")}.get(score)
    return f"undefined: every answer is {names[answers[0] - 1] if names else answers[0]}"


def _draws(part: Judgements, settings: Settings) -> Floats:
    """Resample the seeds of a part anew, so that intervals do not depend on other parts."""
    # With one seed every replicate equals the sample.
    return resampled(part.seed_ids, settings)[: None if len({*part.seed_ids}) > 1 else 0]


def _with_intervals(measured: Mapping[str, Floats]) -> dict[str, Any]:
    """Make the cells of figures, each with its replicates behind it, as `_measure` returns them."""
    row: dict[str, Any] = {}
    for key, (figure, samples) in ((key, (own[0], own[1:])) for key, own in measured.items()):
        row |= {key: None if np.isnan(figure) else float(figure), f"{key}_ci": None}
        # With fewer replicates, an interval of the others would hide how little is known.
        if row[key] is not None and len(samples) and np.mean(~np.isnan(samples)) >= 0.95:
            row[f"{key}_ci"] = interval(samples).tolist()
    return row
