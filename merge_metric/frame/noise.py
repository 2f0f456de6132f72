"""Noise: how often a model changes its answer to the same text, compared with fooling rates.

`predict --repeat-seeds N` asks about each seed N more times. Fooling rates grow with the number of
variants, so noise is compared with the expected rate for N of a seed's variants, drawn without
replacement, or for all variants if there are fewer.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from merge_metric.frame.checks import REPEATS, PredictionsFile
from merge_metric.models.answer_words import ALPHABET
from merge_metric.seed_variant_accuracy.counts import SeedCounts, opposite_table
from merge_metric.seed_variant_accuracy.figures import Floats, none_if_nan
from merge_metric.seed_variant_accuracy.formatting import as_percent, show_value
from merge_metric.seed_variant_accuracy.inputs import Ints
from merge_metric.seed_variant_accuracy.options import Settings, check_opposites
from merge_metric.seed_variant_accuracy.resampling import interval, seed_weights

RATES: Final = ("relaxed", "strict")


def read_repeats(files: Iterable[PredictionsFile]) -> dict[str, Ints]:
    """Read repeated answers to seeds: id → positions among the labels, `NO_LABEL` for none."""
    codes_of: dict[str, Ints] = {}
    for file in files:
        for seed, answers in file.further(REPEATS):
            codes_of[seed] = np.array(file.codes)[np.array(answers, np.int64)]
    return codes_of


def noise_figures(
    counts: SeedCounts, repeats: Mapping[str, Ints], settings: Settings
) -> dict[str, Any]:
    """Compare changes on the same text with those on variants, over the seeds answered right.

    Returns `n_repeats` and `n_seeds`; for `relaxed` and `strict`: `same_text` and `variants`, the
    shares of seeds with a changed answer among their repeats or an equal number of variants;
    `above`, the difference; `single_same_text` and `single_variant`, the same for one repeat or
    variant; and intervals `*_ci`. None means undefined.
    """
    table = opposite_table(counts.labels, check_opposites(None, counts.labels))
    has_repeats = np.array([str(seed) in repeats for seed in counts.seed_ids], bool)
    kept = counts.take(has_repeats & counts.right)
    of_seed = [repeats[str(seed)] for seed in kept.seed_ids]
    n = kept.n_variants
    asked = np.array([len(answers) for answers in of_seed], np.int64)
    m = np.minimum(asked[:, None], n)
    # An answer without a label, -1, indexes the last column: it is changed, but no opposite.
    tables = (
        np.pad(~np.eye(len(table), dtype=bool), ((0, 0), (0, 1)), constant_values=True),
        np.pad(table, ((0, 0), (0, 1))),
    )
    result: dict[str, Any] = {"n_repeats": int(asked.max(initial=0)), "n_seeds": len(of_seed)}
    values: dict[str, Floats] = {}
    of_rates = zip(RATES, (kept.n_changed, kept.n_opposite), tables, strict=True)
    for rate, of_variants, table in of_rates:
        pairs = zip(kept.own, of_seed, strict=True)
        again = np.array([table[own, answers].sum() for own, answers in pairs], np.int64)
        same = _any_of(again[:, None], asked[:, None], m).mean(axis=1)
        other = _any_of(of_variants, n, m).mean(axis=1)
        values |= {
            f"{rate}_same_text": same,
            f"{rate}_variants": other,
            f"{rate}_above": other - same,
            f"{rate}_single_same_text": again / np.maximum(asked, 1),
            f"{rate}_single_variant": (of_variants / np.maximum(n, 1)).mean(axis=1),
        }
    result |= {
        key: float(of_seeds.mean()) if len(of_seeds) else None for key, of_seeds in values.items()
    }
    if settings.n_bootstrap and len(of_seed):
        columns = np.stack(list(values.values()), axis=1)
        means = np.concatenate(
            [
                weights @ columns / weights.sum(axis=1, keepdims=True)
                for weights in seed_weights(len(of_seed), settings, kept.clusters)
            ]
        )
        for key, means_of in zip(values, means.T, strict=True):
            result[f"{key}_ci"] = [none_if_nan(bound) for bound in interval(means_of)]
    return result


def _any_of(changed: Ints, total: Ints, drawn: Ints) -> Floats:
    """Compute the probability that a draw without replacement contains a changed answer.

    >>> _any_of(np.array([1, 2]), np.array([4, 4]), np.array([2, 2]))
    array([0.5       , 0.83333333])
    """
    none = np.ones(np.broadcast_shapes(changed.shape, total.shape, drawn.shape))
    for k in range(int(drawn.max(initial=0))):
        left = np.maximum(total - changed - k, 0) / np.maximum(total - k, 1)
        none = np.where(k < drawn, none * left, none)
    return 1 - none


def usage_text(metadata: Mapping[str, Any], requests: int) -> str:
    """Say what a run on a server used: requests, tokens, time and, with prices, the cost."""
    parts = [f"{requests:,} requests"]
    counts = [metadata.get(name) for name in ("prompt_tokens", "answer_tokens")]
    if all(type(count) is int for count in counts):
        parts.append(f"{counts[0]:,} tokens of prompts and {counts[1]:,} of answers")
    if type(metadata.get("milliseconds")) is int:
        parts.append(f"{metadata['milliseconds'] / 1000:,.0f} s")
    with suppress(IndexError, KeyError, TypeError, ValueError):  # none, or of another program
        tokens = metadata["prompt_tokens"], metadata["answer_tokens"]
        parts.append(f"cost {cost_of(metadata['prices'], *tokens):,.2f}")
    return ", ".join(parts)


def cost_of(prices: Sequence[float], prompt_tokens: float, answer_tokens: float) -> float:
    """Compute what tokens cost by the prices of a million."""
    return (prices[0] * prompt_tokens + prices[1] * answer_tokens) / 1e6


def letters_text(metadata: Mapping[str, Any]) -> str:
    """Write the share of answers with each letter of the choices; "" where it is not known.

    >>> letters_text({"letter_A": 3, "letter_B": 0, "letter_C": 1})
    'A 75.0%, B 0.0%, C 25.0%'
    """
    counts = {c: metadata[key] for c in ALPHABET if (key := f"letter_{c}") in metadata}
    total = sum(counts.values()) or 1
    return ", ".join(f"{letter} {as_percent(n / total)}" for letter, n in counts.items())


def noise_text(noise: Mapping[str, Any]) -> list[str]:
    """Write the figures of noise as lines below a table."""
    n, seeds = noise["n_repeats"], noise["n_seeds"]
    lines = [
        f"noise: {seeds:,} {'seeds' if seeds != 1 else 'seed'} answered right, asked {n} more "
        f"time{'s' * (n != 1)}; changed by one of {n} repeats, by one of {n} variants, and left "
        "above noise:"
    ]
    for rate, symbol in zip(RATES, ("r_r", "r_s"), strict=True):
        keys = (f"{rate}_same_text", f"{rate}_variants", f"{rate}_above")
        shown = ", ".join(_shown(noise, key) for key in keys)
        single = f"{rate}_single_same_text", f"{rate}_single_variant"
        alone = " and ".join(_shown(noise, key) for key in single)
        lines.append(f"  {symbol} {shown}; by a single repeat and a single variant {alone}")
    return lines


def _shown(noise: Mapping[str, Any], key: str) -> str:
    value, bounds = noise[key], noise.get(f"{key}_ci")
    around = ", ".join(show_value(bound, "share") for bound in bounds or ())
    return show_value(value, "share") + (f" [{around}]" if around and value is not None else "")
