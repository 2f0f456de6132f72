"""What a comparison of models found, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from merge_metric.seed_variant_accuracy.figures import CATALOGUE
from merge_metric.tables import Column, Table, figure_column

ALPHA: Final = 0.05
"""Level of the tests, over all pairs of models together."""

RULE: Final = (
    "Ranks by SV@{ct}: two models tie where their difference is not significant. A model's best "
    "rank is one more than there are significantly better models; its worst rank leaves room "
    "for the significantly worse ones alone."
)

FIGURES: Final = (
    "seed_accuracy",
    "variant_accuracy",
    "seed_variant_accuracy",
    "matching_threshold",
    "relaxed_fooling_rate",
    "strict_fooling_rate",
)
"""Of the metric, those that are compared."""

DECISIVE: Final = "seed_variant_accuracy"
"""By which models are ranked."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Models on one configuration."""

    config: str
    models: Table
    """Best first."""
    pairs: Table
    """The better of two first."""
    signature: str

    def ranking(self) -> Table:
        """Ranks and what decides them, for where the other figures stand nearby."""
        return replace(
            self.models,
            name="ranking",
            columns=tuple(c for c in self.models.columns if c.key in ("rank", "model", DECISIVE)),
            notes=self.models.notes[-1:],
        )

    def neighbours(self) -> Table:
        """The pairs of models that follow one another in the ranking."""
        order = [row["model"] for row in self.models.rows]
        following = set(pairwise(order))
        rows = tuple(row for row in self.pairs.rows if (row["a"], row["b"]) in following)
        return replace(
            self.pairs,
            rows=rows,
            title="Differences: each model less the next in the ranking",
            notes=(
                *self.pairs.notes,
                f"Shown are {len(rows)} of {len(self.pairs.rows)} pairs.",
            ),
        )

    def to_text(self) -> str:
        """Both tables and the signature."""
        parts = (self.models.to_text(), self.pairs.to_text(), f"signature: {self.signature}")
        return "\n\n".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "config": self.config,
            "models": self.models.as_dict(),
            "pairs": self.pairs.as_dict(),
            "signature": self.signature,
        }


def models_table(title: str, rows: Sequence[Mapping[str, Any]], ct: int) -> Table:
    """A row per model, the best first: figures with `_ci`, `rank`."""
    return Table(
        name="models",
        title=title,
        columns=(
            Column("rank", "rank"),
            Column("model", "model"),
            *_figure_columns(ct),
        ),
        rows=tuple(rows),
        notes=(
            "In percent, with 95 % intervals by bootstrap over seeds; r_r and r_s: lower is "
            "better.",
            RULE.format(ct=ct),
        ),
    )


def pairs_table(rows: Sequence[Mapping[str, Any]], ct: int, replicates: int) -> Table:
    """A row per pair: differences with `_ci`, p-values after `replicates` of the bootstrap."""
    return Table(
        name="pairs",
        title="Differences: the first model less the second",
        columns=(
            Column("a", "first"),
            Column("b", "second"),
            *_figure_columns(ct, difference=True),
            Column("mcnemar_p_value_holm", "p of S", "p_value"),
            Column("seed_variant_accuracy_p_value_holm", f"p of SV@{ct}", "p_value"),
        ),
        rows=tuple(rows),
        notes=(
            f"In percentage points, with 95 % intervals: paired bootstrap over seeds, "
            f"{replicates:,} replicates.",
            f"p of S: McNemar's exact test on which seeds are answered right. p of SV@{ct}: the "
            f"paired bootstrap. Two-sided{_corrected(len(rows))}; significant at {ALPHA} or less.",
        ),
    )


def _corrected(n_pairs: int) -> str:
    if n_pairs == 1:
        return ""
    return f", each corrected by Holm's method over all {n_pairs} pairs, which intervals are not"


def _figure_columns(ct: int, *, difference: bool = False) -> list[Column]:
    return [figure_column(CATALOGUE[key].at(ct), difference=difference) for key in FIGURES]
