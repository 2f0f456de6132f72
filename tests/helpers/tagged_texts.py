"""Sentences with tags, written by hand."""

from __future__ import annotations

from generation.records import Sentence, Token


def tagged(text: str) -> tuple[Sentence, int]:
    """From tokens as "word/TAG" with a space after each; the one in brackets is replaced."""
    tokens, start, position = [], 0, -1
    for number, each in enumerate(text.split()):
        if each.startswith("["):
            position, each = number, each.strip("[]")
        word, tag = each.rsplit("/", 1)
        tokens.append(Token(word, start, tag))
        start += len(word) + 1
    return Sentence(" ".join(token.text for token in tokens), tuple(tokens)), position
