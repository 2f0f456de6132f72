"""Equation 1 on whole problems: the papers' examples by hand, and random problems (D2–D8, D14)."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from helpers.one_problem import Answers, class_verdict, odds, outcome_of, run
from helpers.replacement_tables import Replacement
from helpers.tagged_texts import sentence
from hypothesis import given
from hypothesis import strategies as st

from generation.config import Config
from generation.problems.substitutions import Place
from generation.records import MaskedQuery, Scores, Sentence, SharedWord
from generation.suggestions.questions import masked_queries
from generation.suggestions.vocabulary import ATTACHED, OTHER, WHOLE, Vocabulary
from generation.variants.equation import Lexicon, Survivors, match_case
from generation.variants.perturbations import scramble
from generation.variants.reasons import (
    KEPT,
    NOT_IN_VOCABULARY,
    SUGGESTION_REASONS,
    Funnel,
    Reason,
    funnel_rows,
)
from generation.variants.validation import CHEAP_REASONS, survivors_of

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


def vocabulary(*entries: tuple[str, int]) -> Vocabulary:
    return Vocabulary(
        tuple(text for text, _ in entries), np.array([kind for _, kind in entries], np.int8)
    )


SMALL = vocabulary(
    ("", OTHER),  # 0 [MASK]
    ("boy", WHOLE),  # 1
    ("girl", WHOLE),  # 2
    ("Girl", WHOLE),  # 3
    ("GIRL", WHOLE),  # 4
    ("man", WHOLE),  # 5
    ("ish", ATTACHED),  # 6
    ("!", WHOLE),  # 7
    ("boy2", WHOLE),  # 8
    ("girl", ATTACHED),  # 9 as at the beginning of a text
    ("boy", ATTACHED),  # 10
    ("naïve", WHOLE),  # 11
)


def scores(rows: Sequence[tuple[int, float, Sequence[tuple[int, float]]]]) -> Scores:
    """Make scores of rows (original, its logit, [(suggestion, its logit), …])."""
    k = max(len(suggestions) for *_, suggestions in rows)
    made = Scores.empty(len(rows), k)
    for i, (original, logit, suggestions) in enumerate(rows):
        made.original[i], made.original_logit[i] = original, logit
        for j, (token, value) in enumerate(suggestions):
            made.tokens[i, j], made.logits[i, j] = token, value
    return made


def filtered(
    rows: Sequence[tuple[int, float, Sequence[tuple[int, float]]]], **options: Any
) -> Survivors:
    return survivors_of(scores(rows), SMALL, Config(**options))


def rejections(survivors: Survivors, row: int = 0) -> dict[str, int]:
    """Reason → count, without zeros."""
    counts = dict(zip(CHEAP_REASONS, survivors.rejected[row].tolist(), strict=True))
    return {reason: count for reason, count in counts.items() if count}


def test_special_cases_of_a_row() -> None:
    """A tie fails (D5); at a text's beginning, tokens are attached; no token, no words (D3)."""
    above = float(np.nextafter(np.float32(2.0), np.float32(3.0)))
    assert filtered([(1, 2.0, [(2, 2.0)])]).tokens.tolist() == []
    assert filtered([(1, 2.0, [(2, above)])]).tokens.tolist() == [2]
    survivors = filtered([(10, 0.0, [(2, 3.0), (9, 2.0), (6, 1.0)])])
    assert survivors.tokens.tolist() == [9]
    assert rejections(survivors) == {Reason.SUBWORD: 2}
    nan = float("nan")
    survivors = filtered([(-1, nan, [(2, 5.0), (5, 4.0)]), (1, 0.0, [(2, 5.0), (-1, nan)])])
    assert survivors.in_vocabulary.tolist() == [False, True]
    assert survivors.starts.tolist() == [0, 0, 1]
    assert rejections(survivors, 0) == {}
    assert rejections(survivors, 1) == {}


@st.composite
def random_case(draw: st.DrawFn) -> tuple[Scores, Vocabulary]:
    """Random words of random case and kind, and rows sorted by logit, with ties."""
    texts = ["a", "A", "an", "An", "AN", "b", "B", "bé", "BÉ", "x1", "-", "c d", "dog", "Dog"]
    entries = draw(
        st.lists(
            st.tuples(st.sampled_from(texts), st.sampled_from([WHOLE, WHOLE, ATTACHED])),
            min_size=1,
            max_size=14,
        )
    )
    entries.insert(draw(st.integers(0, len(entries))), ("", OTHER))
    words = vocabulary(*entries)
    n, k = draw(st.integers(0, 4)), draw(st.integers(1, 9))
    made = Scores.empty(n, k)
    for i in range(n):
        made.original[i] = draw(st.integers(-1, len(entries) - 1))
        if made.original[i] < 0:
            continue
        # Only a few values, so that suggestions tie with the original.
        made.original_logit[i] = draw(st.integers(0, 3))
        # Two ids beyond the vocabulary, as in a padded output layer.
        ids = draw(st.permutations(range(len(entries) + 2)))[:k]
        logits = sorted(draw(st.lists(st.integers(0, 4), min_size=k, max_size=k)), reverse=True)
        made.tokens[i, : len(ids)] = ids
        made.logits[i, : len(ids)] = logits[: len(ids)]
    return made, words


def fits(words: Vocabulary, token: int, original: int) -> bool:
    """D4, as in `Vocabulary.fits`, for one suggestion."""
    kind = words.kinds[token]
    whole = {t for t, c in zip(words.texts, words.kinds, strict=True) if c == WHOLE}
    if words.kinds[original] == WHOLE:
        return bool(kind == WHOLE)
    return bool(kind == ATTACHED and words.texts[token] in whole)


def slow_filters(
    made: Scores, words: Vocabulary, probability_filter: bool
) -> list[tuple[list[tuple[int, float]], dict[str, int]]]:
    """Return kept words and rejections by reason, row by row, suggestion by suggestion."""
    rows = []
    for i, original in enumerate(made.original.tolist()):
        kept: list[tuple[int, float]] = []
        rejected = dict.fromkeys(CHEAP_REASONS, 0)
        seen: set[str] = set()
        for token, logit in zip(made.tokens[i].tolist(), made.logits[i].tolist(), strict=True):
            if original < 0 or token < 0:
                continue
            text = words.texts[token] if token < len(words.texts) else ""
            if not text.isalpha():
                rejected[Reason.NOT_ALPHABETIC] += 1
            elif not fits(words, token, original):
                rejected[Reason.SUBWORD] += 1
            elif probability_filter and not logit > made.original_logit[i]:
                rejected[Reason.LESS_PROBABLE] += 1
            elif text.lower() in seen:
                rejected[Reason.DUPLICATE] += 1
            else:
                seen.add(text.lower())
                kept.append((token, logit - float(made.original_logit[i])))
        rows.append((kept, rejected))
    return rows


def by_row(survivors: Survivors) -> list[tuple[list[tuple[int, float]], dict[str, int]]]:
    pairs = list(zip(survivors.tokens.tolist(), survivors.log_odds.tolist(), strict=True))
    return [
        (pairs[start:end], dict(zip(CHEAP_REASONS, rejected, strict=True)))
        for (start, end), rejected in zip(
            itertools.pairwise(survivors.starts.tolist()), survivors.rejected.tolist(), strict=True
        )
    ]


@given(random_case(), st.booleans())
def test_cheap_filters_against_a_loop(
    case: tuple[Scores, Vocabulary], probability_filter: bool
) -> None:
    made, words = case
    config = Config(probability_filter=probability_filter)
    survivors = survivors_of(made, words, config)
    assert by_row(survivors) == slow_filters(made, words, probability_filter)


@pytest.mark.parametrize(
    ("original", "expected"),
    [
        ("boy", "girl"), ("Boy", "Girl"), ("BOY", "GIRL"), ("TV", "GIRL"), ("A", "Girl"),
        ("a", "girl"), ("iPhone", "girl"), ("McDonald", "girl"), ("bOY", "girl"), ("Été", "Girl"),
        ("ÉTÉ", "GIRL"),
    ],
)  # fmt: skip
def test_casing_shapes(original: str, expected: str) -> None:
    """Lower, Title and UPPER are kept; a single capital is Title, a mixture is lower."""
    assert match_case("girl", original) == expected


WORDS = st.text("abcdefgé", min_size=1, max_size=10)


@given(WORDS, st.text(max_size=5))
def test_scramble_shuffles_the_letters(word: str, key: str) -> None:
    scrambled = scramble(word, key)
    assert sorted(scrambled) == sorted(word)
    assert (scrambled == word) == (len(set(word)) == 1)
    assert scramble(word, key) == scrambled


VOCABULARIES = st.dictionaries(
    st.sampled_from("abc"),
    st.lists(st.sampled_from(["", "girl", "Girl", "GIRL", "été", "ß", "!", "boy"]), min_size=1),
    min_size=1,
)


@given(VOCABULARIES)
def test_equal_words_have_equal_numbers(texts: dict[str, list[str]]) -> None:
    entries = {mlm: [(t, WHOLE if t else OTHER) for t in mine] for mlm, mine in texts.items()}
    lexicon = Lexicon.of({mlm: vocabulary(*mine) for mlm, mine in entries.items()})
    words = list(lexicon.numbers)
    assert words == sorted({text.lower() for mine in texts.values() for text in mine})
    assert list(lexicon.numbers.values()) == list(range(len(words)))
    for mlm, mine in texts.items():
        read = [words[number] for number in lexicon.of_token[mlm].tolist()]
        assert read == [text.lower() for text in mine]
