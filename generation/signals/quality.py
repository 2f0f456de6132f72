"""The column `quality`: how likely a reader is to find a replacement good, by its signals.

Two logistic regressions, fitted offline on judged variants and kept with their provenance in
`quality.toml`: `grammar`, over what every build knows, and `likelihood`, which also has the change
of log-likelihood by a causal language model. Each row takes the second where that change is known
and the first elsewhere. What does not apply to a row (the number of a verb) is no fault, so it
counts as none; a value that no row of a build can have makes the column unknown.

`python -m helpers.fit_quality`, in `tests/`, fits them; signals.md says how good they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from generation.config import bundled_toml

if TYPE_CHECKING:
    from numpy.typing import NDArray

ColumnReader = Callable[[str], pa.Array]
"""Function from a column's name to its values."""

GRAMMAR, LIKELIHOOD = "grammar", "likelihood"
"""Names of the two models."""

FAULTS: Final = {
    "number_changed": True,
    "tense_changed": True,
    "article_fits": False,
    "form_attested": False,
    "number_agrees": False,
    "determiner_fits": False,
    "in_compound": True,
}
"""Flag → the answer that is a fault; as a feature 1 where it is given, else 0."""

LEAST_CHANGE: Final = -30.0
"""Changes of log-likelihood below it, in nats, count as this one."""


@dataclass(frozen=True, slots=True)
class QualityModel:
    """A logistic regression over standardised features."""

    features: tuple[str, ...]
    means: NDArray[np.float64]
    deviations: NDArray[np.float64]
    coefficients: NDArray[np.float64]
    """Coefficients of standardised features, (x − mean) / deviation."""
    intercept: float

    def probabilities(self, features: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return [n] 1 / (1 + e^−z), z = intercept + Σ coefficient · (x − mean) / deviation.

        Args:
            features: [n] values each; `nan` where not known, which gives `nan`.
        """
        values = np.stack([features[name] for name in self.features], axis=1)
        z = self.intercept + ((values - self.means) / self.deviations) @ self.coefficients
        found: NDArray[np.float64] = 1 / (1 + np.exp(-z))
        return found


@cache
def shipped() -> dict[str, Any]:
    """Read `quality.toml`: models, and what they were fitted on."""
    return bundled_toml("signals/quality.toml")


@cache
def model(name: str) -> QualityModel:
    """Return one of the two shipped models."""
    found = shipped()[name]
    rows = found["features"]
    return QualityModel(
        features=tuple(rows),
        means=np.array([row["mean"] for row in rows.values()]),
        deviations=np.array([row["deviation"] for row in rows.values()]),
        coefficients=np.array([row["coefficient"] for row in rows.values()]),
        intercept=found["intercept"],
    )


def features(column: ColumnReader, pll_changes: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Return [n] values of each feature.

    Args:
        column: Gives the columns: `word_class`, `zipf_frequency`, and those of `FAULTS`.
        pll_changes: Names of the columns with changes of log-likelihood; none where these are
            not of a causal language model.
    """
    found = {
        name: _flags(pc.equal(column(name), pa.scalar(fault))) for name, fault in FAULTS.items()
    }
    word_class = column("word_class")
    for each in ("verb", "adjective"):
        found[f"is_{each}"] = _flags(pc.equal(word_class, each))
    found["zipf_frequency"] = _numbers(column("zipf_frequency"))
    # The text in which the word fits least; where it does not stand, there is no change.
    changes = [_numbers(column(name)) for name in pll_changes]
    lowest = np.fmin.reduce(changes) if changes else np.full(len(word_class), np.nan)
    found["least_change"] = np.maximum(lowest, LEAST_CHANGE)
    return found


def quality(column: ColumnReader, pll_changes: Sequence[str]) -> pa.Array:
    """Return [n] the probability that a reader finds each replacement good.

    Args:
        column: See `features`.
        pll_changes: See `features`.
    """
    values = features(column, pll_changes)
    by_grammar = model(GRAMMAR).probabilities(values)
    by_likelihood = model(LIKELIHOOD).probabilities(values)
    known = np.where(np.isnan(by_likelihood), by_grammar, by_likelihood)
    return pa.array(known.astype(np.float32), mask=np.isnan(known))


def _flags(values: pa.Array) -> NDArray[np.float64]:
    """Return [n] 1 where true, 0 where false or unknown."""
    found: NDArray[np.float64] = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return found.astype(np.float64)


def _numbers(values: pa.Array) -> NDArray[np.float64]:
    """Return [n] numbers, `nan` where unknown."""
    found: NDArray[np.float64] = pc.fill_null(values.cast(pa.float64()), np.nan).to_numpy()
    return found
