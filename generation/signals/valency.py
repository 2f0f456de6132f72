"""The column `valency`: whether a verb is used with what follows it where it is put.

Each verb is counted by what follows it: an object, a preposition, nothing. `verb_patterns.toml`
has the counts. A replacement is compared with verbs in general, at the place of the original,
where the tags of the seed say what follows. `python -m helpers.count_verbs`, in `tests/`, counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from math import log
from typing import Final

from generation.problems.morphology import lemmas
from generation.records import Sentence
from merge_dataset.settings import parse_toml

PATTERNS: Final = (
    "passive",
    "object",
    "preposition",
    "particle",
    "infinitive",
    "ing",
    "clause",
    "nothing",
)
"""Patterns of what follows a verb; a passive lacks its object."""

PRIOR_WEIGHT: Final = 5.0
"""Occurrences with the patterns of verbs in general that each verb is given beside its own."""

_NOUN_PHRASE: Final = frozenset({"DT", "PDT", "PRP$", "PRP", "EX", "CD", "$", "JJ", "JJR", "JJS",
                                 "NN", "NNS", "NNP", "NNPS", "WDT", "WP"})  # fmt: skip
"""Tags that a noun phrase may begin with."""
_ADVERBS: Final = frozenset({"RB", "RBR", "RBS"})
_CONJUNCTIONS: Final = frozenset({"that", "if", "whether", "because", "while", "as", "although",
                                  "since"})  # fmt: skip
_BE: Final = frozenset({"is", "are", "was", "were", "be", "been", "being", "am", "'s", "'re",
                        "get", "gets", "got", "getting"})  # fmt: skip
_HAVE: Final = frozenset({"has", "have", "had", "having", "'ve"})


def valency(sentence: Sentence, position: int, word: str) -> float | None:
    """Compare how often a verb is followed by what follows here with how often verbs are.

    Args:
        sentence: Tagged, with the original.
        position: Number of the original's token.
        word: What stands there instead.

    Returns:
        log P(pattern | verb) − log P(pattern), in nats; below 0 where it is rarer with this verb.
        None where no verb stands there, or the word was not counted.
    """
    tag = sentence.tokens[position].tag
    if not tag.startswith("VB"):
        return None
    counts = _counts().get(lemmas(word.lower(), tag)[0])
    if counts is None:
        return None
    place = PATTERNS.index(pattern(sentence, position))
    general = _general()[place]
    own = (counts[place] + PRIOR_WEIGHT * general) / (sum(counts) + PRIOR_WEIGHT)
    return log(own / general)


def pattern(sentence: Sentence, position: int) -> str:
    """Return which of `PATTERNS` a verb stands in, by the tags around it."""
    tokens = sentence.tokens
    if _is_passive(sentence, position):
        return "passive"
    after = position + 1
    while after < len(tokens) and tokens[after].tag in _ADVERBS:
        after += 1
    if after == len(tokens):
        return "nothing"
    tag, word = tokens[after].tag, tokens[after].text.lower()
    if tag in _NOUN_PHRASE:
        return "object"
    if tag == "WRB" or (tag == "IN" and word in _CONJUNCTIONS):
        return "clause"
    if tag == "TO":
        is_infinitive = tokens[after + 1 : after + 2] and tokens[after + 1].tag == "VB"
        return "infinitive" if is_infinitive else "preposition"
    return {"RP": "particle", "IN": "preposition", "VBG": "ing"}.get(tag, "nothing")


def _is_passive(sentence: Sentence, position: int) -> bool:
    """Tell whether a verb is a participle without a form of "have" before it."""
    if sentence.tokens[position].tag != "VBN":
        return False
    for token in reversed(sentence.tokens[max(0, position - 3) : position]):
        word = token.text.lower()
        if word in _BE or word in _HAVE:
            return word in _BE
        if token.tag not in _ADVERBS:
            break
    return True


@cache
def _counts() -> Mapping[str, tuple[int, ...]]:
    """Return counts by verb, in the order of `PATTERNS`."""
    path = resources.files("generation.signals").joinpath("verb_patterns.toml")
    read = parse_toml(path.read_text(encoding="utf-8"), "verb_patterns.toml")
    return {verb: tuple(counts) for verb, counts in read["verbs"].items()}


@cache
def _general() -> tuple[float, ...]:
    """Return the share of each pattern among all that was counted."""
    sums = [sum(column) for column in zip(*_counts().values(), strict=True)]
    return tuple(each / sum(sums) for each in sums)
