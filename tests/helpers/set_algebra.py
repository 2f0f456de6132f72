"""Condition (iii) of equation 1 (D8), slowly and obviously, on plain types."""

from collections.abc import Mapping

from generation.problems.shared_words import coarse_class

Odds = Mapping[str, float]
"""A set of words, each with log-odds."""


def class_verdict(
    tags: tuple[str, ...] | None, originals: tuple[str, ...], *, tag_match: str
) -> str | None:
    """D8: the reason why a replacement fails in a sentence, or None if it passes."""
    if tags is None:
        return "tokenization"
    if tag_match == "coarse":
        tags, originals = tuple(map(coarse_class, tags)), tuple(map(coarse_class, originals))
    return None if tags == originals else "other_class"
