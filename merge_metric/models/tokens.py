"""Tokens of texts: faster than by the library, and those that a tokenizer does not know."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Final, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)


def plain_tokenizer(tokenizer: Any) -> Any:
    """Copy the tokenizer of `tokenizers` inside a fast one, without padding and truncation."""
    from tokenizers import Tokenizer

    plain = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    plain.no_padding()
    plain.no_truncation()
    return plain


# --- Words ---
#
# BERT's tokenizers normalise single characters and split at spaces and punctuation before they look
# for word pieces, so the tokens of an ASCII text are the tokens of its words, one after the other.
# To join cached ids of words is six times as fast as the library.

_WORD: Final = re.compile(r"[0-9A-Za-z]+|[^0-9A-Za-z ]")
_MOST_WORDS: Final = 2**17

PairTokens = Callable[[str, str], tuple[list[int], list[int]] | None]
"""Token ids and type ids of a pair of texts with special tokens; None if words do not tell."""


def word_tokens(tokenizer: Any) -> PairTokens | None:
    """Make the function for a tokenizer of `tokenizers`; None if it does not work like BERT's."""
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import BertProcessing, TemplateProcessing

    two, added = tokenizer.encode("a", "a"), tokenizer.get_added_tokens_decoder().values()
    works_so = (
        isinstance(tokenizer.normalizer, BertNormalizer)
        and isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
        and isinstance(tokenizer.model, WordPiece)
        and isinstance(tokenizer.post_processor, BertProcessing | TemplateProcessing)
        # Other added tokens are matched in the normalised text.
        and not any(token.normalized for token in added)
        and [n for n in two.sequence_ids if n is not None] == [0, 1]
    )
    if not works_so:
        return None
    special, ids, types = [token.content for token in added], two.ids, two.type_ids
    i, j = two.sequence_ids.index(0), two.sequence_ids.index(1)

    @lru_cache(_MOST_WORDS)
    def of_word(word: str) -> list[int]:
        return list(tokenizer.encode(word, add_special_tokens=False).ids)

    def of_pair(first: str, second: str) -> tuple[list[int], list[int]] | None:
        for text in (first, second):
            is_plain = text.isascii() and text.isprintable()
            if not is_plain or any(token in text for token in special):
                return None
        one, other = (
            list(chain.from_iterable(map(of_word, _WORD.findall(text)))) for text in (first, second)
        )
        return (
            [*ids[:i], *one, *ids[i + 1 : j], *other, *ids[j + 1 :]],
            [*types[:i], *types[i : i + 1] * len(one), *types[i + 1 : j],
             *types[j : j + 1] * len(other), *types[j + 1 :]],
        )  # fmt: skip

    return of_pair


# --- Unknown tokens ---
#
# A vocabulary that fits the language splits unknown words, down to single letters if necessary:
# with BERT's, one token in 20,000 of MultiNLI is unknown, and none of SNLI. A model with a missing
# or broken tokenizer, or one of another language, still gives answers.

SHARE: Final = 0.03
"""Largest share of unknown tokens without a warning; a suitable vocabulary has far fewer."""
_TEXTS: Final = 2000
"""Size of the sample of texts: with 24 tokens each, 3 % is estimated to within 0.2."""
_EXAMPLES: Final = 5


def unknown_sentence(unknown: Mapping[str, Any]) -> str:
    """Describe the result of `count_unknown` in a sentence."""
    return (
        f"{unknown['unknown'] / unknown['tokens']:.0%} of {unknown['tokens']:,} tokens in "
        f"{unknown['texts']:,} texts are unknown to its tokenizer, as in "
        f"{', '.join(map(repr, unknown['words']))}; is it the tokenizer that it was trained with, "
        "and the right language?"
    ).replace("%", " %", 1)


def warn_of_unknown(name: str, unknown: Mapping[str, Any]) -> None:
    """Warn if `count_unknown` found many unknown tokens."""
    if unknown:
        log.warning("%s: warning: %s", name, unknown_sentence(unknown))


def evenly(values: Sequence[T]) -> Sequence[T]:
    """Take every n-th value, so that at most `_TEXTS` remain."""
    return values[:: -(-len(values) // _TEXTS) or 1]


def count_unknown(
    texts: Sequence[str],
    tokenize: Callable[[list[str]], Sequence[Sequence[int]]],
    unknown_id: int | None,
) -> dict[str, Any]:
    """Count unknown tokens in an even sample of texts, for provenance; empty if there are few."""
    sample = list(evenly(texts))
    if unknown_id is None or not sample:
        return {}
    rows = tokenize(sample)
    tokens = sum(map(len, rows))
    unknown = sum(list(row).count(unknown_id) for row in rows)
    if unknown <= SHARE * tokens:
        return {}
    words = [w for w, _ in Counter(w for text in sample for w in text.split()).most_common()]
    bad = (word for word, row in zip(words, tokenize(words), strict=True) if unknown_id in row)
    examples = list(islice(bad, _EXAMPLES))
    return {"texts": len(sample), "tokens": tokens, "unknown": unknown, "words": examples}
