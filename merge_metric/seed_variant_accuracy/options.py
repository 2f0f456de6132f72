"""Options of the metric, checked."""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np

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
    given = list(opposites) if hasattr(opposites, "__iter__") else [opposites]
    pairs = [tuple(pair) if isinstance(pair, list | tuple) else (pair,) for pair in given]
    members = list(chain.from_iterable(pairs))
    if (
        any(len(pair) != 2 for pair in pairs)
        or not all(label in labels for label in members)
        or len(set(members)) < len(members)
    ):
        raise ValueError(
            f"opposites: expected pairs of labels such as [('entailment', 'contradiction')], "
            f"each label of {list(labels)} at most once, got {opposites!r}"
        )
    return tuple((first, second) for first, second in pairs)


def check_threshold(value: Any) -> int:
    """Check a correctness threshold, integer percent 1–100."""
    expected = f"correctness_threshold: expected an integer percent from 1 to 100, got {value!r}"
    if isinstance(value, float | np.floating) and 0.005 < value <= 100:
        raise ValueError(f"{expected}: did you mean {round(value if value > 1 else 100 * value)}?")
    if isinstance(value, bool) or not hasattr(value, "__index__") or not 1 <= value <= 100:
        raise ValueError(expected)
    return operator.index(value)


def check_cluster(cluster: str, n_bootstrap: int) -> None:
    """Raise ValueError for clusters of seeds where nothing is resampled."""
    if cluster and not n_bootstrap:
        raise ValueError(
            f"cluster: expected intervals by bootstrap, which clusters by {cluster} change, got 0 "
            "replicates of it; ask for 1,000 with `n_bootstrap`"
        )


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
        threshold = check_threshold(self.correctness_threshold)
        object.__setattr__(self, "correctness_threshold", threshold)
        for name in ("n_bootstrap", "rng_seed"):
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not hasattr(value, "__index__") or value < 0:
                raise ValueError(f"{name}: expected an int of 0 or more, got {value!r}")
            object.__setattr__(self, name, operator.index(value))


USUAL: Final = Settings()
NO_INTERVALS: Final = Settings(n_bootstrap=0)
"""Figures without intervals, where CT is of no matter."""
