"""What the suggestion stores say about an occurrence, after the filters without a tagger."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from generation.filters import Survivors, cheap_filters
from generation.records import MaskedQuery
from generation.suggestions import SuggestionStore
from generation.vocabulary import Vocabulary


class Candidates:
    """One MLM's candidates at every occurrence asked about."""

    def __init__(
        self, rows: dict[MaskedQuery, int], survivors: Survivors, vocabulary: Vocabulary
    ) -> None:
        """Use `read`."""
        self._rows, self._survivors, self.vocabulary = rows, survivors, vocabulary

    @classmethod
    def read(
        cls,
        store: SuggestionStore,
        queries: Collection[MaskedQuery],
        *,
        probability_filter: bool,
    ) -> Candidates:
        """Read and filter the answers to `queries`, one part of the store at a time.

        Raises:
            ValueError: some have no answer in the store.
        """
        vocabulary = store.vocabulary()
        wanted, rows, pieces = set(queries), dict[MaskedQuery, int](), []
        for part in store.parts():
            chosen = [i for i, query in enumerate(part.queries) if query in wanted]
            new = [i for i in chosen if part.queries[i] not in rows]
            rows.update({part.queries[i]: len(rows) + n for n, i in enumerate(new)})
            pieces.append(
                cheap_filters(
                    part.scores.take(new), vocabulary, probability_filter=probability_filter
                )
            )
        if missing := len(wanted) - len(rows):
            raise ValueError(
                f"{store.path}: expected answers to {len(wanted)} questions, {missing} are "
                "missing; run: merge-nli suggest"
            )
        return cls(rows, _concatenate(pieces), vocabulary)

    def take(self, queries: Sequence[MaskedQuery]) -> Survivors:
        """The candidates at some occurrences, in the order of the questions."""
        return self._survivors.take(np.array([self._rows[query] for query in queries], np.int64))


def _concatenate(pieces: Iterable[Survivors]) -> Survivors:
    pieces = list(pieces)
    sizes = np.concatenate([[0], *(np.diff(piece.starts) for piece in pieces)])
    return Survivors(
        starts=np.cumsum(sizes, dtype=np.int64),
        in_vocabulary=np.concatenate([piece.in_vocabulary for piece in pieces]),
        tokens=np.concatenate([piece.tokens for piece in pieces]),
        log_odds=np.concatenate([piece.log_odds for piece in pieces]),
        rejected=np.concatenate([piece.rejected for piece in pieces]),
    )
