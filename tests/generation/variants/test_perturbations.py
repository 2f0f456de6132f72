"""Several edits in one variant: pairs, spans, and D8 with all edits in place."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from helpers.reference import tag, word_class

from generation.problems.tagging import Tagger
from generation.variants.perturbations import (
    ARTICLE,
    FAMILY,
    WORD,
    Edit,
    Perturbation,
    reject_in_context,
)
from generation.variants.reasons import Reason

TEXTS = (
    "A small dog and another dog run to the house, and the dogs don't stop there.",
    'An old man said "a girl sings" while he sat at the man-made lake.',
    "The walk is good.",
    "They walk a mile, e.g. on Sundays, then run.",
)
WORDS = (
    "cat", "owl", "houses", "walks", "singing", "sang", "red", "quickly", "a", "an", "the", "can",
    "cannot", "gonna", "e", "man", "is", "better",
)  # fmt: skip


def slow_tags(text: str, spans: Any, words: Any) -> list[str] | None:
    """Tags of a whole text with words replaced; None if its other tokens differ."""
    wanted = [token.text for token in tag(text)]
    starts = [token.start for token in tag(text)]
    for (start, end), word in reversed(list(zip(spans, words, strict=True))):
        wanted[starts.index(start)] = word
        text = text[:start] + word + text[end:]
    result = tag(text)
    return [token.tag for token in result] if [t.text for t in result] == wanted else None


def slow_reason(perturbation: Perturbation, tag_match: str) -> str | None:
    """D8, by tagging whole texts."""
    result = [
        slow_tags(s.text, *e)
        for s, e in zip(perturbation.sentences, perturbation.text_edits(), strict=True)
    ]
    if None in result:
        return Reason.TOKENIZATION
    for edit in perturbation.edits:
        before, after = perturbation.token(edit).tag, (result[edit.text] or [])[edit.position]
        if tag_match == "fine" or word_class(before) == before:
            same = before == after
        else:
            same = word_class(before) == word_class(after)
        if not same:
            return Reason.WORD_CLASS
    return None


def random_perturbations(tagger: Tagger, count: int) -> list[Perturbation]:
    rng = random.Random(8)
    sentences = list(tagger.tag(TEXTS))
    result = []
    for _ in range(count):
        pair = rng.sample(sentences, 2)
        changes = {
            (text, rng.randrange(len(pair[text].tokens))): rng.choice(WORDS)
            for text in rng.choices((0, 1), k=rng.randint(1, 4))
        }
        result.append(
            Perturbation(pair, tuple(sorted(Edit(WORD, *at, w) for at, w in changes.items())))
        )
    return result


@pytest.mark.slow(but=("100-coarse",))
@pytest.mark.parametrize("tag_match", ["coarse", "fine"])
@pytest.mark.parametrize("number", [100, 400])
def test_judging_against_whole_sentences(tagger: Tagger, number: int, tag_match: str) -> None:
    perturbations = random_perturbations(tagger, number)
    expected = [slow_reason(perturbation, tag_match) for perturbation in perturbations]
    assert reject_in_context(perturbations, tagger, tag_match=tag_match) == expected
    assert set(expected) == {None, Reason.TOKENIZATION, Reason.WORD_CLASS}


def perturbation(tagger: Tagger, texts: Sequence[str], *edits: Edit) -> Perturbation:
    return Perturbation(list(tagger.tag(texts)), tuple(sorted(edits)))


def test_pairs_and_edits(tagger: Tagger) -> None:
    made = perturbation(
        tagger, ["A girl sees a girl and girls.", "Girls."], Edit(ARTICLE, 0, 0, "An"),
        Edit(WORD, 0, 1, "owl"), Edit(ARTICLE, 0, 3, "an"), Edit(WORD, 0, 4, "owl"),
        Edit(FAMILY, 0, 6, "owls"), Edit(FAMILY, 1, 0, "Owls"),
    )  # fmt: skip
    assert made.pairs() == [
        ("girl", "owl"), ("girls", "owls"), ("Girls", "Owls"), ("A", "An"), ("a", "an"),
    ]  # fmt: skip
    assert made.is_more
    assert not made.is_ambiguous()
    assert made.text_edits() == [
        ([(0, 1), (2, 6), (12, 13), (14, 18), (23, 28)], ["An", "owl", "an", "owl", "owls"]),
        ([(0, 5)], ["Owls"]),
    ]
    assert reject_in_context([], tagger, tag_match="coarse") == []
    places = ((0, 1), (0, 4), (1, 0))
    made = perturbation(tagger, ["a dog, a dog", "dog"], *(Edit(WORD, *at, "cat") for at in places))
    assert made.pairs() == [("dog", "cat")]
    assert not made.is_more
    texts = ["a fish and fishes", "fish"]
    same = [Edit(WORD, 0, 1, "sheep"), Edit(FAMILY, 0, 3, "sheep")]
    assert perturbation(tagger, texts, *same).is_ambiguous()
    texts = ["they read what he read", "read"]
    other = [Edit(FAMILY, 0, 1, "see"), Edit(FAMILY, 0, 4, "saw")]
    assert not perturbation(tagger, texts, *other).is_ambiguous()
