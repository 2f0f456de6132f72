"""Grammar signals of replacements, by hand and against a slow reading of the rules."""

import itertools

import pytest
from helpers.tagged_texts import tagged

from generation.records import Sentence, Token
from generation.variants.grammar import (
    article_before,
    article_position,
    determiner_fits,
    fitting_article,
    form_attested,
    has_form,
    in_compound,
    number_agrees,
)


@pytest.mark.parametrize(
    ("word", "tag", "expected"),
    [
        ("seen", "VBN", True), ("saw", "VBN", False), ("went", "VBN", False),
        ("got", "VBN", True), ("walked", "VBN", True), ("walked", "VBD", True),
        ("comes", "VB", False), ("eating", "VBN", False), ("are", "VBP", True),
        ("run", "VBP", True), ("run", "VB", True), ("was", "VBD", True),
        ("children", "NN", False), ("children", "NNS", True), ("sheep", "NN", True),
        ("sheep", "NNS", True), ("longer", "JJ", False), ("best", "JJS", True),
        ("gao", "NN", None), ("the", "DT", None),
    ],
)  # fmt: skip
def test_forms_of_the_dictionary(word: str, tag: str, expected: bool | None) -> None:
    assert has_form(word, tag) is expected


def test_the_original_says_which_form_is_asked_for() -> None:
    sentence, position = tagged("He/PRP was/VBD [seen/VBN] ./.")
    assert form_attested(sentence, position, "Taken") is True
    assert form_attested(sentence, position, "took") is False
    assert form_attested(sentence, position, "zzyzx") is None


@pytest.mark.parametrize(
    ("text", "singular", "plural"),
    [
        ("a/DT big/JJ [dog/NN] runs/VBZ", True, False),
        ("two/CD big/JJ ,/, brown/JJ [dogs/NNS]", False, True),
        ("12/CD [dogs/NNS]", False, True),
        ("these/DT [dogs/NNS]", False, True),
        ("the/DT [dogs/NNS] are/VBP here/RB", False, True),
        ("the/DT [dog/NN] was/VBD here/RB", True, False),
        ("a/DT [dog/NN] are/VBP here/RB", False, False),
        ("the/DT [dog/NN] barked/VBD", None, None),
        ("two/CD men/NNS and/CC the/DT [dog/NN]", None, None),
        ("a/DT man/NN with/IN [dogs/NNS]", None, None),
        ("a/DT [big/JJ] dog/NN", None, None),
    ],
)
def test_agreement(text: str, singular: bool | None, plural: bool | None) -> None:
    """Agreement is with a determiner or numeral, across adjectives, and with a verb right after."""
    sentence, position = tagged(text)
    assert number_agrees(sentence, position, "child") is singular
    assert number_agrees(sentence, position, "children") is plural
    if singular is not None and singular != plural:
        assert number_agrees(sentence, position, "sheep") is True
    assert number_agrees(sentence, position, "zzyzx") is None


DETERMINERS = {
    "two": "CD", "a": "DT", "an": "DT", "the": "DT", "each": "DT", "his": "PRP$", "several": "JJ",
    "no": "DT",
}  # fmt: skip
BAD = {
    "two": "many several few three same first last biggest own",
    "a": "many several same three other next biggest own",
    "an": "many several few same three other biggest own", "the": "own",
    "each": "many several few three same own", "his": "same",
    "several": "many several few three same first last biggest own",
    "no": "many several few three same own",
}  # fmt: skip


def test_determiners() -> None:
    """All pairs of determiner and noun number that may be combined, and nothing else."""
    words = ["many", "several", "few", "three", "more", "same", "other", "first", "last", "next",
             "biggest", "own", "red", "modest", "honest"]  # fmt: skip
    for before, word in itertools.product(DETERMINERS, words):
        sentence, position = tagged(f"{before}/{DETERMINERS[before]} [old/JJ] men/NNS")
        if (before, word) in {("a", "more"), ("an", "more"), ("each", "more"), ("two", "next"),
                              ("several", "next"), ("his", "other")}:  # fmt: skip
            continue  # one may differ
        assert determiner_fits(sentence, position, word) is (word not in BAD[before].split()), (
            before,
            word,
        )
    for text in ("[old/JJ] men/NNS", "big/JJ [old/JJ] men/NNS", "two/CD [men/NNS] run/VBP"):
        assert determiner_fits(*tagged(text), "many") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/DT [button/NN] store/NN", True),
        ("a/DT button/NN [store/NN]", True),
        ("a/DT [store/NN] of/IN buttons/NNS", False),
        ("three/CD -/HYPH [wheeled/JJ] bike/NN", True),
        ("blow/VB [it/PRP] up/RP", False),
        ("they/PRP [blow/VBP] it/PRP up/RP", True),
        ("they/PRP [blow/VBP] up/RP", True),
        ("they/PRP [look/VBP] up/IN", False),
        ("[store/NN]", False),
    ],
)
def test_compounds_and_particles(text: str, expected: bool) -> None:
    assert in_compound(*tagged(text)) is expected


@pytest.mark.parametrize(
    ("article", "words"),
    [
        ("an", "owl apple hour honest heir umbrella uninteresting elf athlete other MP HTML"),
        ("a", "dog unicorn university one useful european house yellow year three TV hotel"),
        # Shouted, not spelled out.
        ("a", "SCHOOL STREET Street SMALL HOUSE"),
        ("an", "OWL Owl HOUR Apple"),
        ("a", "MAN HAT SUN RED SKY FLY SPY RUN"),
        # Spelled out, not shouted.
        ("an", "SUV NBA MRI LED FBI MBA LSD XML"),
        ("a", "UFO USB EU TV DVD"),
        ("a", "uni Uni UNI unis"),
    ],
)
def test_articles_go_by_sound(article: str, words: str) -> None:
    """Articles follow pronunciation; not every word with an initial vowel begins with its sound."""
    assert {word: fitting_article(word) for word in words.split()} == dict.fromkeys(
        words.split(), article
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("An owl", (0, 2)),
        ("He has an owl", (7, 9)),
        ("He has  AN \t owl", (8, 10)),
        ("(a owl", (1, 2)),
        ("“A owl", (1, 2)),
        ("The owl", None),
        ("owl", None),
        ("banana owl", None),
        ("type-a owl", None),
        ("R&A owl", None),
        ("an-owl", None),
        ("an old owl", None),
        ('a "owl', None),
    ],
)
def test_where_an_article_stands(text: str, expected: tuple[int, int] | None) -> None:
    assert article_before(text, text.rindex("owl")) == expected


def test_an_article_is_tagged_as_one() -> None:
    text = "vitamin A owl saw an  owl"
    tagged = [("vitamin", 0, "NN"), ("A", 8, "NN"), ("owl", 10, "NN"), ("saw", 14, "VBD"),
              ("an", 18, "DT"), (" ", 21, "_SP"), ("owl", 22, "NN")]  # fmt: skip
    sentence = Sentence(text, tuple(Token(*item) for item in tagged))
    assert [article_position(sentence, n) for n in (0, 2, 6)] == [None, None, 4]
