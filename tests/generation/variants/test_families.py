"""Families: which tokens are other forms of a word, and what form replaces them."""

from __future__ import annotations

import sys

import pytest

from generation.problems.morphology import inflected, lemmas, require_library
from generation.records import Sentence, SharedWord, Token
from generation.variants.families import family_of, is_in_compound, may_be_auxiliary


def sentence(tagged: str) -> Sentence:
    """From tokens as "word/TAG", each followed by a space."""
    tokens, texts, start = [], [], 0
    for each in tagged.split():
        text, tag = each.rsplit("/", 1)
        tokens.append(Token(text, start, tag))
        texts.append(text)
        start += len(text) + 1
    return Sentence(" ".join(texts), tuple(tokens))


def family(word: str, word_class: str, *tagged: str) -> list[str]:
    """The other forms as text number and word."""
    sentences = [sentence(each) for each in tagged]
    positions = tuple(
        tuple(n for n, token in enumerate(s.tokens) if token.text == word) for s in sentences
    )
    found = family_of(SharedWord(word, word_class, positions), sentences)
    return [f"{text} {sentences[text].tokens[position].text}" for text, position in found]


def test_other_forms_of_a_verb() -> None:
    """In either text, the word itself not."""
    assert family(
        "sleeps",
        "verb",
        "He/PRP sleeps/VBZ ,/, he/PRP is/VBZ always/RB sleeping/VBG",
        "He/PRP sleeps/VBZ as/IN he/PRP slept/VBD",
    ) == ["0 sleeping", "1 slept"]


def test_other_forms_of_nouns_adjectives_and_adverbs() -> None:
    """Also irregular ones, and those that differ in case alone."""
    assert family(
        "child",
        "noun",
        "Child/NN and/CC children/NNS and/CC child/NN",
        "A/DT child/NN of/IN CHILDREN/NNS",
    ) == ["0 Child", "0 children", "1 CHILDREN"]
    assert family("good", "adjective", "good/JJ better/JJR best/JJS", "good/JJ well/RB") == [
        "0 better",
        "0 best",
    ]
    assert family("soon", "adverb", "soon/RB or/CC sooner/RBR", "soon/RB") == ["0 sooner"]


def test_another_class_is_another_family() -> None:
    """A noun of the same lemma, a participle that is a noun or an adjective, a proper noun."""
    assert family("sleep", "verb", "I/PRP sleep/VBP my/PRP$ sleeps/NNS", "I/PRP sleep/VBP") == []
    assert family("dog", "noun", "a/DT dog/NN dogs/VBZ me/PRP", "dog/NN Dogs/NNP") == []
    assert family("sleep", "verb", "sleep/VB in/IN sleeping/NN bags/NNS", "sleep/VB") == []


def test_a_word_of_several_lemmas() -> None:
    """One in common is enough: "lay" is of "lie" and of "lay"."""
    assert family("lay", "verb", "lay/VBD laying/VBG lying/VBG lies/VBZ", "lay/VBD") == [
        "0 laying",
        "0 lying",
        "0 lies",
    ]
    assert family("saw", "noun", "a/DT saw/NN saws/NNS and/CC saw/VBD see/VB", "saw/NN") == [
        "0 saws"
    ]


def test_what_is_no_word_is_no_family() -> None:
    """The "'s" of "be" has more than letters."""
    assert family("is", "verb", "he/PRP is/VBZ and/CC she/PRP 's/VBZ", "it/PRP is/VBZ") == []
    assert family("is", "verb", "he/PRP is/VBZ they/PRP are/VBP", "it/PRP is/VBZ") == ["0 are"]


@pytest.mark.parametrize(
    ("word", "tag", "expected"),
    [
        ("children", "NNS", ("child",)),
        ("glasses", "NNS", ("glass", "glasses")),
        ("glass", "NN", ("glass",)),
        ("are", "VBP", ("be",)),
        ("sleep", "VBP", ("sleep",)),
        ("found", "VBD", ("find", "found")),
        ("saw", "VB", ("saw",)),
        # By rule: no dictionary has them.
        ("frisbees", "NNS", ("frisbee",)),
        ("zorbing", "VBG", ("zorb",)),
        ("frisbee", "NN", ("frisbee",)),
        ("would", "MD", ("would",)),
    ],
)
def test_lemmas(word: str, tag: str, expected: tuple[str, ...]) -> None:
    """Base forms are their own lemma, others have what dictionary or rules say."""
    assert lemmas(word, tag) == expected


@pytest.mark.parametrize(
    ("word", "tag", "wanted", "expected"),
    [
        ("runs", "VBZ", "VBG", "running"),
        ("runs", "VBZ", "VBZ", "runs"),
        ("ran", "VBD", "VBN", "run"),
        ("walks", "VBZ", "VBN", "walked"),
        ("sits", "VBZ", "VBP", "sit"),
        ("girl", "NN", "NNS", "girls"),
        ("men", "NNS", "NN", "man"),
        ("big", "JJ", "JJS", "biggest"),
        ("largest", "JJS", "JJ", "large"),
        ("soon", "RB", "RBR", "sooner"),
        # No such form, or none that a dictionary has.
        ("beautiful", "JJ", "JJR", None),
        ("frisbee", "NN", "NNS", None),
        # Of several lemmas, by which it differs.
        ("leaves", "NNS", "NN", None),
        ("dice", "NNS", "NN", None),
        ("found", "VBD", "VBG", None),
        ("best", "JJS", "JJ", None),
        # Number and person decide.
        ("is", "VBZ", "VBP", None),
        ("was", "VBD", "VBG", None),
        # Another class, or none.
        ("run", "NN", "VBG", None),
        ("would", "MD", "VBD", None),
    ],
)
def test_inflections(word: str, tag: str, wanted: str, expected: str | None) -> None:
    """The form with the tag wanted, or none."""
    assert inflected(word, tag, wanted) == expected


def test_the_first_part_of_a_compound() -> None:
    """A noun with a noun after it, not the last one."""
    found = sentence("the/DT dog/NN show/NN for/IN big/JJ dogs/NNS ,/, a/DT cat/NN")
    assert [n for n in range(len(found.tokens)) if is_in_compound(found, n)] == [1]


def test_verbs_that_help_others() -> None:
    """Whether they do or not; what is no verb is none."""
    found = sentence("he/PRP is/VBZ being/VBG tall/JJ and/CC had/VBD done/VBN it/PRP do/NN go/VB")
    shown = [t.text for n, t in enumerate(found.tokens) if may_be_auxiliary(found, n)]
    assert shown == ["is", "being", "had", "done"]


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install."""
    require_library("families")
    monkeypatch.setitem(sys.modules, "lemminflect", None)
    with pytest.raises(ValueError, match=r"families: expected lemminflect.*merge-nli\[morphology"):
        require_library("families")
