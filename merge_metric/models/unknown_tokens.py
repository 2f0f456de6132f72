"""Unknown tokens: words that a tokenizer cannot spell, and a warning if they are many.

A vocabulary that fits its language takes unknown words apart, to single letters if need be: BERT's
leaves one token in 20,000 of MultiNLI unknown, of SNLI none. A model whose tokenizer is missing,
broken, or of another language answers all the same.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeVar

SHARE: Final = 0.03
"""Largest share of unknown tokens without a warning: at 24 tokens a problem, as in SNLI, most
problems have one then; vocabularies that fit are hundreds of times below."""
_TEXTS: Final = 2000
"""Texts that are looked at, evenly spaced: 24 tokens each tell 3 % to within 0.2."""
_EXAMPLES: Final = 5

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UnknownTokens:
    """Counts of a run's texts, or of an even sample of them."""

    texts: int
    tokens: int
    unknown: int
    words: tuple[str, ...]
    """The most frequent words with unknown tokens, where these are many."""

    @property
    def many(self) -> bool:
        """Tell whether they are more than `SHARE` of all."""
        return self.unknown > SHARE * self.tokens

    @property
    def record(self) -> dict[str, Any]:
        """The entry for provenance; empty where they are few."""
        if not self.many:
            return {}
        return {"unknown_tokens": {"texts": self.texts, "tokens": self.tokens,
                                   "unknown": self.unknown, "words": list(self.words)}}  # fmt: skip

    @property
    def sentence(self) -> str:
        """A warning; empty where they are few."""
        if not self.many:
            return ""
        return (
            f"{self.unknown / self.tokens:.0%} of {self.tokens:,} tokens in {self.texts:,} texts "
            f"are unknown to its tokenizer, as in {', '.join(map(repr, self.words))}; is it the "
            "tokenizer that it was trained with, and the right language?"
        ).replace("%", " %", 1)

    def warn(self, name: str) -> None:
        """Warn on stderr where they are many."""
        if self.many:
            log.warning("%s: warning: %s", name, self.sentence)


def evenly(values: Sequence[T]) -> Sequence[T]:
    """Take every n-th of many values, as many as are looked at."""
    return values[:: -(-len(values) // _TEXTS) or 1]


def count_unknown(
    texts: Sequence[str],
    tokenize: Callable[[list[str]], Sequence[Sequence[int]]],
    unknown_id: int | None,
) -> UnknownTokens:
    """Count unknown tokens in texts; of many texts, every n-th is looked at."""
    sample = list(evenly(texts))
    if unknown_id is None or not sample:
        return UnknownTokens(len(sample), 0, 0, ())
    rows = tokenize(sample)
    tokens = sum(map(len, rows))
    unknown = sum(list(row).count(unknown_id) for row in rows)
    found = UnknownTokens(len(sample), tokens, unknown, ())
    if not found.many:
        return found
    words = [w for w, _ in Counter(w for text in sample for w in text.split()).most_common()]
    bad = (word for word, row in zip(words, tokenize(words), strict=True) if unknown_id in row)
    return replace(found, words=tuple(islice(bad, _EXAMPLES)))
