"""The funnel: counts of suggestions by fate, and the words and problems that are left out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from generation.problems.shared_words import TaggedProblems
from generation.records import Exclusion
from generation.variants.reasons import KEPT, NO_REASON, REASONS, Reason, funnel_columns
from merge_dataset.schema import WORD_CLASSES, ProblemFormat

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUGGESTION_REASONS: Final = Reason.of_steps("candidates", "one text", "all texts", "context")
OCCASIONAL_REASONS: Final = Reason.of_steps("asking", "signals")
"""Reasons that only some runs have; their columns appear only where they reject something."""
NOT_IN_VOCABULARY: Final = "not_one_token"
"""Column that counts occurrences without suggestions: the word is not one token there (D3)."""

FUNNEL_COLUMNS: Final = funnel_columns(
    Reason.of_steps("candidates", "asking", "one text", "all texts", "context", "signals"),
    {
        "suggestions": "all suggestions of the model, for each occurrence of each shared word",
        KEPT: "part of a replacement",
        "replacements": "distinct replacements of a seed's words, validated by the model in some "
        "text",
        NOT_IN_VOCABULARY: "occurrences without suggestions, as the model has no one token for the "
        "word",
    },
)
"""Column of a funnel of suggestions → what it counts."""

WordKey = tuple[str, str, str]
"""Seed id, word class, word."""


class Funnel:
    """Counts per (MLM, word class): suggestions = Σ reasons + kept.

    A suggestion is counted once for each shared word and occurrence it was made for. A replacement
    has one kept suggestion at each occurrence, in either sentence.
    """

    def __init__(self) -> None:
        """Start without counts."""
        self._counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def add(self, mlm: str, word_class: str, counts: Mapping[str, int]) -> None:
        """Add counts of suggestions under reasons, `KEPT` or other columns."""
        self._counts[mlm, word_class].update(counts)

    def add_columns(
        self,
        mlm: str,
        key: str,
        word_classes: NDArray[np.int64],
        numbers: NDArray[np.int64] | None = None,
    ) -> None:
        """Add counts under one key: [n] places in `WORD_CLASSES`; [n] numbers, 1 each if None."""
        totals = np.bincount(word_classes, weights=numbers, minlength=len(WORD_CLASSES))
        for word_class, total in zip(WORD_CLASSES, totals.tolist(), strict=True):
            if total:
                self.add(mlm, word_class, {key: int(total)})

    def counts(self) -> list[list[Any]]:
        """Return the counts as JSON rows, each of which can be added to another funnel."""
        return [[*key, dict(counts)] for key, counts in self._counts.items()]

    def rows(self) -> list[dict[str, Any]]:
        """Return a record per MLM and class, sorted; occasional reasons only where they reject."""
        rows = []
        used = [r for r in OCCASIONAL_REASONS if any(counts[r] for counts in self._counts.values())]
        for (mlm, word_class), counts in sorted(self._counts.items()):
            reasons = (*SUGGESTION_REASONS, *used, KEPT)
            ended = {str(reason): counts[reason] for reason in reasons}
            rows.append(
                {
                    "mlm": mlm,
                    "word_class": word_class,
                    "suggestions": sum(ended.values()),
                    **ended,
                    "replacements": counts["replacements"],
                    NOT_IN_VOCABULARY: counts[NOT_IN_VOCABULARY],
                }
            )
        return rows


def most_frequent_reasons(rows: Iterable[Mapping[str, Any]]) -> str:
    """Name the most frequent reasons to drop suggestions, in one line.

    >>> most_frequent_reasons([{"mlm": "m", "less_probable": 3237, "few_mlms": 12}])
    'not more probable than the original (3,237), validated by fewer masked LMs than min_mlms (12)'
    """
    totals: Counter[Reason] = Counter()
    for row in rows:
        totals.update({reason: row[reason] for reason in Reason if reason in row})
    return ", ".join(
        f"{reason.sentence.partition(' (')[0]} ({total:,})"
        for reason, total in totals.most_common(3)
        if total
    )


def count_rejections(
    replacements: pa.Table,
    reasons: NDArray[np.int8],
    problems: TaggedProblems,
    problem_format: ProblemFormat,
    funnel: Funnel,
) -> None:
    """Move counts from kept to the reasons for which signals reject replacements."""
    is_rejected = reasons != NO_REASON
    occurrences = {
        (seed.seed_id, word.word_class, word.word): list(map(len, word.positions))
        for seed, word in problems.pairs()
    }
    rejected = replacements.filter(pa.array(is_rejected)).to_pylist()
    for row, number in zip(rejected, reasons[is_rejected].tolist(), strict=True):
        of_texts = occurrences[row["seed_id"], row["word_class"], row["word"]]
        validated = [row[name] for name in problem_format.mlms]
        for mlm in sorted(set().union(*validated)):
            count = sum(n for n, mlms in zip(of_texts, validated, strict=True) if mlm in mlms)
            funnel.add(
                mlm, row["word_class"], {REASONS[number]: count, KEPT: -count, "replacements": -1}
            )


def count_words(replacements: pa.Table) -> dict[WordKey, int]:
    """Count the replacements of each word that has any."""
    names = ["seed_id", "word_class", "word"]
    counted = replacements.group_by(names).aggregate([([], "count_all")])
    *keys, counts = (counted[name].to_pylist() for name in (*names, "count_all"))
    return dict(zip(zip(*keys, strict=True), counts, strict=True))


def excluded_words(
    problems: TaggedProblems,
    replacements: pa.Table,
    rejected: Mapping[WordKey, tuple[Reason, int | None]],
) -> Iterator[Exclusion]:
    """Yield problems without a shared word, and shared words without a replacement."""
    replaced = count_words(replacements)
    for seed in problems.seeds:
        if not problems.words[seed.seed_id]:
            yield Exclusion(seed.seed_id, seed.source, Reason.NO_SHARED_WORD)
        for word in problems.words[seed.seed_id]:
            key = (seed.seed_id, word.word_class, word.word)
            if key not in replaced:
                reason, count = rejected.get(key, (Reason.NO_REPLACEMENT, 0))
                named = word.word, word.word_class
                yield Exclusion(seed.seed_id, seed.source, reason, count, *named)


def unlabelled(seed_ids: Iterable[str], source: str) -> Iterator[Exclusion]:
    """Yield rows of the source without a gold label (D15)."""
    for seed_id in seed_ids:
        yield Exclusion(seed_id, source, Reason.UNLABELLED)
