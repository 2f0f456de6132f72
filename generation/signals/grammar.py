"""Answers of grammar about a word put in place of another, by tags and a dictionary of forms.

A tagger reads a word by its context, so that it takes "would comes" for an infinitive; what the
context asks for shows in the tag of the word that stood there. No parser is used: the tags that
there are already were measured to say as much (signals.md).
"""

from __future__ import annotations

from typing import Final

from generation.problems.morphology import has_form
from generation.records import Sentence, Token

_NOUNS: Final = frozenset({"NN", "NNS", "NNP", "NNPS"})
_BETWEEN: Final = frozenset({"JJ", "JJR", "JJS", "VBN", "VBG", "NN", "CC", ","})
"""Tags of what may stand between a determiner and its noun."""

_SINGULAR: Final = frozenset({"a", "an", "one", "each", "every", "another", "this", "either",
                              "neither"})  # fmt: skip
_PLURAL: Final = frozenset({"these", "those", "many", "few", "several", "both", "various",
                            "numerous", "multiple", "two", "three", "four", "five", "six", "seven",
                            "eight", "nine", "ten", "dozen"})  # fmt: skip
"""Words before a noun that say its number; others tagged as numbers ask for a plural."""
_SINGULAR_VERBS: Final = frozenset({"is", "was", "has", "does"})
_PLURAL_VERBS: Final = frozenset({"are", "were", "have", "do"})

_QUANTIFIERS: Final = frozenset({"many", "several", "few", "most", "more", "fewer", "less", "much",
                                 "enough", "all", "both", "half", "such", "various", "two",
                                 "three", "four", "five", "six", "seven", "eight", "nine",
                                 "ten"})  # fmt: skip
_AFTER_QUANTIFIERS: Final = frozenset({"more", "fewer", "less"})
"""Quantifiers that may follow another: "two more", "many fewer"."""
_ARTICLES: Final = frozenset({"a", "an"})
_SINGLE: Final = frozenset({"a", "an", "each", "every", "another", "this", "that", "no"})
_ORDINALS: Final = frozenset({"first", "last", "next", "second", "third"})
_FITTING_PAIRS: Final = frozenset({("a", "few"), ("such", "a"), ("every", "two"),
                                   ("every", "few"), ("another", "two"), ("another", "few"),
                                   ("no", "more"), ("no", "less"), ("no", "fewer"),
                                   ("no", "such"), ("a", "half"), ("another", "half")})  # fmt: skip


def form_attested(sentence: Sentence, position: int, word: str) -> bool | None:
    """Tell whether a word has the form that the tag of the word it replaces asks for.

    "Went" is no participle, though a tagger takes it for one after "was".

    Args:
        sentence: Tagged, with the original.
        position: Number of the original's token.
        word: What stands there instead.

    Returns:
        None where the dictionary does not know it in that class.
    """
    return has_form(word.lower(), sentence.tokens[position].tag)


def number_agrees(sentence: Sentence, position: int, word: str) -> bool | None:
    """Tell whether a noun agrees in number with its determiner or numeral, and with its verb.

    The determiner is looked for before adjectives, the verb right after the noun.

    Args:
        sentence: Tagged, with the original.
        position: Number of the original's token.
        word: What stands there instead.

    Returns:
        None where no noun stands there, nothing near it has a number, or the dictionary does not
        know the word.
    """
    if sentence.tokens[position].tag not in ("NN", "NNS"):
        return None
    asked = {_number_before(sentence, position), _number_after(sentence, position)} - {None}
    answers = [has_form(word.lower(), tag) for tag in sorted(tag for tag in asked if tag)]
    known = [answer for answer in answers if answer is not None]
    return all(known) if known else None


def _number_before(sentence: Sentence, position: int) -> str | None:
    """Return the tag of the noun that a determiner or numeral asks for."""
    for token in reversed(sentence.tokens[:position]):
        word = token.text.lower()
        if word in _SINGULAR:
            return "NN"
        if word in _PLURAL or token.tag == "CD":
            return "NNS"
        if token.tag not in _BETWEEN:
            return None
    return None


def _number_after(sentence: Sentence, position: int) -> str | None:
    """Return the tag of the noun that a verb right after it asks for."""
    for token in sentence.tokens[position + 1 : position + 2]:
        word = token.text.lower()
        if token.tag == "VBZ" or word in _SINGULAR_VERBS:
            return "NN"
        if token.tag == "VBP" or word in _PLURAL_VERBS:
            return "NNS"
    return None


def determiner_fits(sentence: Sentence, position: int, word: str) -> bool | None:
    """Tell whether a word in place of an adjective goes with the determiner right before it.

    A quantifier, numeral, ordinal, superlative, "same", "other" or "own" may not: "two many",
    "a same", "each several". Other adjectives do.

    Args:
        sentence: Tagged, with the original.
        position: Number of the original's token.
        word: What stands there instead.

    Returns:
        None where the original is no adjective, or no determiner, numeral or possessive is there.
    """
    if not sentence.tokens[position].tag.startswith("JJ") or position == 0:
        return None
    before = sentence.tokens[position - 1]
    if before.tag not in ("DT", "CD", "PRP$", "POS") and before.text.lower() not in _PLURAL:
        return None
    return _goes_with(before, word.lower())


def _goes_with(before: Token, word: str) -> bool:
    """Tell whether a word may follow a determiner, numeral or possessive, in lower case."""
    determiner = before.text.lower()
    counts = before.tag == "CD" or determiner in _PLURAL
    if (determiner, word) in _FITTING_PAIRS:
        return True
    if word in _QUANTIFIERS:
        return determiner not in _SINGLE and (not counts or word in _AFTER_QUANTIFIERS)
    if word == "same":
        return determiner in ("the", "this", "that", "these", "those")
    if word == "other":
        return determiner not in ("a", "an", "another")
    if word == "own":
        return before.tag in ("PRP$", "POS")
    if word in _ORDINALS:
        return not counts and (determiner, word) != ("a", "next")
    is_superlative = word.endswith(("est", "st")) and bool(has_form(word, "JJS"))
    return not (is_superlative and (counts or determiner in _ARTICLES))


def in_compound(sentence: Sentence, position: int) -> bool:
    """Tell whether a word is part of a compound or a particle verb, which other words cannot be.

    By tags: a noun beside a noun ("button up shirt" escapes it), a word beside a hyphen, a verb
    with a particle right after it or after one token ("blow up", "blow it up").
    """
    tokens = sentence.tokens
    tag = tokens[position].tag
    before = tokens[position - 1 : position] if position else ()
    after = tokens[position + 1 : position + 3]
    beside = (*before, *after[:1])
    if any(token.text == "-" for token in beside):
        return True
    if tag in _NOUNS:
        return any(token.tag in _NOUNS for token in beside)
    return tag.startswith("VB") and any(token.tag == "RP" for token in after)
