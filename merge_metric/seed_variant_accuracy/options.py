"""Options of the metric, checked."""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

LABELS: Final = ("entailment", "neutral", "contradiction")
OPPOSITES: Final = (("entailment", "contradiction"),)

NO_LABEL: Final = -1
"""In place of a label's position: the answer names none."""

SUM_TOLERANCE: Final = 0.01
"""Largest distance of a sum of probabilities from 1; bfloat16 softmaxes come near it."""


def label_names(labels: Sequence[str] | None) -> tuple[str, ...]:
    """Check that the names of the labels are two or more distinct strings."""
    names = LABELS if labels is None else tuple(labels) if hasattr(labels, "__iter__") else ()
    strings = not isinstance(labels, str) and all(isinstance(name, str) for name in names)
    if not strings or len(set(names)) < max(2, len(names)):
        raise ValueError(f"labels: expected two or more distinct names, got {labels!r}")
    return names


def check_opposites(
    opposites: Iterable[Sequence[str]] | None, labels: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Check pairs of opposite labels; by default `OPPOSITES` where `labels` has both, else none."""
    if opposites is None:
        return tuple(pair for pair in OPPOSITES if set(pair) <= set(labels))
    try:
        pairs = tuple((first, second) for first, second in opposites)
        members = list(chain.from_iterable(pairs))
        is_known = set(members) <= set(labels) and len(set(members)) == len(members)
        is_known &= not any(isinstance(pair, str) for pair in opposites)
    except (TypeError, ValueError):
        is_known = False
    if not is_known:
        raise ValueError(
            f"opposites: expected pairs of labels such as [('entailment', 'contradiction')], "
            f"each label of {list(labels)} at most once, got {opposites!r}"
        )
    return pairs


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that figures and their intervals are computed with, checked."""

    correctness_threshold: int = 90
    """CT of `seed_variant_accuracy`, integer percent 1–100."""
    n_bootstrap: int = 1000
    """Replicates of the bootstrap over seeds; 0 leaves intervals out."""
    rng_seed: int = 0
    """Seed of the bootstrap, for NumPy's default generator."""

    def __post_init__(self) -> None:
        """Raise ValueError where one is no integer, or out of range."""
        limits: tuple[tuple[int, float], ...] = ((1, 100), (0, math.inf), (0, math.inf))
        for name, (low, high) in zip(self.__slots__, limits, strict=True):
            value: Any = getattr(self, name)
            is_int = hasattr(value, "__index__") and not isinstance(value, bool)
            if not is_int or not low <= value <= high:
                expected, hint = f"an int of {low} or more", ""
                if high < math.inf:
                    expected = f"an integer percent from {low} to {high}"
                    if isinstance(value, float | np.floating) and 0.005 < value <= high:
                        hint = f": did you mean {round(value if value > 1 else 100 * value)}?"
                raise ValueError(f"{name}: expected {expected}, got {value!r}{hint}")
            object.__setattr__(self, name, operator.index(value))


USUAL: Final = Settings()
NO_INTERVALS: Final = Settings(n_bootstrap=0)
"""Figures without intervals, where CT is of no matter."""


# --- Labels that count as one ---

FEWEST: Final = 10
"""Fewest seeds for `never_gold`: of fewer, balanced over three labels, many lack one by chance."""


@dataclass(frozen=True, slots=True)
class Merging:
    """Labels that count as others; without any, every label counts as itself."""

    becomes: Mapping[str, str] = field(default_factory=dict)
    """Label → the one that it counts as."""

    @classmethod
    def parse(cls, texts: str | Sequence[str]) -> "Merging":
        """Read one or several texts such as `contradiction,neutral=not_entailment`.

        >>> str(Merging.parse(["contradiction,neutral=not_entailment", "yes=entailment"]))
        'contradiction,neutral=not_entailment;yes=entailment'
        """
        given = texts.split(";") if isinstance(texts, str) else texts
        pairs = [
            (label.strip(), other.strip())
            for labels, _, other in (text.partition("=") for text in given if text)
            for label in labels.split(",")
        ]
        becomes = dict(pairs)
        if not all(label and other and "=" not in other for label, other in pairs) or any(
            {becomes[label], becomes.get(other, other)} != {other} for label, other in pairs
        ):
            raise ValueError(
                "merge_labels: expected labels and the one that they count as, which stays, such "
                f"as contradiction,neutral=not_entailment, got {texts!r}"
            )
        return cls({label: other for label, other in pairs if label != other})

    def __bool__(self) -> bool:
        return bool(self.becomes)

    def __str__(self) -> str:
        """Write it as `parse` reads it."""
        targets = dict.fromkeys(self.becomes.values())
        of = {t: [label for label, other in self.becomes.items() if other == t] for t in targets}
        return ";".join(f"{','.join(labels)}={target}" for target, labels in of.items())

    def of(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Merge labels, in their order.

        >>> Merging.parse("contradiction,neutral=not_entailment").of(LABELS)
        ('entailment', 'not_entailment')
        """
        return tuple(dict.fromkeys(self.becomes.get(label, label) for label in labels))

    def require(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Merge labels; raise ValueError unless some or others are merged, and two are left."""
        unknown = [a for a, b in self.becomes.items() if a not in labels and b not in labels]
        if unknown or len(self.of(labels)) < 2:
            got = f"{unknown[0]!r}" if unknown else f"all of them as {self.of(labels)[0]!r}"
            raise ValueError(
                f"merge_labels: expected some of the labels {', '.join(labels)} to count as one, "
                f"or others as one of these, and two to be left, got {got} ({self})"
            )
        return self.of(labels)

    def known(self, labels: Sequence[str]) -> tuple[str, ...]:
        """List labels, and after them the further ones that predictions may name."""
        names = (*self.given(labels), *self.becomes, *self.becomes.values())
        return tuple(dict.fromkeys((*labels, *names)))

    def given(self, labels: Sequence[str]) -> tuple[str, ...]:
        """List the labels that a model of problems with these labels gives, before merging.

        >>> Merging.parse("neutral,contradiction=no").given(("no", "entailment"))
        ('entailment', 'neutral', 'contradiction')
        """
        others = [label for label in self.becomes if label not in labels]
        targets = {self.becomes[label] for label in others}
        labels_given = (*(label for label in labels if label not in targets), *others)
        return LABELS if set(labels_given) == set(LABELS) else labels_given

    def codes(self, labels: Sequence[str]) -> NDArray[np.int64]:
        """Map positions in `labels` to positions in `of(labels)`; the last is for no label.

        >>> Merging.parse("contradiction,neutral=not_entailment").codes(LABELS).tolist()
        [0, 1, 1, -1]
        """
        merged = self.of(labels)
        return np.array([*(merged.index(self.becomes.get(x, x)) for x in labels), NO_LABEL])

    def summed(self, table: NDArray[np.float64], labels: Sequence[str]) -> NDArray[np.float64]:
        """Sum the columns of probabilities, (n, L), of labels that count as one."""
        merged = np.zeros((len(table), len(self.of(labels))))
        for column, code in zip(table.T, self.codes(labels), strict=False):
            merged[:, code] += column
        return merged


def merging_advice(labels: Sequence[str], gold: Sequence[str]) -> str:
    """Propose how to merge NLI's labels for data of two classes; empty for other labels.

    >>> merging_advice(LABELS, ["entailment", "neutral"])
    'contradiction,neutral=not_entailment'
    >>> merging_advice(["entailment", "neutral", "contradiction", "no"], ["no", "entailment"])
    'contradiction,neutral=no'
    """
    others = [label for label in gold if label != LABELS[0]]
    if len(others) != 1 or len(others) == len(gold) or not {*LABELS} <= {*labels}:
        return ""
    name = "not_entailment" if others[0] in LABELS else others[0]
    return f"contradiction,neutral={name}"


def never_gold(labels: Sequence[str], of_gold: Any, of_predicted: Any) -> str:
    """Say which labels are predicted, in 2 % or more, and never gold; empty for none.

    `of_gold` and `of_predicted` are counts by label, (L,), of the same rows.
    """
    total = int(np.sum(of_gold))
    odd = [
        f"{label} ({100 * n / total:.0f} %)"
        for label, gold, n in zip(labels, of_gold, of_predicted, strict=True)
        if not gold and n >= 0.02 * total
    ]
    if not odd:
        return ""
    golden = [label for label, count in zip(labels, of_gold, strict=True) if count]
    proposed = merging_advice(labels, golden)
    remedy = f"`merge_labels` {proposed}" if proposed else "`merge_labels`"
    return (
        f"predicts {', '.join(odd)} although no problem has such a gold label, so these answers "
        f"count as wrong; where the data have fewer classes than the model, {remedy} counts labels "
        "as one"
    )
