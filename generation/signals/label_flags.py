"""Flags of variants whose label may not hold, for people to check and for figures without them.

They reject nothing: leaving out variants that one kind of model finds doubtful would make a
benchmark easier for models of that kind.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Final

import pyarrow as pa

from generation.config import bundled_toml
from generation.problems.shared_words import coarse_class
from generation.records import Sentence
from generation.signals.signal_columns import SignalFile
from merge_dataset.files import read_where
from merge_dataset.schema import WORD_CLASSES

MASCULINE, FEMININE = "masculine", "feminine"

_PRONOUNS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("he", "him", "his", "himself"), MASCULINE),
    **dict.fromkeys(("she", "her", "hers", "herself"), FEMININE),
}

LIGHT: Final = frozenset({"be", "have", "do"})
"""Lemmas of verbs that mean little by themselves."""

_TAGS_OF_CLASSES: Final = ("NN", "VB", "JJ", "RB")

Lemmas = Callable[[str, str], Collection[str]]
"""Function from a word in lower case and its Penn tag to its lemmas."""


def gender_of(noun: str) -> str | None:
    """Return the gender that a singular noun, in any case, expresses; None if it expresses none.

    >>> gender_of("Mother"), gender_of("son"), gender_of("teacher"), gender_of("sons")
    ('feminine', 'masculine', None, None)
    """
    return _genders().get(noun.lower())


@cache
def _genders() -> dict[str, str]:
    lists = bundled_toml("signals/gendered_nouns.toml")
    return {noun: gender for gender in (MASCULINE, FEMININE) for noun in lists[gender].split()}


def pronoun_genders(sentences: Iterable[Sentence]) -> frozenset[str]:
    """Return the genders of the pronouns in a problem's texts."""
    words = (token.text.lower() for sentence in sentences for token in sentence.tokens)
    return frozenset(_PRONOUNS[word] for word in words if word in _PRONOUNS)


def clashes(original: str, replacement: str, pronouns: Collection[str]) -> bool:
    """Tell whether a replacement changes a noun's gender to one that a pronoun does not have.

    It is not checked whom the pronoun refers to.

    >>> clashes("mother", "son", {"feminine"}), clashes("mother", "aunt", {"feminine"})
    (True, False)
    """
    gender = gender_of(replacement)
    return gender not in (None, gender_of(original)) and bool(set(pronouns) - {gender})


def words_beyond(premise: Sentence, hypothesis: Sentence, lemmas: Lemmas) -> list[str]:
    """List a hypothesis's content words, lower-cased and in order, that the premise lacks.

    Forms of a word count as the word. Content words are nouns, names, verbs except "be", "have"
    and "do", adjectives, and adverbs except "not".
    """
    there = {
        lemma
        for token in premise.tokens
        for tag in _TAGS_OF_CLASSES
        for lemma in (token.text.lower(), *lemmas(token.text.lower(), tag))
    }
    found: dict[str, None] = {}
    for token in hypothesis.tokens:
        word = token.text.lower()
        has_class = coarse_class(token.tag) in WORD_CLASSES or token.tag in ("NNP", "NNPS")
        if has_class and word.isalpha() and word != "not":
            forms = {word, *lemmas(word, token.tag)}
            if forms.isdisjoint(there) and forms.isdisjoint(LIGHT):
                found[word] = None
    return list(found)


NONCE_WORDS: Final = 3
"""Number of nonce words that replace each shared word, one at a time."""

NONCE_SCHEMA: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("seed_id", "word_class", "word")),
        ("stems", pa.list_(pa.string())),
        ("seed_right", pa.bool_()),
        ("nonce_right", pa.int8()),
    ]
)
"""A row per shared word that has replacements: the stems put in its place, whether the model gives
the seed its gold label, and with how many of the nonce words it still does."""


def hangs(seed_right: bool, nonce_right: int, asked: int) -> bool | None:
    """Tell whether a model loses a label with most nonce words; None if it gets the seed wrong.

    >>> hangs(True, 1, 3), hangs(True, 2, 3), hangs(False, 0, 3)
    (True, False, None)
    """
    return 2 * nonce_right < asked if seed_right else None


def hanging(answers: SignalFile, keys: Sequence[tuple[str, str, str]]) -> list[bool | None]:
    """Tell for [n] keys (seed, class, words) if the label depends on a word; None if unknown."""
    if not keys:
        return []
    ids = [seed_id for seed_id, *_ in keys]
    span = [("seed_id", ">=", min(ids)), ("seed_id", "<=", max(ids))]
    known = {
        (row["seed_id"], row["word_class"], row["word"]): hangs(
            row["seed_right"], row["nonce_right"], len(row["stems"])
        )
        for row in read_where(answers.path, span).to_pylist()
    }
    found = []
    for seed_id, word_class, words in keys:
        of_words = {known.get((seed_id, word_class, word)) for word in words.split(" ")}
        found.append(True if True in of_words else False if False in of_words else None)
    return found
