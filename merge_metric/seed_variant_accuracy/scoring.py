"""The metric: rows of variants, grouped by seed → seed-variant accuracy and its kin.

Zgreabăn, Deoskar and Abzianidze (2025), section 4, and Arakelyan, Liu and Augenstein (2024),
section 3.3 for the fooling rates, 5.2 for label distributions. NumPy only. Counts per seed come
first (`counts`), every figure from them (`figures`), and their uncertainty (`resampling`).
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .counts import SeedCounts, count, count_groups
from .figures import THRESHOLDS, Floats, figures, none_if_nan
from .inputs import Rows, check_probabilities, read_rows
from .options import FEWEST, NO_LABEL, Merging, Settings, check_opposites, label_names, never_gold
from .resampling import CONFIDENCE, bootstrap, content_order, interval

log = logging.getLogger(__name__)

_TOGETHER: Final = 16
"""Tables, at most, whose replicates are held at a time."""

__all__ = ["SeedCounts", "count", "figures", "read_rows", "score"]


Sums = dict[str, tuple[float, int]]
"""Key → the sum of some values, and how many they are."""


def score(
    *,
    predictions: Sequence[Any],
    references: Sequence[Any],
    seed_ids: Sequence[Any],
    seed_predictions: Sequence[Any],
    subsamples: Sequence[Sequence[int]] | None = None,
    correctness_threshold: int = 90,
    n_bootstrap: int = 1000,
    rng_seed: int = 0,
    labels: Sequence[str] | None = None,
    opposites: Iterable[Sequence[str]] | None = None,
    probabilities: Any = None,
    seed_probabilities: Any = None,
    groups: Mapping[str, Sequence[Any]] | None = None,
    variant_ids: Sequence[Any] | None = None,
    clusters: Mapping[str, Sequence[Any]] | None = None,
    merge_labels: str | Sequence[str] = (),
) -> dict[str, Any]:
    """Score a model's predictions for variants, n of them, grouped by seed.

    With subsamples every figure is computed in each of them as if it were the data, and
    averaged; every seed must then have variants in every subsample.

    Args:
        predictions: The model's label for each variant, as int or name; None, -1 or an empty
            string where its answer names none, which is wrong, changed and no opposite.
        references: Gold label of each variant, the one of its seed.
        seed_ids: Seed of each variant, ints or strings.
        seed_predictions: The model's label for that seed.
        subsamples: For each variant the numbers of the subsamples that drew it, ints.
        correctness_threshold: CT of `seed_variant_accuracy`, integer percent 1–100.
        n_bootstrap: Replicates of the bootstrap over seeds; 0 leaves intervals out.
        rng_seed: Of the bootstrap.
        labels: Names of labels; ints are positions in it. By default entailment,
            neutral, contradiction.
        opposites: Pairs of labels between which a change is strict; by default
            entailment and contradiction. For the others any change is.
        probabilities: (n, n_labels) label probabilities of the variants.
        seed_probabilities: (n, n_labels) those of their seeds.
        groups: Name → one value per variant, or a list of values: figures per value.
        variant_ids: Used only to notice rows that came twice.
        clusters: Name → one value per variant, the same for all variants of a seed: the
            bootstrap draws seeds that share it together.
        merge_labels: Labels that count as one, such as contradiction,neutral=not_entailment, in
            predictions, references and, summed, probabilities; then names may be any of these.

    Returns:
        Shares from 0 to 1 (seed_accuracy, variant_accuracy, seed_variant_accuracy, matching_gap,
        sv_curve_area, core_index, contrast_consistency, agreement, stable_but_wrong, and, None
        where no seed allows one, relaxed_fooling_rate, strict_fooling_rate and
        agreement_gated_accuracy), qt_gap from -1 to 1, thresholds in percent (matching_threshold,
        with _low and _high, from 1 to 100, and holding_threshold, from 0), n_seeds, n_variants,
        without_label, variants_per_seed, sv_curve, by_label, with groups by_group, intervals
        [low, high] as `*_ci`, spreads over subsamples as `*_std`, signature and signature_short.
        The metric card lists all.

    Raises:
        ValueError: an input is unusable; the message says what was expected.
    """
    settings = Settings(correctness_threshold, n_bootstrap, rng_seed)
    rows = read_rows(
        predictions=predictions,
        references=references,
        seed_ids=seed_ids,
        seed_predictions=seed_predictions,
        subsamples=subsamples,
        labels=labels,
        variant_ids=variant_ids,
        clusters=clusters,
        merge_labels=merge_labels,
    )
    pairs = check_opposites(opposites, rows.labels)
    shift = None
    if probabilities is not None or seed_probabilities is not None:
        shift = label_shift(rows, probabilities, seed_probabilities, label_names(labels))
    counted = None
    if groups is not None:
        counted = {name: count_groups(rows, name, groups[name], pairs) for name in groups}
    counts = count(rows, pairs)
    of_gold, of_predicted = (
        np.bincount(codes[codes != NO_LABEL], minlength=len(rows.labels))
        for codes in (rows.gold[rows.seed], rows.prediction)
    )
    if len(rows.seed_ids) >= FEWEST and (odd := never_gold(rows.labels, of_gold, of_predicted)):
        log.warning("The model %s.", odd)
    sizes = counts.n_variants[:, 0]
    if not counts.has_subsamples and sizes.max() >= 2 * sizes.min():
        log.warning(
            "Seeds have %s to %s variants, and no `subsamples` were given: the more variants, the "
            "likelier a failure, so SV accuracy at high thresholds and fooling rates are those of "
            "this mixture. Of a MERGE-NLI dataset, give the column `subsamples`: figures are then "
            "averages over samples of equal size, as `merge-nli score --dataset` gives them.",
            f"{sizes.min():,}",
            f"{sizes.max():,}",
        )
    return score_counts(counts, counted, settings, opposites=pairs, shift=shift)


def score_counts(
    counts: SeedCounts,
    groups: Mapping[str, Mapping[str, SeedCounts]] | None,
    settings: Settings,
    *,
    opposites: Iterable[Sequence[str]] | None = None,
    shift: Sums | None = None,
    texts: str = "",
) -> dict[str, Any]:
    """Score rows that are read and counted already."""
    of_labels = {
        counts.labels[code]: counts.take(counts.gold == code)
        for code in np.unique(counts.gold).tolist()
    }
    of_groups = [part for parts in (groups or {}).values() for part in parts.values()]
    summaries = iter(summarise([counts, *of_labels.values(), *of_groups], settings))
    result = next(summaries)
    result["by_label"] = {label: next(summaries) for label in of_labels}
    if groups is not None:
        result["by_group"] = {
            name: {value: next(summaries) for value in parts} for name, parts in groups.items()
        }
    result |= means(shift or {})
    long, short = signature(counts, settings, opposites, texts)
    return result | {"signature": long, "signature_short": short}


def summarise(tables: Sequence[SeedCounts], settings: Settings) -> list[dict[str, Any]]:
    """Summarise some seeds each: figures, counts, curve and, where asked for, intervals.

    Tables of as many seeds share the draws of the bootstrap, which saves time.
    """
    results = list[dict[str, Any]]()
    for counts in tables:
        exact = figures(counts, settings.correctness_threshold)
        result: dict[str, Any] = {k: none_if_nan(v[0]) for k, v in exact.means().items()}
        result |= {"n_seeds": len(counts.seed_ids), "n_variants": int(counts.n_rows.sum())}
        result["variants_per_seed"] = counts.variants_per_seed
        if lost := counts.without_label:
            result["without_label"] = lost
        if counts.clusters:
            result["n_clusters"] = len(np.unique(counts.clusters.code))
        if counts.has_subsamples:
            result["n_subsamples"] = counts.n_subsamples
            result |= {f"{k}_std": none_if_nan(v[0]) for k, v in exact.spreads().items()}
        curve = exact.mean_curve()[0].tolist()
        result["sv_curve"] = {"threshold": THRESHOLDS.tolist(), "accuracy": curve}
        results.append(result)
    together: dict[tuple[int, int], list[int]] = {}
    for number, counts in enumerate(tables if settings.n_bootstrap else ()):
        alone = number if counts.clusters else -1
        together.setdefault((len(counts.seed_ids), alone), []).append(number)
    for numbers in together.values():
        for start in range(0, len(numbers), _TOGETHER):
            some = numbers[start : start + _TOGETHER]
            # Neither seeds' names nor rows' order decide what is drawn.
            ordered = [tables[number].take(content_order(tables[number])) for number in some]
            resampled = bootstrap(ordered, settings)
            for number, (replicates, curves) in zip(some, resampled, strict=True):
                result, exact_curve = results[number], results[number].pop("sv_curve")
                for key, values in replicates.items():
                    bounds = [none_if_nan(bound) for bound in interval(values)]
                    result[f"{key}_ci"] = None if None in bounds else bounds
                low, high = interval(curves)
                result["sv_curve"] = exact_curve | {"low": low.tolist(), "high": high.tolist()}
    return results


# --- Label distributions ---


def distribution_shift(
    own_distribution: Floats,
    distribution: Floats,
    seed: NDArray[np.int64],
    changed: NDArray[np.bool_],
) -> Sums:
    """Sum n variants' divergences and confidences, split by whether the prediction changed.

    Distributions are (n, L): those of the variants and, `own_distribution`, of the variants' seeds,
    which `seed` numbers. `jsd_*` in bits (0–1) and `ks_*` (0–1) are of a variant and its seed, over
    variants; `sigma_*`, the standard deviation of label probabilities, is over seeds (each once)
    and over variants.
    """
    _, first = np.unique(seed, return_index=True)
    divergence = jensen_shannon(own_distribution, distribution)
    distance = kolmogorov_smirnov(own_distribution, distribution)
    spread = sigma(distribution)
    values = {"sigma_seeds": sigma(own_distribution[first])}
    for name, group in (("changed", changed), ("unchanged", ~changed)):
        values[f"jsd_{name}"] = divergence[group]
        values[f"ks_{name}"] = distance[group]
        values[f"sigma_{name}"] = spread[group]
    return {key: (float(of.sum()), len(of)) for key, of in values.items()}


def means(sums: Sums) -> dict[str, float | None]:
    """Average: None where there is nothing."""
    return {key: total / count if count else None for key, (total, count) in sums.items()}


def label_shift(
    rows: Rows, probabilities: Any, seed_probabilities: Any, labels: tuple[str, ...]
) -> Sums:
    """Sum distances over the variants of seeds answered right; probabilities are unmerged."""
    merging, shape = Merging.parse(rows.merged), (len(rows.seed), len(labels))
    given = {"probabilities": probabilities, "seed_probabilities": seed_probabilities}
    after, before = (
        merging.summed(check_probabilities(name, values, shape), labels)
        for name, values in given.items()
    )
    drawn = np.zeros(len(rows.seed), bool)
    drawn[rows.draw_row] = True
    own = rows.own[rows.seed]
    kept = drawn & (own == rows.gold[rows.seed])
    changed = (rows.prediction != own)[kept]
    return distribution_shift(before[kept], after[kept], rows.seed[kept], changed)


def jensen_shannon(p: Floats, q: Floats) -> Floats:
    """Compute the Jensen–Shannon divergence, (n,) in bits, 0 to 1, of two (n, L) tables' rows.

    >>> jensen_shannon(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.0, 1.0], [0.5, 0.5]]))
    array([1., 0.])
    """
    middle = (p + q) / 2
    return np.clip((_relative_entropy(p, middle) + _relative_entropy(q, middle)) / 2, 0, 1)


def kolmogorov_smirnov(p: Floats, q: Floats) -> Floats:
    """Compute the Kolmogorov–Smirnov distance, (n,) 0 to 1, of two (n, L) tables' rows.

    It is the largest difference of their cumulative distributions over the labels, in the order
    of the columns: entailment, neutral, contradiction.

    >>> kolmogorov_smirnov(np.array([[1.0, 0.0, 0.0]]), np.array([[0.5, 0.25, 0.25]]))
    array([0.5])
    """
    distance: Floats = reduce(np.maximum, map(np.abs, accumulate((p - q).T)))
    return np.clip(distance, 0, 1)


def sigma(p: Floats) -> Floats:
    """Compute the population standard deviation, (n,), of each row's probabilities.

    At most 0.471 for three labels, when one of them has all.

    >>> sigma(np.array([[1.0, 0.0, 0.0]])).round(3)
    array([0.471])
    """
    n_labels = p.shape[1]
    away = p - (_sums(p) / n_labels)[:, None]
    return np.asarray(np.sqrt(_sums(away * away) / n_labels))


def _relative_entropy(p: Floats, q: Floats) -> Floats:
    ratio = np.divide(p, q, out=np.ones_like(p), where=p > 0)
    return _sums(p * np.log2(ratio))


def _sums(table: Floats) -> Floats:
    """Add up rows, column by column: ten times as fast as short rows one by one, and the same."""
    return np.asarray(reduce(np.add, table.T))


# --- Signatures ---

VERSION: Final = "1.0.0"
"""Version of the definitions, which is the package's."""


def signature(
    counts: SeedCounts,
    settings: Settings,
    opposites: Iterable[Sequence[str]] | None = None,
    texts: str = "",
) -> tuple[str, str]:
    """Write a signature, `ct:90|…`, in its long and its short form.

    Results of two models are comparable where all parts agree. `data` digests, in eight hex digits,
    ids, gold labels, numbers of variants in each subsample and of distinct ones and, where seeds
    are clustered, which of them share a cluster.
    """
    # Of the data, not of the model: the same for every model, whatever the order of rows.
    digest = hashlib.blake2b("\0".join(map(str, counts.seed_ids)).encode(), digest_size=4)
    arrays = [counts.gold, counts.n_variants, counts.n_rows]
    if counts.clusters:
        _, first, code = np.unique(counts.clusters.code, return_index=True, return_inverse=True)
        arrays.append(first[code])
    for array in arrays:
        digest.update(np.ascontiguousarray(array, "<i8").tobytes())
    pairs = check_opposites(opposites, counts.labels)
    resampled, clusters = settings.n_bootstrap > 0, counts.clusters
    parts = (
        ("ct", "c", settings.correctness_threshold),
        ("subsamples", "k", counts.n_subsamples or "none"),
        ("labels", "l", ",".join(counts.labels)),
        ("merged", "m", counts.merged),
        ("opposites", "o", ",".join(map("-".join, pairs)) or "none"),
        ("bootstrap", "b", settings.n_bootstrap),
        ("cluster", "g", clusters.name if clusters and resampled else ""),
        ("rng_seed", "r", settings.rng_seed if resampled else ""),
        ("confidence", "i", f"{CONFIDENCE:.0%}" * resampled),
        ("numpy", "np", np.__version__ * resampled),  # whose generators may change between versions
        ("data", "d", digest.hexdigest()),
        ("texts", "t", texts),
        ("version", "v", VERSION),
    )
    known = [(long, short, value) for long, short, value in parts if value != ""]
    whole = "|".join(f"{long}:{value}" for long, _, value in known)
    return whole, "|".join(f"{short}:{value}" for _, short, value in known)
