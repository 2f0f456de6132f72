"""Plausibility of predictions: signs that something went wrong between a model and its figures."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merge_dataset.schema import LABELS
from merge_metric.models.label_order import FAR_BETTER, MOST_LABELS, RARE, OrderCheck, check_order
from merge_metric.models.remote import sentences
from merge_metric.models.tokens import unknown_sentence
from merge_metric.seed_variant_accuracy.formatting import as_percent
from merge_metric.seed_variant_accuracy.options import FEWEST, NO_LABEL, never_gold

log = logging.getLogger(__name__)

Labels = NDArray[np.int8]

_ENOUGH: Final = 100
"""Fewest problems or seeds for conclusions from labels or chance."""
UNLABELLED: Final = 0.02
"""Share of answers without a label above which a warning says so."""


@dataclass(frozen=True, slots=True, eq=False)
class AnswerTally:
    """Labels and predictions of N rows, in their order."""

    labels: tuple[str, ...]
    gold: Labels
    predicted: Labels
    is_seed: NDArray[np.bool_]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows by gold label and answer, (L, L + 1); the last answer is none."""
        width = len(self.labels) + 1
        cell = self.gold.astype(np.int64) * width + self.predicted % width
        return np.bincount(cell, minlength=(width - 1) * width).reshape(-1, width)

    def check_order(self) -> OrderCheck | None:
        """Compare orders of the labels on the seeds; None if that is not possible."""
        is_seed = self.is_seed & (self.predicted != NO_LABEL)
        if len(self.labels) > MOST_LABELS or not is_seed.any():
            return None
        return check_order(
            self.predicted[is_seed].astype(np.int64),
            self.gold[is_seed].astype(np.int64),
            len(self.labels),
        )


def tell_of_model(where: str, metadata: Mapping[str, Any]) -> None:
    """Warn of everything that the model did not do as asked."""
    for sentence in doubts_of_model(metadata):
        log.warning("%s: warning: %s", where, sentence)


def doubts_of_model(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences on texts cut or unknown to the tokenizer, and on oddities of a server."""
    for key in _OF_PAIRS:
        yield from _of_pairs(metadata, key)
    with suppress(KeyError, TypeError, ZeroDivisionError):  # none, or metadata of others
        yield unknown_sentence(metadata["unknown_tokens"])
    yield from sentences(metadata).values()


_OF_PAIRS: Final = {
    "truncated": "pairs ({share:.0f} %) were cut to {max_tokens} tokens, so the figures are those "
    "of what was left of them; is that the length that the model reads?",
    "answers_without_letters": "answers ({share:.0f} %) had none of the letters, so their labels "
    "count as equally probable and entailment is predicted",
}
"""Key of a count in metadata → what happened to so many pairs, told from 1 % of them on."""


def _of_pairs(metadata: Mapping[str, Any], key: str) -> Iterator[str]:
    n, n_pairs = metadata.get(key), metadata.get("distinct_pairs")
    if type(n) is int and type(n_pairs) is int and 0 < n_pairs * 0.01 <= n:
        sentence = _OF_PAIRS[key].format(
            share=100 * n / n_pairs, max_tokens=metadata.get("max_tokens")
        )
        yield f"{n:,} of {n_pairs:,} {sentence}"


def tell_of_new_answers(name: str, metadata: Mapping[str, Any]) -> None:
    """Warn of cut texts and missing or improbable letters when all answers are there."""
    for sentence in _of_pairs(metadata, "truncated"):
        log.warning("%s: warning: %s", name, sentence)
    n_partial = metadata.get("answers_partial", 0)
    n_without = metadata.get("answers_without_letters", 0)
    if n_partial or n_without:
        log.warning(
            "%s: of %d answers, %d lacked one or two of the letters among the %d most probable "
            "tokens (probability 0), %d all three (labels equally probable)",
            name,
            metadata["distinct_pairs"],
            n_partial,
            metadata["top_logprobs"],
            n_without,
        )
    if (letter_mass := metadata.get("letter_mass", 1)) < 0.1:
        log.warning(
            "%s: the next token is an answer letter with a mean probability of only %.1f %%: its "
            "answers may mean little; try `chat_template` or more examples", name, 100 * letter_mass
        )  # fmt: skip


def tell_of_answers(where: str, tally: AnswerTally, metadata: Mapping[str, Any]) -> None:
    """Warn of signs that answers are not the model's answers to these problems."""
    is_majority = metadata.get("kind") == "baseline" and metadata.get("name") == "majority"
    # This baseline always predicts one label; a judge's scores have no gold labels.
    if is_majority or "trial" in metadata or not len(tally.gold):
        return
    for sentence in (*_doubts_of_labels(tally, metadata), *_doubts_of_seeds(tally, metadata)):
        log.warning("%s: warning: %s", where, sentence)


def _doubts_of_labels(tally: AnswerTally, metadata: Mapping[str, Any]) -> Iterator[str]:
    n_labels, counts = len(tally.labels), tally.counts
    total, unlabelled = int(counts.sum()), int(counts[:, -1].sum())
    of_gold, of_predicted = counts.sum(axis=1), counts[:, :-1].sum(axis=0)
    if unlabelled / total > UNLABELLED:
        of_label = ", ".join(
            f"{tally.labels[code]} {as_percent(counts[code, -1] / of_gold[code])}"
            for code in range(n_labels)
            if of_gold[code]
        )
        yield (
            f"{unlabelled:,} of {total:,} answers ({as_percent(unlabelled / total)}) name no label "
            f"and count as wrong (by gold label: {of_label}); is it the model that fails, or how "
            "it is asked?"
        )
    never = [
        f"{label} ({share:.0%} of the problems)"
        for label, share, count in zip(tally.labels, of_gold / total, of_predicted, strict=True)
        if share >= 0.1 and not count
    ]
    if never and total >= _ENOUGH:
        yield (
            f"never says {', '.join(never)}: is it a model of fewer labels, or are its classes "
            "taken for others?"
        )
    n_seeds = int(tally.is_seed.sum())
    if n_seeds >= FEWEST and (sentence := never_gold(tally.labels, of_gold, of_predicted)):
        yield sentence
    shares = of_predicted / max(1, of_predicted.sum()), of_gold / total
    most = int((shares[0] - shares[1]).argmax())
    share, share_of_gold = (float(of[most]) for of in shares)
    # A letter stands for one label, unless the choices are shuffled.
    has_letters = "letter_A" in metadata and "letters_seed" not in metadata
    if has_letters and total >= _ENOUGH and share - share_of_gold > FAR_BETTER:
        yield (
            f"takes the letter of {tally.labels[most]} in {as_percent(share)} of its answers, "
            f"where {as_percent(share_of_gold)} of the gold labels are that: is it the letter that "
            "it likes? Run it with `shuffle_letters`, too"
        )


def _doubts_of_seeds(tally: AnswerTally, metadata: Mapping[str, Any]) -> Iterator[str]:
    check = tally.check_order()
    gold, predicted, is_seed = tally.gold, tally.predicted, tally.is_seed
    all_seeds, is_seed = int(is_seed.sum()), is_seed & (predicted != NO_LABEL)
    gold_seeds, predicted_seeds, n = gold[is_seed], predicted[is_seed], int(is_seed.sum())
    # For a constant answer, another warning names the labels never predicted.
    if not n or (predicted == predicted[0]).all():
        return
    # Names have no order; they are surely swapped only if the swap is nearly always right.
    is_named = bool(metadata.get("gives_names"))
    shares = [
        np.bincount(codes, minlength=len(tally.labels)) for codes in (gold_seeds, predicted_seeds)
    ]
    chance = float(shares[0] @ shares[1]) / n**2
    deviation = (chance * (1 - chance) / n) ** 0.5
    accuracy = float((gold_seeds == predicted_seeds).mean())
    in_other_order = check is not None and check.suspicious
    small_lead = min(0.1, NormalDist().inv_cdf(1 - RARE) * deviation)
    is_chance = n >= _ENOUGH and accuracy - chance < small_lead
    if not (in_other_order or is_chance):
        return
    answered = f"{n:,}" if n == all_seeds else f"{n:,} whose answer names a label"
    start = f"no better than chance on seeds: right on {100 * accuracy:.0f} % of {answered}"
    # With alternating labels, shifted rows also fit another order of labels a little.
    rival = max(accuracy, check.best_accuracy if check is not None and in_other_order else 0.0)
    best, shift = best_shift(gold, predicted, np.flatnonzero(is_seed)) if is_chance else (0.0, 0)
    if best - rival > max(FAR_BETTER, 5 * deviation):  # no shift leads by so much by chance
        rows = f"{abs(shift):,} row{'s' * (abs(shift) > 1)} {'below' if shift > 0 else 'above'}"
        yield (
            f"{start}, and would be on {100 * best:.0f} % if each row had the prediction that "
            f"stands {rows} it: are the predictions shifted?"
        )
        return
    if check is not None and in_other_order:
        if not is_named or check.best_accuracy >= 0.8:
            how = "if its labels were swapped" if is_named else "under another order of labels"
            yield (
                f"right on {100 * check.accuracy:.0f} % of {check.seeds:,} seeds, and would be on "
                f"{100 * check.best_accuracy:.0f} % {how}; "
                f"{_advice(check.best, tally.labels, metadata)}"
            )
        return
    yield (
        f"{start}, where guessing is right on {100 * chance:.0f} %; if the model is better than "
        f"that, {'' if is_named else 'its labels may stand in another order, '}its answers "
        f"{'may stand ' if is_named else ''}in another order than the problems, or they are for "
        "another dataset"
    )


def best_shift(gold: Labels, predicted: Labels, seeds: NDArray[np.int64]) -> tuple[float, int]:
    """Find by how many rows, at most 1000, predictions would have to be shifted to fit best.

    `gold` and `predicted`, (N,), have all rows in the order of the file, `seeds` are places in it.
    Returns the accuracy on the seeds, and by how many rows predictions are too far down.

    >>> gold = np.tile(np.array([0, 1, 2, 1, 1, 0, 2], np.int8), 9)
    >>> best_shift(gold, np.roll(gold, 2), np.arange(63))
    (1.0, 2)
    """
    seeds = seeds[:: max(1, len(seeds) // 20_000)]  # so many are enough
    best = (0.0, 0)
    for distance in range(1, min(1000, len(gold) // 2) + 1):
        for shift in (distance, -distance):
            at = seeds + shift
            inside = (at >= 0) & (at < len(predicted))
            if 2 * inside.sum() >= len(seeds):
                accuracy = float((predicted[at[inside]] == gold[seeds[inside]]).mean())
                best = max(best, (accuracy, shift), key=lambda pair: pair[0])
    return best


def _advice(best: Sequence[int], labels: Sequence[str], metadata: Mapping[str, Any]) -> str:
    order = metadata.get("label_order") or []
    known = isinstance(order, list) and sorted(map(str, order)) == sorted(labels)
    if metadata.get("gives_names") or not known:
        swapped = [f"{labels[n]} for {labels[b]}" for n, b in enumerate(best) if b != n]
        swaps = f"it seems to say {', '.join(swapped)}"
        if metadata.get("gives_names"):
            return f"{swaps}: does it mix up the labels' names?"
        return (
            f"{swaps}: are the model's labels in another order? "
            "Predictions given by name leave no doubt"
        )
    short = [label[0] for label in labels] if tuple(labels) == LABELS else labels
    better = ",".join(short[best[labels.index(label)]] for label in order)
    taken = ",".join(short[labels.index(label)] for label in order)
    return f"its classes are taken for {taken}: try `label_order` {better}"
