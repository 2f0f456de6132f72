"""How many suggestions went in, why each rejected one was, how many replacements came out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from generation.signals.automatic import SIGNAL_REASONS
from generation.variants.filters import REASONS
from merge_dataset.schema import WORD_CLASSES, ProblemFormat

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from generation.records import SharedWord

KEPT = "kept"
"""Suggestions that are part of a replacement: one at each occurrence, in either sentence."""
NOT_IN_VOCABULARY = "not_one_token"
"""Occurrences without suggestions, because the MLM has no one token for the word (D3)."""


class Funnel:
    """Counts per (MLM, word class).

    A suggestion is counted once for each shared word and occurrence it was made for, and
    ends under exactly one reason or as kept: suggestions = Σ reasons + kept.
    """

    def __init__(self) -> None:
        """Start at nothing."""
        self._counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def add(self, mlm: str, word_class: str, counts: Mapping[str, int]) -> None:
        """Count suggestions under reasons of `REASONS`, `KEPT` or the other columns."""
        self._counts[mlm, word_class].update(counts)

    def add_columns(
        self,
        mlm: str,
        key: str,
        word_classes: NDArray[np.int64],
        numbers: NDArray[np.int64] | None = None,
    ) -> None:
        """Count many suggestions under one key of `add`.

        Args:
            mlm: Who made them.
            key: A reason or another column.
            word_classes: [n] Places in `WORD_CLASSES`.
            numbers: [n] How many each stands for; by default one.
        """
        totals = np.bincount(word_classes, weights=numbers, minlength=len(WORD_CLASSES))
        for word_class, total in zip(WORD_CLASSES, totals.tolist(), strict=True):
            if total:
                self.add(mlm, word_class, {key: int(total)})

    def merge(self, other: Funnel) -> None:
        """Add another's counts."""
        for (mlm, word_class), counts in other._counts.items():
            self.add(mlm, word_class, counts)

    def rows(self) -> list[dict[str, Any]]:
        """One record per MLM and class, sorted; columns in the order of the filters.

        Signals are columns only where they reject something.
        """
        rows = []
        used = [r for r in SIGNAL_REASONS if any(counts[r] for counts in self._counts.values())]
        for (mlm, word_class), counts in sorted(self._counts.items()):
            ended = {reason: counts[reason] for reason in (*REASONS, *used, KEPT)}
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


def count_rejections(
    replacements: pa.Table,
    reasons: NDArray[np.int64],
    words: Mapping[str, Sequence[SharedWord]],
    problem_format: ProblemFormat,
    funnel: Funnel,
) -> None:
    """Move what was counted as kept to the reasons for which signals reject it.

    Args:
        replacements: Each by its word alone.
        reasons: [replacements] Of `signals.rejections`.
        words: Seed id → its shared words.
        problem_format: Of the seeds.
        funnel: Counts them.
    """
    names = list(SIGNAL_REASONS)
    occurrences = {
        (seed_id, word.word_class, word.word): [len(positions) for positions in word.positions]
        for seed_id, of_seed in words.items()
        for word in of_seed
    }
    rejected = replacements.filter(pa.array(reasons >= 0)).to_pylist()
    for row, number in zip(rejected, reasons[reasons >= 0].tolist(), strict=True):
        of_texts = occurrences[row["seed_id"], row["word_class"], row["word"]]
        validated = [row[name] for name in problem_format.mlms]
        for mlm in sorted(set().union(*validated)):
            count = sum(n for n, mlms in zip(of_texts, validated, strict=True) if mlm in mlms)
            funnel.add(
                mlm, row["word_class"], {names[number]: count, KEPT: -count, "replacements": -1}
            )


def render_funnel(rows: Iterable[Mapping[str, Any]]) -> str:
    """The funnel as text: MLMs and classes as columns, what happened as lines.

    Shares are of all suggestions in the column.
    """
    from rich.console import Console
    from rich.table import Table

    rows = list(rows)
    table = Table(title="Funnel: what became of the suggestions", title_justify="left")
    table.add_column("")
    for row in rows:
        table.add_column(f"{row['mlm']}\n{row['word_class']}", justify="right")
    reasons = [key for key in (*REASONS, *SIGNAL_REASONS) if any(key in row for row in rows)]
    for key in ("suggestions", *reasons, KEPT, "replacements", NOT_IN_VOCABULARY):
        counted = key in reasons or key == KEPT
        cells = (_cell(row[key], row["suggestions"] if counted else None) for row in rows)
        table.add_row(key.replace("_", " "), *cells)
    console = Console(width=32 + 16 * len(rows), color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def _cell(count: int, total: int | None) -> str:
    return f"{count:,}" if not total else f"{count:,} {count / total:5.1%}"
