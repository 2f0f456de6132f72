"""Nonce words: made up, pronounceable, in the form that a Penn tag asks for, unknown to wordfreq.

Whoever answers a problem with such a word in place of a real one cannot lean on what the real one
means (the wug of Berko 1958, "The Child's Learning of English Morphology", Word 14).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from generation.signals.articles import fitting_article
from generation.signals.signal_columns import zipf_frequency

_ONSETS: Final = (
    "b", "bl", "br", "d", "dr", "f", "fl", "g", "gl", "gr", "k", "kl", "kr", "l", "m", "n",
    "p", "pl", "pr", "r", "s", "sk", "sm", "sn", "sp", "st", "t", "tr", "v", "w", "z",
)  # fmt: skip
_MIDDLES: Final = ("b", "d", "l", "m", "r", "v", "z", "rd", "lm")
_ENDS: Final = ("nk", "rt", "lk", "mp", "rk", "lt", "sk", "sp", "lp", "ft", "rp")
"""Endings are added to these as they are: no letter is doubled or dropped, "-s" needs no "e"."""

_ENDING: Final = {
    "NNS": "s",
    "NNPS": "s",
    "VBZ": "s",
    "VBD": "ed",
    "VBN": "ed",
    "VBG": "ing",
    "JJ": "y",
    "JJR": "ier",
    "JJS": "iest",
    "RB": "ily",
    "RBR": "ily",
    "RBS": "ily",
}
"""Penn tag → ending of the form; others have the bare stem."""


def in_form(stem: str, tag: str) -> str:
    """Give a made-up stem the form that a Penn tag asks for.

    >>> [in_form("blodask", tag) for tag in ("NN", "NNS", "VBD", "VBG", "JJ", "JJR")]
    ['blodask', 'blodasks', 'blodasked', 'blodasking', 'blodasky', 'blodaskier']
    """
    return stem + _ENDING.get(tag, "")


def nonce_stems(
    word: str, tags: Collection[str], *, key: str, number: int, not_in: Collection[str] = ()
) -> list[str]:
    """Make stems to put in place of a word; the same for the same arguments.

    They begin with a vowel's sound where the word does, so that "a" and "an" stay right. No form
    of them has a frequency in wordfreq.

    Args:
        word: What they stand in for.
        tags: Penn tags of its occurrences.
        key: Of the random draw.
        number: How many.
        not_in: Words in lower case that no form may be.
    """
    starts_with_vowel = fitting_article(word) == "an"
    found: list[str] = []
    for stem in _stems(random.Random(f"{key}\n{word}"), starts_with_vowel=starts_with_vowel):
        forms = {stem, *(in_form(stem, tag) for tag in tags)}
        if stem not in found and forms.isdisjoint(not_in) and not any(map(zipf_frequency, forms)):
            found.append(stem)
        if len(found) == number:
            break
    return found


def _stems(rng: random.Random, *, starts_with_vowel: bool) -> Iterator[str]:
    """Yield two syllables and again; "u" begins no word, as it may sound like "you"."""

    def choose(parts: Sequence[str]) -> str:
        return parts[int(rng.random() * len(parts))]

    while True:
        start = choose("aeio") if starts_with_vowel else choose(_ONSETS) + choose("aeiou")
        yield start + choose(_MIDDLES) + choose("aeio") + choose(_ENDS)
