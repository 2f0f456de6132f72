"""Gendered nouns and pronouns, words beyond the premise, nonce words: against plain reading."""

import re
import tomllib
from pathlib import Path

import pytest

from generation import signals
from generation.model_signals.nonce_probe import in_form, nonce_stems
from generation.problems.tagging import Tagger
from generation.signals.grammar import fitting_article
from generation.signals.label_flags import (
    FEMININE,
    MASCULINE,
    clashes,
    gender_of,
    hangs,
    pronoun_genders,
    words_beyond,
)
from generation.signals.signal_columns import zipf_frequency

LISTS = tomllib.loads(
    (Path(signals.__file__).parent / "gendered_nouns.toml").read_text(encoding="utf-8")
)


def test_list_of_nouns() -> None:
    nouns = [noun for gender in (MASCULINE, FEMININE) for noun in LISTS[gender].split()]
    assert len(nouns) == len(set(nouns)) == 209
    assert set(LISTS) == {MASCULINE, FEMININE}
    for gender in (MASCULINE, FEMININE):
        for noun in LISTS[gender].split():
            assert noun.isalpha()
            assert noun.islower()
            assert zipf_frequency(noun) > 0
            assert gender_of(noun) == gender_of(noun.title()) == gender


@pytest.mark.parametrize(
    ("text", "original", "replacement", "expected"),
    [
        ("A mother smiles as she waits.", "mother", "son", True),
        ("A Mother smiles as She waits.", "Mother", "Son", True),
        ("A mother smiles as she waits.", "mother", "aunt", False),
        ("A mother smiles as she waits.", "mother", "teacher", False),
        ("A mother smiles as she waits.", "mother", "sons", False),  # "they" would refer to it
        ("A mother smiles.", "mother", "son", False),
        ("A person shaves himself.", "person", "woman", True),
        ("A person shaves himself.", "person", "man", False),
        ("A man and his wife eat.", "man", "lady", True),
        ("A man and his wife eat.", "wife", "brother", False),
        ("A man helps her with his car.", "man", "boy", False),  # "her" clashes before and after
        ("A man helps her with his car.", "man", "woman", True),
    ],
)
def test_clashes(text: str, original: str, replacement: str, expected: bool) -> None:
    """The new noun and a pronoun differ in gender, which the old noun and the pronoun do not."""
    pronouns = pronoun_genders(Tagger.load().tag([text]))
    assert clashes(original, replacement, pronouns) == expected


@pytest.mark.parametrize(
    ("premise", "hypothesis", "expected"),
    [
        ("A man walked his dogs.", "Men are walking a dog.", []),
        ("Children ran.", "A child runs quickly in Paris.", ["quickly", "paris"]),
        ("A girl does gymnastics.", "A girl is not using the balance beam.",
         ["using", "balance", "beam"]),
        ("He has a walk.", "He has walked.", []),
        ("A boy sings.", "He does have a song and a boy.", ["song"]),
        ("Two men dress.", "2 men wear dresses, dresses!", ["wear"]),
    ],
)  # fmt: skip
def test_words_beyond_the_premise(premise: str, hypothesis: str, expected: list[str]) -> None:
    tagger = Tagger.load()
    first, second = tagger.tag([premise, hypothesis])
    assert words_beyond(first, second, tagger.lemmas) == expected


def test_nonce_words() -> None:
    """Nonce words have two syllables in the tag's form, the same article, and frequency 0."""
    tags = {"dogs": "NNS", "apple": "NN", "hour": "NN", "running": "VBG", "old": "JJ",
            "eats": "VBZ", "older": "JJR", "oldest": "JJS", "slept": "VBD", "sing": "VB",
            "often": "RB"}  # fmt: skip
    endings = {"NNS": "s", "NN": "", "VBG": "ing", "JJ": "y", "VBZ": "s", "JJR": "ier",
               "JJS": "iest", "VBD": "ed", "VB": "", "RB": "ily"}  # fmt: skip
    seen = set()
    for word, tag in tags.items():
        for key in ("a", "b"):
            stems = nonce_stems(word, [tag], key=key)
            assert stems == nonce_stems(word, [tag], key=key)
            assert len(set(stems)) == 3
            others = nonce_stems(word, [tag], key=key, not_in={stems[0]})
            assert others[:2] == stems[1:]
            for stem in stems:
                form = in_form(stem, tag)
                assert form == stem + endings[tag]
                assert re.fullmatch("[^aeiou]{0,2}[aeiou][^aeiou]{1,2}[aeio][^aeiou]{2}", stem)
                assert zipf_frequency(form) == 0
                assert fitting_article(form) == fitting_article(word)
                seen.add(stem)
    assert len(seen) > 60


def test_a_label_hangs_on_a_word() -> None:
    assert [hangs(True, right, 3) for right in range(4)] == [True, True, False, False]
    assert {hangs(False, right, 3) for right in range(4)} == {None}
