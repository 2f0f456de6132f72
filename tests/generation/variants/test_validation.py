"""Equation 1 on whole problems: the papers' examples by hand, and random problems (D2–D8, D14)."""

import math
from dataclasses import dataclass
from typing import Any

from helpers.one_problem import Answers, class_verdict, odds, outcome_of, run
from helpers.replacement_tables import Replacement
from helpers.tagged_texts import sentence
from hypothesis import given
from hypothesis import strategies as st

from generation.config import Config
from generation.problems.substitutions import Place
from generation.records import MaskedQuery, Sentence, SharedWord
from generation.suggestions.questions import masked_queries
from generation.variants.reasons import (
    KEPT,
    NOT_IN_VOCABULARY,
    SUGGESTION_REASONS,
    Funnel,
    Reason,
    funnel_rows,
)

GIRL_P = sentence("A/DT girl/NN jumps/VBZ in/IN the/DT air/NN ./.")
GIRL_H = sentence("A/DT girl/NN jumps/VBZ high/RB ./.")


def test_examples_of_poster_and_paper() -> None:
    """A girl, then a boy, jumps; words of the problem (D7) or of other classes (D8) fail."""
    bert = Answers({(GIRL_P.text, 0): odds("boy man"), (GIRL_H.text, 0): odds("man dog boy")})
    (boy, man) = run(GIRL_P, GIRL_H, "girl", {"bert": bert}).replacements
    assert boy == Replacement(
        seed_id="snli:1", source="snli", word="girl", word_class="noun", replacement="boy",
        premise_mlms=("bert",), hypothesis_mlms=("bert",), log_odds=2.0,
    )  # fmt: skip
    assert (man.replacement, man.log_odds) == ("man", 2.5)
    bert = Answers(
        {
            (SMALL_P.text, 0): odds("girl child kid carried"),
            (SMALL_H.text, 0): odds("girl kid child"),
        }
    )
    outcome = run(SMALL_P, SMALL_H, "boy", {"bert": bert})
    assert outcome.words == ["child", "kid"]
    assert outcome.counts("bert") == {
        "suggestions": 7, Reason.IN_PROBLEM: 3, KEPT: 4, "replacements": 2,
    }  # fmt: skip
    bert = Answers(
        {(SMALL_P.text, 0): odds("teen small"), (SMALL_H.text, 0): odds("teen small tiny")}
    )
    outcome = run(SMALL_P, SMALL_H, "little", {"bert": bert}, {"teen": "NN"})
    assert outcome.words == ["small"]
    assert outcome.counts("bert") == {
        "suggestions": 5, Reason.OTHER_SENTENCE: 1, Reason.WORD_CLASS: 2, KEPT: 2,
        "replacements": 1,
    }  # fmt: skip


SMALL_P = sentence("A/DT girl/NN carries/VBZ a/DT little/JJ boy/NN ./.")
SMALL_H = sentence("A/DT little/JJ boy/NN is/VBZ carried/VBN ./.")


TWICE = sentence("A/DT girl/NN carries/VBZ a/DT small/JJ girl/NN ./.")


def test_masked_queries_single_and_joint() -> None:
    spans = ((2, 6), (23, 27))
    assert [TWICE.text[slice(*span)] for span in spans] == ["girl", "girl"]
    assert masked_queries(Place(TWICE, (1, 5)), masking="single") == [
        MaskedQuery(TWICE.text, spans[0], (spans[0],)),
        MaskedQuery(TWICE.text, spans[1], (spans[1],)),
    ]
    assert masked_queries(Place(TWICE, (1, 5)), masking="joint") == [
        MaskedQuery(TWICE.text, spans[0], spans),
        MaskedQuery(TWICE.text, spans[1], spans),
    ]


FILLERS = ["the/DT", "Dog/NN", "swims/VBZ", "cat/NN", "can/MD"]
SUGGESTIONS = ["man", "kid", "cat", "dog", "swims", "girl", "boy", "tree"]


@dataclass(frozen=True)
class Case:
    """A shared word "boy" in two sentences, and all answers about it."""

    sentences: tuple[Sentence, Sentence]
    word: SharedWord
    answers: dict[str, dict[tuple[str, int], dict[str, float]]]
    """MLM → (sentence, occurrence) → log-odds; missing occurrences are not in the vocabulary."""
    tags: dict[tuple[int, str], tuple[str, ...] | None]
    rejected: int


@st.composite
def random_cases(draw: st.DrawFn) -> Case:
    def one(side: str) -> Sentence:
        n = draw(st.integers(1, 3))
        boys = [f"boy/{draw(st.sampled_from(['NN', 'NNP', 'VB']))}" for _ in range(n - 1)]
        fillers = draw(st.lists(st.sampled_from(FILLERS), max_size=3))
        # The side's own first word makes the sentences distinct.
        return sentence(" ".join([f"{side}/DT", "boy/NN", *draw(st.permutations(boys + fillers))]))

    sentences = (one("This"), one("That"))
    places = [[i for i, token in enumerate(s.tokens) if token.text == "boy"] for s in sentences]
    candidates = st.dictionaries(
        st.sampled_from(SUGGESTIONS), st.integers(1, 20).map(lambda n: n / 4), max_size=8
    )
    answers: dict[str, dict[tuple[str, int], dict[str, float]]] = {}
    for mlm in draw(st.sampled_from([["a"], ["b", "a"], ["a", "c", "b"]])):
        answers[mlm] = {}
        for s, positions in zip(sentences, places, strict=True):
            for n in range(len(positions)):
                if draw(st.integers(0, 9)):
                    answers[mlm][s.text, n] = draw(candidates)
    tags = {
        (side, word): draw(
            st.one_of(
                st.just(tuple(sentences[side].tokens[i].tag for i in places[side])),
                st.none(),
                st.tuples(*[st.sampled_from(["NN", "NNS", "VB", "NNP"])] * len(places[side])),
            )
        )
        for side in (0, 1)
        for word in SUGGESTIONS
    }
    word = SharedWord("boy", "noun", (tuple(places[0]), tuple(places[1])))
    return Case(sentences, word, answers, tags, draw(st.integers(0, 3)))


def passes(tags: tuple[str, ...] | None, originals: tuple[str, ...], config: Config) -> bool:
    """Condition (iii)."""
    verdict = class_verdict(tags, originals, tag_match=config.tag_match)
    return not config.class_filter or verdict is None


def by_definition(case: Case, config: Config) -> dict[str, tuple[Any, ...]]:
    """R_M(⟨p, h⟩, o) by the specification: word → provenance and log-odds."""
    problem = {token.text.lower() for s in case.sentences for token in s.tokens}
    sets: list[dict[str, tuple[list[str], float]]] = []
    for side, s in enumerate(case.sentences):
        positions = case.word.positions[side]
        originals = tuple(s.tokens[i].tag for i in positions)
        result: dict[str, tuple[list[str], float]] = {}
        for word in SUGGESTIONS:
            having = [
                mlm
                for mlm in sorted(case.answers)
                if all(
                    word in case.answers[mlm].get((s.text, n), {}) for n in range(len(positions))
                )
            ]
            if having and word not in problem and passes(case.tags[side, word], originals, config):
                least = min(
                    case.answers[mlm][s.text, n][word]
                    for mlm in having
                    for n in range(len(positions))
                )
                result[word] = (having, least)
        sets.append(result)
    p, h = sets
    words = p.keys() & h.keys() if config.combine == "intersection" else p.keys() | h.keys()
    nothing: tuple[list[str], float] = ([], math.inf)
    return {
        word: (
            tuple(p.get(word, nothing)[0]),
            tuple(h.get(word, nothing)[0]),
            min(p.get(word, nothing)[1], h.get(word, nothing)[1]),
        )
        for word in words
    }


def found_in(case: Case, config: Config) -> tuple[list[Replacement], Funnel]:
    mlms = {
        mlm: Answers(dict(places), rejected=case.rejected) for mlm, places in case.answers.items()
    }
    outcome = outcome_of(
        case.sentences, case.word, mlms, lambda side, word: case.tags[side, word], config
    )
    return outcome.replacements, outcome.funnel


def as_dict(replacements: list[Replacement]) -> dict[str, tuple[Any, ...]]:
    return {r.replacement: (r.premise_mlms, r.hypothesis_mlms, r.log_odds) for r in replacements}


CONFIGS = st.builds(
    Config,
    class_filter=st.booleans(),
    tag_match=st.sampled_from(["coarse", "fine"]),
    combine=st.sampled_from(["intersection", "union"]),
)


@given(random_cases(), CONFIGS)
def test_replacements_against_the_definition(case: Case, config: Config) -> None:
    replacements, _ = found_in(case, config)
    assert as_dict(replacements) == by_definition(case, config)
    assert [r.replacement for r in replacements] == sorted(r.replacement for r in replacements)


@given(random_cases(), CONFIGS)
def test_the_funnel_adds_up(case: Case, config: Config) -> None:
    """Suggestions are the sum of reasons and kept ones, for each masked LM; none is lost."""
    replacements, funnel = found_in(case, config)
    rows = {row["mlm"]: row for row in funnel_rows(funnel)}
    assert set(rows) == set(case.answers)
    in_premise, in_hypothesis = map(len, case.word.positions)
    for mlm, places in case.answers.items():
        row = rows[mlm]
        went_in = sum(len(result) + case.rejected for result in places.values())
        assert row["suggestions"] == went_in
        assert row[KEPT] + sum(row[reason] for reason in SUGGESTION_REASONS) == went_in
        assert min(row[reason] for reason in (*SUGGESTION_REASONS, KEPT)) >= 0
        assert row[NOT_IN_VOCABULARY] == in_premise + in_hypothesis - len(places)
        assert row["replacements"] == sum(
            mlm in r.premise_mlms or mlm in r.hypothesis_mlms for r in replacements
        )
        assert row[KEPT] == sum(
            in_premise * (mlm in r.premise_mlms) + in_hypothesis * (mlm in r.hypothesis_mlms)
            for r in replacements
        )
