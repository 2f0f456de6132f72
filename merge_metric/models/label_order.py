"""The order of a classifier's labels: read, looked up or determined, but never assumed."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, permutations
from math import comb
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merge_dataset.schema import LABELS
from merge_metric.seed_variant_accuracy.formatting import as_percent
from merge_metric.seed_variant_accuracy.options import merging_advice

FAR_BETTER: Final = 0.2
"""Lead in accuracy on the seeds, 0–1, from which an order is accepted or suspected as right."""
RARE: Final = 0.001
"""Significance level: a lead with a smaller p-value is not put down to chance."""
ENOUGH_SEEDS: Final = 30
ASKED_SEEDS: Final = 300
"""Number of seeds of each source that are asked about to determine an order."""
MOST_LABELS: Final = 6
"""Largest number of labels whose orders can all be tried."""

SEEDS: Final = "seeds"
"""Value in place of an order: use the order that scores best on the seeds."""

_WORDS: Final = {
    word: position
    for position, stem in enumerate(("entail", "neutral", "contradict"))
    for word in (stem[0], *(stem + end for end in ("", "s", "ed", "ion", "ment", "ory", "ing")))
}
"""Name of a label in a model's configuration → its position in `LABELS`."""


@dataclass(frozen=True, slots=True)
class LabelOrder:
    """The labels of a model's classes, and the source of this knowledge."""

    labels: tuple[int, ...]
    """Positions in `known` of the labels of classes 0, 1, …"""
    source: str
    """`id2label`, `documented`, `given`, `default` (of functions), `seeds` or `unknown`."""
    known: tuple[str, ...] = LABELS
    evidence: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Evidence for provenance, JSON-able: the `document` that states it, or counts on seeds."""

    @property
    def names(self) -> list[str]:
        """Names of the labels of classes 0, 1, and so on."""
        return [self.known[position] for position in self.labels]

    def rearrange(self, of_classes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn columns of classes into columns of labels: column k goes to column `labels[k]`.

        >>> LabelOrder((2, 0, 1), "given").rearrange(np.array([[0.7, 0.2, 0.1]])).tolist()
        [[0.2, 0.1, 0.7]]
        """
        of_labels = np.empty_like(of_classes)
        of_labels[:, list(self.labels)] = of_classes
        return of_labels


def parse_order(text: str, known: tuple[str, ...] = LABELS) -> LabelOrder:
    """Read the order that a user gives, such as `e,n,c` or `contradiction,entailment,neutral`.

    Raises:
        ValueError: it does not have each of the labels once.

    >>> parse_order("c,e,n").labels, parse_order("yes,no", ("no", "yes")).labels
    ((2, 0, 1), (1, 0))
    """
    if positions := _positions(text.split(","), known):
        return LabelOrder(positions, "given", known)
    names = written(range(len(known)), known).split(",")
    raise ValueError(
        f"label_order: expected what the model's classes 0 to {len(known) - 1} mean, each of "
        f"{', '.join(names)} once, such as {','.join([names[-1], *names[:-1]])}, got {text!r}"
    )


def label_of(word: str, known: tuple[str, ...] = LABELS) -> int | None:
    """Find the position of the label that a word names in any of its usual spellings.

    >>> label_of("Entailed"), label_of("LABEL_0"), label_of(" yes", ("no", "yes"))
    (0, None, 1)
    """
    if known == LABELS:
        return _WORDS.get(re.sub(r"[^a-z]", "", word.lower()))
    if word.strip() in known:  # labels that differ in case alone must be written exactly
        return known.index(word.strip())
    folded = [label.casefold() for label in known]
    name = word.strip().casefold()
    return folded.index(name) if folded.count(name) == 1 else None


def read_order(
    id2label: Mapping[int, str],
    name: str = "label order from seeds",
    asked: str | None = None,
    known: tuple[str, ...] = LABELS,
) -> LabelOrder:
    """Find the label order: as asked, configured or documented; else `unknown`, or raise."""
    labels = [str(id2label[number]) for number in sorted(id2label)]
    if (count := len(labels)) != len(known):
        why = "is it a model for another task?"
        if count == 2 and known == LABELS:
            why = "two classes cannot tell neutral from contradiction"
        elif count == len(LABELS) and (proposed := merging_advice(LABELS, known)):
            why = f"where contradiction and neutral count as one, give `merge_labels` {proposed}"
        expected, shown = ", ".join(known), ", ".join([*labels[:5], *["…"] * (count > 5)])
        got = f"one of {count} classes ({shown})"
        raise ValueError(f"{name}: expected a classifier of {expected}, got {got}: {why}")
    if asked and asked != SEEDS:
        return parse_order(asked, known)
    if positions := _positions(labels, known):
        return LabelOrder(positions, "id2label", known)
    if known == LABELS:
        lists = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))
        for entry in (e for e in chain(*lists.values()) if e["model"].lower() == name.lower()):
            if document := entry.get("label_order_source"):
                stated = parse_order(entry["label_order"]).labels
                return LabelOrder(stated, "documented", evidence={"document": document})
    if asked == SEEDS:
        return LabelOrder(tuple(range(len(known))), "unknown", known)
    raise ValueError(
        f"{name}: expected a configuration whose id2label names {', '.join(known)}, got "
        f"{', '.join(labels)}: nothing says which class is which label; say it "
        f"with `label_order`, such as {written(range(len(known)), known)}, or with `label_order` "
        f"{SEEDS}, which finds it out from the seeds' gold labels"
    )


def _positions(names: Sequence[str], known: tuple[str, ...]) -> tuple[int, ...] | None:
    given = [label_of(name, known) for name in names]
    positions = tuple(position for position in given if position is not None)
    return positions if len(given) == len(known) == len({*positions}) else None


# --- Evidence from the seeds ---


@dataclass(frozen=True, slots=True)
class OrderCheck:
    """Accuracies of predictions for the seeds: unchanged, and under the best order of labels."""

    seeds: int
    accuracy: float
    """From 0 to 1."""
    best: tuple[int, ...]
    """Labels of predictions 0, 1, … under the best order; (0, 1, …) if unchanged is best."""
    best_accuracy: float

    @property
    def suspicious(self) -> bool:
        """Tell whether another order of labels would score far better."""
        return self.seeds >= ENOUGH_SEEDS and self.best_accuracy - self.accuracy > FAR_BETTER


def check_order(
    predictions: NDArray[np.int64], gold: NDArray[np.int64], n_labels: int = len(LABELS)
) -> OrderCheck:
    """Compare all orders of labels on predictions and gold labels, (n,) with n > 0."""
    _, right = _right_by_order(predictions, gold, n_labels)
    best, n = next(iter(right)), len(gold)
    return OrderCheck(n, right[tuple(range(n_labels))] / n, best, right[best] / n)


def order_from_seeds(
    classes: NDArray[np.int64],
    gold: NDArray[np.int64],
    known: tuple[str, ...] = LABELS,
    *,
    name: str = "label order from seeds",
) -> LabelOrder:
    """Find the order that is right on far more seeds than any other; raise where there is none.

    Sign tests against every other order, on the seeds on which one of the two is right, with
    Bonferroni's correction, rule out a lead by chance. `classes`, (n,), are numbers of the model's
    classes, `gold`, (n,), positions among the labels.
    """
    if len(known) > MOST_LABELS:
        raise ValueError(
            f"{name}: expected at most {MOST_LABELS} labels, got {len(known)}; "
            "give the order with `label_order`"
        )
    confusion, right = _right_by_order(classes, gold, len(known))
    best, second, *_ = right
    p_value = 0.0
    for other in [*right][1:]:  # a one-sided sign test
        differ = [(c, a, b) for c, (a, b) in enumerate(zip(best, other, strict=True)) if a != b]
        wins, losses = (sum(int(confusion[d[0], d[k]]) for d in differ) for k in (1, 2))
        n = wins + losses
        p_value = max(p_value, sum(comb(n, k) for k in range(wins, n + 1)) / (1 << n))
    p_value = min(1.0, (len(right) - 1) * p_value)
    evidence = {
        "seeds": len(gold),
        "right": {written(o, known): count for o, count in [*right.items()][:6]},
        "p_value": p_value,
    }
    lead = (right[best] - right[second]) / len(gold) if len(gold) else 0.0
    if len(gold) < ENOUGH_SEEDS or lead < FAR_BETTER or p_value >= RARE:
        raise ValueError(
            f"{name}: expected at least {ENOUGH_SEEDS} seeds on which one order of labels is right "
            f"far more often than any other (by {FAR_BETTER:.0%} or more, p < {RARE}), "
            f"got {len(gold)} seeds: {describe_evidence(evidence)}; take more, or give the order "
            f"with `label_order`, such as {written(range(len(known)), known)}"
        )
    return LabelOrder(best, SEEDS, known, evidence)


def describe_evidence(evidence: Mapping[str, Any]) -> str:
    """Describe the evidence for an order of labels in words.

    >>> right = {"e,n,c": 170, "e,c,n": 80}
    >>> describe_evidence({"seeds": 200, "right": right, "p_value": 2e-12})
    'e,n,c is right on 85.0% of 200 seeds, the next best order, e,c,n, on 40.0%, p < 1e-9'
    """
    if "right" not in evidence:
        return str(evidence.get("document", ""))
    (best, count), (second, less), *_ = evidence["right"].items()
    seeds, p_value = evidence["seeds"], evidence["p_value"]
    p = "p < 1e-9" if p_value < 1e-9 else f"p = {p_value:.1g}"
    return (
        f"{best} is right on {as_percent(count / max(1, seeds))} of {seeds:,} seeds, the next best "
        f"order, {second}, on {as_percent(less / max(1, seeds))}, {p}"
    )


def _right_by_order(
    predictions: NDArray[np.int64], gold: NDArray[np.int64], n_labels: int
) -> tuple[NDArray[np.int64], dict[tuple[int, ...], int]]:
    """Count predictions by gold label; and correct ones by order of labels, highest first.

    The order in use, (0, 1, …), comes first among ties.
    """
    confusion = np.zeros((n_labels, n_labels), np.int64)
    np.add.at(confusion, (predictions, gold), 1)
    rows = range(n_labels)
    right = {order: int(confusion[list(rows), list(order)].sum()) for order in permutations(rows)}
    return confusion, dict(sorted(right.items(), key=lambda counted: -counted[1]))


def written(order: Sequence[int], known: tuple[str, ...]) -> str:
    """Write an order as `parse_order` reads it."""
    return ",".join(known[i][0] if known == LABELS else known[i] for i in order)
