"""The indefinite article: which of "a" and "an" fits a word, and where one stands before it."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from generation.records import Sentence, Span

if TYPE_CHECKING:
    from inflect import engine

_AT_THE_END: Final = re.compile(r"(?<![\w'’.&-])an?$", re.IGNORECASE)
"""The article at the end of a text: not the A of "O'a", "e.a", "R&A" or "type-A"."""

_VOWELS: Final = frozenset("aeiouy")

_LETTERS_SPELLED: Final = 3
"""Most letters of a word in capitals that is taken for an abbreviation ("FBI", not "SKY")."""

_EXCEPTIONS: Final = {"LED": "an", "SUV": "an", "uni": "a", "unis": "a"}
"""Words that the rule gets wrong: abbreviations that read as a word, a word cut short."""


def article_before(text: str, start: int) -> Span | None:
    """Find "a" or "an" directly before a word, with nothing but white space between.

    Args:
        text: A sentence.
        start: Offset of the word.

    >>> article_before("See an owl", 7), article_before("See the owl", 8)
    ((4, 6), None)
    """
    before = text[:start].rstrip()
    found = _AT_THE_END.search(before)
    return found.span() if found and len(before) < start else None


def article_position(sentence: Sentence, position: int) -> int | None:
    """Return the number of the token "a" or "an" directly before another; None without one.

    It is tagged as an article, which the A of "vitamin A tablets" is not.

    Args:
        sentence: Tagged.
        position: Number of the token that an article may stand before.
    """
    span = article_before(sentence.text, sentence.tokens[position].start)
    if span is None:
        return None
    tokens = ((n, sentence.tokens[n]) for n in reversed(range(position)))
    return next((n for n, token in tokens if (token.span, token.tag) == (span, "DT")), None)


@lru_cache(maxsize=100_000)
def fitting_article(word: str) -> str:
    """Return the article of a word, as far as spelling tells its sound: the rule of `inflect`.

    The rule reads capitals as an abbreviation, letter by letter, which words are not that stand
    in capitals for emphasis. Those are longer, and have vowels.

    >>> [fitting_article(word) for word in ("owl", "unicorn", "hour", "one", "SCHOOL", "MRI")]
    ['an', 'a', 'an', 'a', 'a', 'an']
    """
    letters = set(word.lower())
    is_short = len(word) <= _LETTERS_SPELLED and "y" not in letters
    spelled = word if word.isupper() and (is_short or not _VOWELS & letters) else word.lower()
    article: str = _EXCEPTIONS.get(spelled) or _engine().a(spelled).partition(" ")[0]
    return article


@cache
def _engine() -> engine:
    import inflect

    return inflect.engine()
