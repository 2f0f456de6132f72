"""Families: other forms of a shared word that stand in its problem, by lemma.

"sleeps" and "sleeping" are of one family where both are verbs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from generation.problems.morphology import lemmas
from generation.problems.shared_words import coarse_class
from generation.records import Sentence, SharedWord

_AUXILIARIES: Final = frozenset({"be", "have", "do"})

_NOUN_TAGS: Final = frozenset({"NN", "NNS", "NNP", "NNPS"})


def family_of(word: SharedWord, sentences: Sequence[Sentence]) -> list[tuple[int, int]]:
    """Find other forms of a word in its problem: of the same class, with a lemma in common.

    A form of another class is none: not the noun "sleep", nor "sleeping" where it is tagged as
    a noun ("a sleeping bag"). "Boy" and "boy" are two forms.

    Args:
        word: A shared word.
        sentences: The texts of its problem.

    Returns:
        Where they stand: number of the text, number of the token.
    """
    tokens = [
        (text, position, token)
        for text, sentence in enumerate(sentences)
        for position, token in enumerate(sentence.tokens)
        if coarse_class(token.tag) == word.word_class and token.text.isalpha()
    ]
    mine = {
        lemma
        for _, _, token in tokens
        if token.text == word.word
        for lemma in lemmas(token.text.lower(), token.tag)
    }
    return [
        (text, position)
        for text, position, token in tokens
        if token.text != word.word and not mine.isdisjoint(lemmas(token.text.lower(), token.tag))
    ]


def is_in_compound(sentence: Sentence, position: int) -> bool:
    """Tell whether a noun is the first part of a nominal compound: whether a noun comes next.

    What it means there need not be what it means elsewhere: "leaf blowers" may be "air blowers",
    but leaves are no airs. This is what the paper warns of.
    """
    here, following = sentence.tokens[position], sentence.tokens[position + 1 : position + 2]
    return here.tag in _NOUN_TAGS and any(token.tag in _NOUN_TAGS for token in following)


def may_be_auxiliary(sentence: Sentence, position: int) -> bool:
    """Tell whether a verb is a form of "be", "have" or "do".

    These help other verbs, which what a masked LM puts for one form of them cannot do in the
    others: "is waiting" is not "looks waiting" where he "was tall" and now "looked tall".
    """
    token = sentence.tokens[position]
    mine = lemmas(token.text.lower(), token.tag)
    return coarse_class(token.tag) == "verb" and not _AUXILIARIES.isdisjoint(mine)
