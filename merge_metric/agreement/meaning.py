"""Paraphrases that annotators found to mean the same (Arakelyan et al. 2024, section 3.1).

The paper has 100 pairs judged by two annotators, who "marked the samples as equivalent" in 99 %
of the cases, with κ = 0.94. Both hold at once where 99 % is how often the two agree: 90 pairs that
both find the same, 9 that neither does and one that only one does have an agreement of 99 % and
κ = 0.942. Of 99 pairs that both find the same κ would be 1 or 0, as the last one decides.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from merge_metric.agreement.judgements import SAME, Judgements
from merge_metric.agreement.shares import wilson
from merge_metric.tables import Column, Table


def meaning_table(judgements: Judgements) -> Table:
    """Tabulate shares of pairs found to mean the same: all, by source, by annotator.

    Args:
        judgements: About paraphrases.
    """
    rows = []
    for by, group, part in _groups(judgements):
        said = part.codes[SAME]
        n_yes, n_answers = int((said == 2).sum()), int((said > 0).sum())
        n, by_all = len(part.variant_ids), int((((said == 2) | (said == 0)).all(axis=0)).sum())
        rows.append(
            {"by": by, "group": group, "n": n, "n_answers": n_answers, "n_yes": n_yes}
            | {"yes": n_yes / n_answers, "yes_ci": wilson(n_yes, n_answers)}
            | {"n_by_all": by_all, "by_all": by_all / n, "by_all_ci": wilson(by_all, n)}
        )
    return Table(
        name="meaning",
        title="Paraphrases that mean the same as their original",
        columns=(
            Column("by", "by"),
            Column("group", ""),
            Column("n", "pairs", "count"),
            Column("n_answers", "answers", "count"),
            Column("yes", "yes, %", "share", "yes_ci"),
            Column("by_all", "by all, %", "share", "by_all_ci"),
        ),
        rows=tuple(rows),
        notes=(
            "Yes: of the answers; by all: pairs that every annotator who judged them found the "
            "same. In brackets Wilson's 95 % intervals, which take answers, or pairs, for "
            "independent.",
        ),
    )


def _groups(judgements: Judgements) -> Iterator[tuple[str, str, Judgements]]:
    yield "all", "", judgements
    sources = sorted({item.source for item in judgements.items or ()})
    for source in sources:
        of_source = np.array([item.source == source for item in judgements.items or ()])
        yield "source", source, judgements.take(of_source)
    if len(judgements.annotators) > 1:
        for number, annotator in enumerate(judgements.annotators):
            own = judgements.by_one(number)
            yield "annotator", annotator, own.take(own.answered[0])
