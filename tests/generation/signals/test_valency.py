"""The column `valency`: what follows verbs, by hand, and the counts that are shipped."""

from __future__ import annotations

import math

import pytest
from helpers.count_verbs import SHIPPED, count, read_texts, render
from helpers.tagged_texts import tagged

from generation.config import Config
from generation.problems.tagging import Tagger
from generation.records import Sentence
from generation.signals.valency import PATTERNS, PRIOR_WEIGHT, pattern, valency
from merge_dataset.settings import parse_toml


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He/PRP [kicks/VBZ] the/DT ball/NN", "object"),
        ("He/PRP [kicks/VBZ] very/RB red/JJ balls/NNS", "object"),
        ("He/PRP [sleeps/VBZ] ./.", "nothing"),
        ("He/PRP [sleeps/VBZ] well/RB", "nothing"),
        ("He/PRP [sleeps/VBZ] in/IN bed/NN", "preposition"),
        ("He/PRP [goes/VBZ] to/TO bed/NN", "preposition"),
        ("He/PRP [wants/VBZ] to/TO sleep/VB", "infinitive"),
        ("He/PRP [stops/VBZ] sleeping/VBG", "ing"),
        ("He/PRP [wakes/VBZ] up/RP", "particle"),
        ("He/PRP [says/VBZ] that/IN it/PRP rains/VBZ", "clause"),
        ("He/PRP [knows/VBZ] why/WRB", "clause"),
        ("The/DT ball/NN was/VBD [kicked/VBN] in/IN", "passive"),
        ("The/DT ball/NN was/VBD not/RB [kicked/VBN]", "passive"),
        ("A/DT ball/NN [kicked/VBN] by/IN him/PRP", "passive"),
        ("He/PRP has/VBZ never/RB [kicked/VBN] it/PRP", "object"),
        ("He/PRP [kicked/VBD] it/PRP", "object"),
    ],
)
def test_what_follows(text: str, expected: str) -> None:
    """By the tags after the verb, adverbs aside; a participle after "have" is no passive."""
    assert pattern(*tagged(text)) == expected


def test_value_by_hand() -> None:
    """Shares of the shipped counts, each verb with five occurrences as verbs have them."""
    verbs = parse_toml(SHIPPED.read_text(encoding="utf-8"), "")["verbs"]
    sums = [sum(counts[n] for counts in verbs.values()) for n in range(len(PATTERNS))]
    sentence, position = tagged("He/PRP [kicks/VBZ] the/DT ball/NN")
    place = PATTERNS.index("object")
    general = sums[place] / sum(sums)
    for word, verb in (("Sleeps", "sleep"), ("holds", "hold")):
        own = (verbs[verb][place] + PRIOR_WEIGHT * general) / (sum(verbs[verb]) + PRIOR_WEIGHT)
        assert valency(sentence, position, word) == pytest.approx(math.log(own / general))
    asleep, held = (valency(sentence, position, word) for word in ("sleeps", "holds"))
    assert asleep is not None
    assert held is not None
    assert asleep < -1 < 0 < held
    assert valency(sentence, position, "unicycles") is None
    assert valency(sentence, 3, "sleep") is None
    assert Config(min_valency=-1).optional_columns == ("valency",)


def test_counting() -> None:
    """Each verb's occurrences, by lemma; seldom ones are left out."""

    class Given(Tagger):
        def __init__(self) -> None:
            """Tag nothing anew."""

        def tag(self, texts: object) -> list[Sentence]:  # type: ignore[override]
            kicks, _ = tagged("He/PRP [kicks/VBZ] the/DT ball/NN and/CC 'll/MD go/VB")
            kicked, _ = tagged("It/PRP was/VBD [kicked/VBN]")
            return [kicks] * 3 + [kicked] * 2

    found = count([], Given())
    assert found == {"kick": {"object": 3, "passive": 2}}
    row = parse_toml(render(found, 5), "")["verbs"]["kick"]
    assert dict(zip(PATTERNS, row, strict=True)) == dict.fromkeys(PATTERNS, 0) | found["kick"]


@pytest.mark.real
@pytest.mark.slow
def test_shipped_counts_are_those_of_the_texts() -> None:
    """Counted again they are the same."""
    texts = read_texts()
    assert render(count(texts, Tagger.load()), len(texts)) == SHIPPED.read_text(encoding="utf-8")
