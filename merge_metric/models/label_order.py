"""The order of a classifier's labels: read, looked up, asked for, never assumed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from merge_dataset.schema import LABELS
from merge_metric.models.presets import documented_order

FAR_BETTER: Final = 0.2
"""Accuracy by which another order must win on the seeds to be suspected the right one."""
ENOUGH_SEEDS: Final = 30
"""Seeds without which nothing is concluded about an order."""
ASKED_SEEDS: Final = 300
"""Seeds of each source that are asked about to find out an order."""
MOST_LABELS: Final = 6
"""With more there are too many orders to try all."""

SEEDS: Final = "seeds"
"""In place of an order: where nothing says it, the one that scores best on the seeds."""

_STEMS: Final = ("entail", "neutral", "contradict")
_SUFFIXES: Final = ("", "s", "ed", "ion", "ment", "ory", "ing")
_WORDS: Final = {
    word: position
    for position, stem in enumerate(_STEMS)
    for word in (stem[0], *(stem + suffix for suffix in _SUFFIXES))
}
"""Name of a label in a model's configuration → its position in `LABELS`."""


@dataclass(frozen=True, slots=True)
class LabelOrder:
    """The labels of a model's classes, and how they are known."""

    labels: tuple[int, ...]
    """Positions in `known` of the labels of classes 0, 1, …"""
    source: str
    """`id2label`, `documented`, `given`, `seeds` or `unknown`."""
    known: tuple[str, ...] = LABELS
    """The labels of the problems."""

    @property
    def names(self) -> list[str]:
        """Names of the labels of classes 0, 1, and so on."""
        return [self.known[position] for position in self.labels]

    def rearrange(self, of_classes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn columns of the model's classes into columns of the labels.

        Class k is label `labels[k]`, so column k goes to column `labels[k]`. Reading column
        `labels[k]` into column k is the inverse: the same thing for orders that swap two
        labels, another for those that turn all three round.

        >>> LabelOrder((2, 0, 1), "given").rearrange(np.array([[0.7, 0.2, 0.1]])).tolist()
        [[0.2, 0.1, 0.7]]
        """
        of_labels = np.empty_like(of_classes)
        of_labels[:, list(self.labels)] = of_classes
        return of_labels

    def corrected(self, relabelling: Sequence[int], source: str) -> LabelOrder:
        """Return the order under which what is now label i is label `relabelling[i]`."""
        return replace(self, labels=tuple(relabelling[i] for i in self.labels), source=source)


def unknown_order(known: tuple[str, ...] = LABELS) -> LabelOrder:
    """Return an order that stands in until the seeds have been asked."""
    return LabelOrder(tuple(range(len(known))), "unknown", known)


def parse_order(text: str, known: tuple[str, ...] = LABELS) -> LabelOrder:
    """Read the order that a user gives, such as `e,n,c` or `contradiction,entailment,neutral`.

    Args:
        text: What the model's classes 0, 1, … mean.
        known: The labels of the problems.

    Raises:
        ValueError: not each of the labels once.

    >>> parse_order("c,e,n").labels, parse_order("yes,no", ("no", "yes")).labels
    ((2, 0, 1), (1, 0))
    """
    found = _positions(text.split(","), known)
    if found is None:
        names, such = ("e, n, c", "c,e,n") if known == LABELS else (", ".join(known), None)
        raise ValueError(
            f"label order: expected what the model's classes "
            f"{', '.join(map(str, range(len(known))))} mean, each of {names} once, "
            f"such as {such or ','.join(known[::-1])}, got {text!r}"
        )
    return LabelOrder(found, "given", known)


def check_classes(
    id2label: Mapping[int, str], name: str, known: tuple[str, ...] = LABELS
) -> list[str]:
    """Return a classifier's own names for its classes.

    Args:
        id2label: Of the model's configuration.
        name: What messages call the model.
        known: The labels of the problems.

    Raises:
        ValueError: not as many classes as labels.
    """
    labels = [str(id2label[number]) for number in sorted(id2label)]
    if len(labels) != len(known):
        raise ValueError(f"{name}: {_describe_mismatch(labels, known)}")
    return labels


def read_order(
    id2label: Mapping[int, str],
    name: str,
    otherwise: LabelOrder | None = None,
    known: tuple[str, ...] = LABELS,
) -> LabelOrder:
    """Read the labels of a classifier's classes from its configuration, or look them up.

    Args:
        id2label: Of the model's configuration.
        name: Hub id, or anything else for a model that is not on the Hub.
        otherwise: What to take where nothing says it; by default that is an error.
        known: The labels of the problems.

    Raises:
        ValueError: not as many classes as labels, or nothing says what they mean.
    """
    labels = check_classes(id2label, name, known)
    if found := _positions(labels, known):
        return LabelOrder(found, "id2label", known)
    if known == LABELS and (documented := documented_order(name)):
        return LabelOrder(parse_order(documented).labels, "documented")
    if otherwise is not None:
        return otherwise
    such = "e,n,c" if known == LABELS else ",".join(known)
    raise ValueError(
        f"{name}: expected a configuration whose id2label names {', '.join(known)}, got "
        f"{', '.join(labels)}: nothing says which class is which label; give it as "
        f"--label-order, such as {such}, or find it out from the seeds' gold labels by "
        f"--label-order {SEEDS}"
    )


def _positions(names: Sequence[str], known: tuple[str, ...]) -> tuple[int, ...] | None:
    """Find the positions among the labels of as many names, if they are the labels."""
    if known == LABELS:
        found = [_WORDS.get(re.sub(r"[^a-z]", "", name.lower()), -1) for name in names]
    else:
        # Labels that differ in case alone have to be there to the letter.
        folded = [label.casefold() for label in known]
        places = {label: n for n, label in enumerate(folded) if folded.count(label) == 1}
        places |= {label: n for n, label in enumerate(known)}
        found = [places.get(n.strip(), places.get(n.strip().casefold(), -1)) for n in names]
    return tuple(found) if sorted(found) == list(range(len(known))) else None


def _describe_mismatch(labels: Sequence[str], known: tuple[str, ...]) -> str:
    expected = f"expected a classifier of {', '.join(known)}, got one of"
    if len(labels) == 2 and known == LABELS:
        return (
            f"{expected} {' and '.join(labels)}: two classes cannot tell neutral from "
            f"contradiction, so it would be wrong on a third of the problems whatever it knows"
        )
    shown = ", ".join(labels[:5]) + (", …" if len(labels) > 5 else "")
    return f"{expected} {len(labels)} classes ({shown}); is it a model for another task?"


# --- Evidence from the seeds ---


@dataclass(frozen=True, slots=True)
class OrderCheck:
    """Accuracies of predictions for the seeds, as they are and under the best relabelling."""

    seeds: int
    accuracy: float
    """From 0 to 1."""
    best: tuple[int, ...]
    """Best labels of predictions 0, 1, …; (0, 1, …) if they are best as they are."""
    best_accuracy: float
    second_accuracy: float
    """That of the best relabelling but one."""

    @property
    def suspicious(self) -> bool:
        """Tell whether another order of labels would score far better."""
        return self.seeds >= ENOUGH_SEEDS and self.best_accuracy - self.accuracy > FAR_BETTER

    @property
    def decisive(self) -> bool:
        """Tell whether the seeds tell the best order from all others."""
        return self.seeds >= ENOUGH_SEEDS and self.best_accuracy - self.second_accuracy > FAR_BETTER


def check_order(
    predictions: NDArray[np.int64], gold: NDArray[np.int64], n_labels: int = len(LABELS)
) -> OrderCheck:
    """Compare all orders of labels on predictions for problems with gold labels.

    Args:
        predictions: (n,), positions among the labels under the order in use; n > 0.
        gold: (n,), positions among the labels.
        n_labels: How many there are, at most `MOST_LABELS`.
    """
    confusion = np.zeros((n_labels, n_labels), np.int64)
    np.add.at(confusion, (predictions, gold), 1)
    in_use = tuple(range(n_labels))
    # The order in use comes first, and sorting is stable: on a tie it stays as it is.
    right = {
        order: int(confusion[list(in_use), list(order)].sum()) for order in permutations(in_use)
    }
    ranked = sorted(right, key=lambda order: -right[order])
    accuracies = [right[order] / len(gold) for order in (in_use, ranked[0], ranked[1])]
    return OrderCheck(len(gold), accuracies[0], ranked[0], accuracies[1], accuracies[2])


def order_from_seeds(
    predictions: NDArray[np.int64], gold: NDArray[np.int64], in_use: LabelOrder
) -> LabelOrder:
    """Find the order of labels that the seeds' gold labels speak for.

    Args:
        predictions: (n,), positions among the labels under the order `in_use`.
        gold: (n,), positions among the labels.
        in_use: Any order.

    Raises:
        ValueError: too few seeds, or two orders score alike.
    """
    if len(in_use.known) > MOST_LABELS:
        raise ValueError(
            f"label order from seeds: expected at most {MOST_LABELS} labels, got "
            f"{len(in_use.known)}; give the order as --label-order"
        )
    check = check_order(predictions, gold, len(in_use.known))
    such = "e,n,c" if in_use.known == LABELS else ",".join(in_use.known)
    if not check.decisive:
        raise ValueError(
            f"label order from seeds: expected at least {ENOUGH_SEEDS} seeds on which one order "
            f"is right more often than any other by {FAR_BETTER:.0%}, got {check.seeds} seeds, "
            f"where the best two are right on {check.best_accuracy:.0%} and "
            f"{check.second_accuracy:.0%}; give the order as --label-order, such as {such}"
        )
    return in_use.corrected(check.best, SEEDS)
