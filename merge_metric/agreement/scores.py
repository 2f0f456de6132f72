"""How often which score was given: by class and weighted (paper, figure 9), by MLM (figure 10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from merge_metric.agreement.coefficients import Floats
from merge_metric.agreement.judgements import FLUENCY, REASONING, SCORES, Cell, Judgements
from merge_metric.agreement.shares import groups, item_weights
from merge_metric.tables import Column, Table

ANSWERS: Final = tuple(str(n) for n in range(1, SCORES[FLUENCY] + 1))
"""Keys of the shares of a row."""

WEIGHTED: Final = "weighted"


def score_table(judgements: Judgements, seeds: Mapping[Cell, int] | None = None) -> Table:
    """A row for each score and group of variants: all, classes, masked LMs.

    Args:
        judgements: Of one annotator or more.
        seeds: Source and class → seeds in the dataset, for the rows that are weighted; None
            where they are not known.
    """
    rows: list[dict[str, Any]] = []
    for score in (FLUENCY, REASONING):
        for by, group, part, weights in _parts(judgements, seeds):
            shares = distribution(part, score, weights)
            row = {"score": score, "by": by, "group": group, "n": len(part.variant_ids)}
            rows.append(row | dict(zip(ANSWERS, shares.tolist(), strict=True)))
    return Table(
        name="scores",
        title="Scores of fluency (F) and reasoning (R)",
        columns=(
            Column("score", "score"),
            Column("by", "by"),
            Column("group", ""),
            Column("n", "variants", "count"),
            *(Column(answer, answer, "share") for answer in ANSWERS),
        ),
        rows=tuple(rows),
        notes=("In percent. A variant counts once: of two annotators each one's score is a half.",),
    )


def distribution(part: Judgements, score: str, weights: Floats) -> Floats:
    """(5,) share of each answer among variants, which their annotators share evenly."""
    codes = part.codes[score]
    each = np.eye(SCORES[score] + 1)[codes][:, :, 1:].sum(axis=0) / part.n_annotators[:, None]
    return np.asarray(np.average(each, axis=0, weights=weights))


def _parts(
    judgements: Judgements, seeds: Mapping[Cell, int] | None
) -> Iterator[tuple[str, str, Judgements, Floats]]:
    for by, group, _, part in groups(judgements):
        if by in ("all", "class", "MLM"):
            yield by, group, part, np.ones(len(part.variant_ids))
        if by == "all" and seeds and judgements.items:
            yield by, WEIGHTED, part, item_weights(judgements.items, seeds)
