"""Equation 1: the set algebra, the papers' examples by hand, and the funnel (D2–D8, D14)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from helpers import set_algebra
from helpers.replacement_tables import Replacement, replacements_in
from helpers.set_algebra import Evidence, Odds, class_verdict
from hypothesis import given
from hypothesis import strategies as st

from generation.config import Config
from generation.problems.shared_words import TaggedProblems, shared_words
from generation.problems.substitutions import Place, Substitutions
from generation.ragged import pairs, split
from generation.reasons import KEPT, Reason
from generation.records import MaskedQuery, Seed, Sentence, SharedWord, Token, replacement_schema
from generation.run_summary import render_funnel
from generation.suggestions.questions import masked_queries
from generation.suggestions.vocabulary import WHOLE, Vocabulary
from generation.variants.candidates import CHEAP_REASONS, Survivors
from generation.variants.funnel import NOT_IN_VOCABULARY, SUGGESTION_REASONS, Funnel
from generation.variants.set_algebra import (
    Sides,
    Suggested,
    over_mlms,
    over_occurrences,
    over_sentences,
)
from generation.variants.validation import find_replacements
from generation.variants.words import Lexicon
from merge_dataset.schema import WORD_CLASSES

WORDS = st.sampled_from(["girl", "man", "dog", "kid", "cat"])
ODDS = st.dictionaries(WORDS, st.integers(-9, 9).map(lambda n: n / 2), max_size=5)


# --- Sets as columns ---

NUMBERS = {word: number for number, word in enumerate(["girl", "man", "dog", "kid", "cat"])}
SIDES = st.lists(st.lists(ODDS, min_size=1, max_size=4), min_size=1, max_size=4)
"""Sides with sets at their occurrences."""


def members(sets: Sequence[tuple[int, Odds]]) -> tuple[Any, Any]:
    """(side, set) → keys and log-odds, a row per member."""
    rows = [(side, NUMBERS[word], odds[word]) for side, odds in sets for word in odds]
    side, word, log_odds = zip(*rows, strict=True) if rows else ((), (), ())
    return (
        pairs(np.array(side, np.int64), np.array(word, np.int64)),
        np.array(log_odds, np.float32),
    )


def by_side(keys: Any, values: Sequence[Any]) -> dict[int, dict[str, Any]]:
    """Columns → side → word → value; sides without a word are left out."""
    found: dict[int, dict[str, Any]] = {}
    names = list(NUMBERS)
    for side, word, value in zip(*(c.tolist() for c in split(keys)), values, strict=True):
        assert names[word] not in found.setdefault(side, {})
        found[side][names[word]] = value
    return found


def intersected(sides: Sequence[Sequence[Odds]]) -> dict[int, dict[str, float]]:
    """`over_occurrences` of several sides at once."""
    rows = [(side, odds) for side, sets in enumerate(sides) for odds in sets]
    keys, log_odds = over_occurrences(
        *members(rows), np.array([len(sets) for sets in sides], np.int64)
    )
    assert (np.diff(keys) > 0).all()
    return by_side(keys, log_odds.tolist())


def without_empty(sets: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {side: words for side, words in sets.items() if words}


# --- ∩ over occurrences ---


@given(SIDES)
def test_over_occurrences_is_the_intersection(sides: list[list[Odds]]) -> None:
    """On each side the words of all its sets, each with the smallest of its log-odds."""
    expected = {side: set_algebra.over_occurrences(sets) for side, sets in enumerate(sides)}
    assert intersected(sides) == without_empty(expected)


@given(st.lists(ODDS, min_size=1, max_size=4), ODDS)
def test_another_occurrence_never_adds_a_word(sets: list[Odds], another: Odds) -> None:
    """An occurrence more can take words away and lower log-odds, nothing else."""
    before = intersected([sets]).get(0, {})
    after = intersected([[*sets, another]]).get(0, {})
    assert after.keys() <= before.keys()
    assert all(after[word] <= before[word] for word in after)


@given(st.lists(ODDS, min_size=1, max_size=4), st.randoms())
def test_the_order_of_occurrences_does_not_matter(sets: list[Odds], rng: Any) -> None:
    """The intersection of shuffled sets is the same."""
    shuffled = list(sets)
    rng.shuffle(shuffled)
    assert intersected([shuffled]) == intersected([sets])


# --- ∪ over MLMs ---


def sorted_members(sides: Sequence[Odds]) -> tuple[Any, Any]:
    keys, log_odds = members(list(enumerate(sides)))
    order = np.argsort(keys)
    return keys[order], log_odds[order]


def evidence(found: Suggested, mlms: Sequence[str]) -> dict[int, dict[str, Evidence]]:
    """Columns → side → word → who validated it, and how clearly."""
    assert (np.diff(found.keys) > 0).all()
    rows = zip(found.mlms.tolist(), found.log_odds.tolist(), strict=True)
    return by_side(
        found.keys,
        [
            Evidence(tuple(m for m, is_in in zip(mlms, row, strict=True) if is_in), odds)
            for row, odds in rows
        ],
    )


def united(sets: Mapping[str, Sequence[Odds]]) -> dict[int, dict[str, Evidence]]:
    """`over_mlms`: MLM → a set per side, to the union per side."""
    mlms = sorted(sets)
    return evidence(over_mlms([sorted_members(sets[mlm]) for mlm in mlms]), mlms)


BY_MLM = st.dictionaries(
    st.sampled_from("abcd"), st.lists(ODDS, min_size=2, max_size=2), min_size=1, max_size=4
)


@given(BY_MLM)
def test_over_mlms_is_the_union_with_exact_provenance(sets: dict[str, list[Odds]]) -> None:
    """Every word of any set, with all MLMs that have it and the smallest log-odds (D14)."""
    expected: dict[int, dict[str, Any]] = {
        side: dict(set_algebra.over_mlms({mlm: odds[side] for mlm, odds in sets.items()}))
        for side in (0, 1)
    }
    assert united(sets) == without_empty(expected)


@given(BY_MLM, ODDS)
def test_another_mlm_never_removes_a_word(sets: dict[str, list[Odds]], another: Odds) -> None:
    """An MLM more can add words and validate more, and nothing is lost."""
    before = united(sets).get(0, {})
    after = united({**sets, "z": [another, {}]}).get(0, {})
    assert after.keys() == before.keys() | another.keys()
    for word, found in before.items():
        assert set(found.mlms) <= set(after[word].mlms)
        assert ("z" in after[word].mlms) == (word in another)


# --- ∩ or ∪ over sentences ---


def combined(sides: Sequence[Odds], combine: str) -> dict[int, list[str]]:
    """`over_sentences`: two sets per shared word, to shared word → words in order."""
    keys, _ = sorted_members(sides)
    numbers = np.arange(len(sides))
    found, places = over_sentences(keys, Sides(numbers // 2, numbers % 2, 2), combine=combine)
    assert (np.diff(found) > 0).all()
    names, result = list(NUMBERS), dict[int, list[str]]()
    rows = zip(*(column.tolist() for column in split(found)), places.tolist(), strict=True)
    for shared, number, row in rows:
        result.setdefault(shared, []).append(names[number])
        for side, place in enumerate(row):
            there = names[number] in sides[2 * shared + side]
            assert (place >= 0) == there
            assert not there or keys[place] == pairs(np.array(2 * shared + side), number)
    return {shared: sorted(words) for shared, words in result.items()}


@given(st.lists(ODDS, max_size=8).filter(lambda sides: len(sides) % 2 == 0))
def test_over_sentences(sides: list[Odds]) -> None:
    """Equation 1 and its ablation; the intersection lies within the union, p and h are alike."""
    for combine in ("intersection", "union"):
        expected = {
            n: set_algebra.over_sentences(sides[2 * n : 2 * n + 2], combine=combine)
            for n in range(len(sides) // 2)
        }
        assert combined(sides, combine) == {n: words for n, words in expected.items() if words}
    both, either = combined(sides, "intersection"), combined(sides, "union")
    assert all(set(words) <= set(either[n]) for n, words in both.items())
    swapped = [sides[n ^ 1] for n in range(len(sides))]
    assert combined(swapped, "intersection") == both


# --- A problem by hand ---


def sentence(tagged: str) -> Sentence:
    """A sentence from "word/TAG word/TAG"; a full stop joins on to the word before."""
    tokens: list[Token] = []
    text = ""
    for pair in tagged.split():
        word, _, tag = pair.rpartition("/")
        text += " " if text and word != "." else ""
        tokens.append(Token(word, len(text), tag))
        text += word
    return Sentence(text, tuple(tokens))


VOCABULARY = """boy man dog girl child kid carried teen small tiny poodle mother play race boys men
run swim swims cat tree""".split()
LEXICON_OF = Vocabulary(tuple(VOCABULARY), np.full(len(VOCABULARY), WHOLE, np.int8))


@dataclass
class Answers:
    """What one MLM suggests; stands in for `Candidates`."""

    by_place: dict[tuple[str, int], Odds] = field(default_factory=dict)
    """(sentence, number of the occurrence) → candidates; places left out are not in the
    vocabulary."""
    rejected: int = 0
    """Suggestions at every occurrence that the cheap filters took away."""
    asked: list[MaskedQuery] = field(default_factory=list)

    def take(self, queries: Sequence[MaskedQuery]) -> Survivors:
        self.asked += queries
        rows = [self.by_place.get(self._place(query)) for query in queries]
        rejected = np.zeros((len(rows), len(CHEAP_REASONS)), np.int32)
        there = np.array([row is not None for row in rows], np.bool_)
        rejected[there, CHEAP_REASONS.index(Reason.NOT_ALPHABETIC)] = self.rejected
        found = [row or {} for row in rows]
        return Survivors(
            starts=np.cumsum([0, *map(len, found)]),
            in_vocabulary=there,
            tokens=np.array([VOCABULARY.index(w) for row in found for w in row], np.int32),
            log_odds=np.array([x for row in found for x in row.values()], np.float32),
            rejected=rejected,
        )

    def _place(self, query: MaskedQuery) -> tuple[str, int]:
        word = query.sentence[slice(*query.span)]
        tokens = query.sentence.replace(".", " ").split()
        before = query.sentence[: query.span[0]].split()
        return query.sentence, tokens[: len(before)].count(word)


def odds(words: str) -> dict[str, float]:
    """Candidates with log-odds that fall from 3 by halves."""
    return {word: 3.0 - i / 2 for i, word in enumerate(words.split())}


Tags = tuple[str, ...] | None
"""Tags of a word at all occurrences in a sentence, None if it changes the tokenisation."""


@dataclass
class FakeTagger:
    """Says of each candidate what it was told; stands in for `Tagger`."""

    tags_of: Callable[[int, str], Tags]
    """(side, candidate) → tags."""
    labels: tuple[str, ...] = ("NN", "NNS", "NNP", "VB", "VBP", "VBZ", "JJ", "RB", "MD")
    asked: list[tuple[int, str, str]] = field(default_factory=list)
    """Sentence, positions and form of each substitution."""

    def tags_after(self, substitutions: Substitutions) -> Any:
        numbers: list[int] = []
        rows = zip(substitutions.place.tolist(), substitutions.form.tolist(), strict=True)
        for side, number in rows:
            place, form = substitutions.places[side], substitutions.forms[number]
            self.asked.append((side, place.sentence.text, form))
            tags = self.tags_of(side, form.lower())
            assert tags is None or len(tags) == len(place.positions)
            numbers += (
                [-1] * len(place.positions)
                if tags is None
                else [self.labels.index(tag) for tag in tags]
            )
        return np.array(numbers, np.int64)

    def keeps_tokens(self, substitutions: Substitutions) -> Any:
        forms = (substitutions.forms[number].lower() for number in substitutions.form.tolist())
        tags = map(self.tags_of, substitutions.place.tolist(), forms)
        return np.array([each is not None for each in tags], np.bool_)


@dataclass
class Outcome:
    """What became of one shared word."""

    replacements: list[Replacement]
    funnel: Funnel
    asked: list[tuple[int, str, str]]

    @property
    def words(self) -> list[str]:
        return [r.replacement for r in self.replacements]

    def counts(self, mlm: str) -> dict[str, Any]:
        """The MLM's row of the funnel without zeros."""
        (row,) = (row for row in self.funnel.rows() if row["mlm"] == mlm)
        return {k: v for k, v in row.items() if v and k not in {"mlm", "word_class"}}


def found(
    sentences: tuple[Sentence, Sentence],
    word: SharedWord,
    candidates: Mapping[str, Any],
    tags_of: Callable[[int, str], Tags],
    config: Config,
) -> Outcome:
    """`find_replacements` for one shared word of one problem."""
    premise, hypothesis = sentences
    seed = Seed(
        seed_id="snli:1",
        source="snli",
        texts=(premise.text, hypothesis.text),
        label="neutral",
    )
    problems = TaggedProblems(
        [seed], {premise.text: premise, hypothesis.text: hypothesis}, {seed.seed_id: [word]}
    )
    tagger = FakeTagger(tags_of)
    lexicon = Lexicon.of(dict.fromkeys(candidates, LEXICON_OF))
    table, funnel = find_replacements(problems, candidates, lexicon, tagger, config)
    assert table.schema == replacement_schema()
    return Outcome(replacements_in(table), funnel, tagger.asked)


def run(
    premise: Sentence,
    hypothesis: Sentence,
    word: str,
    candidates: Mapping[str, Any],
    tags: Mapping[str, str | None] | Mapping[tuple[int, str], Tags] | None = None,
    **settings: Any,
) -> Outcome:
    """`find_replacements` for one shared word.

    Args:
        premise: Tagged.
        hypothesis: Tagged.
        word: The shared word's form.
        candidates: MLM → answers.
        tags: Candidate → its tag wherever it stands, None if it changes the tokenisation; or
            (side, candidate) → its tags; other candidates keep the original's tags.
        settings: Of the configuration.
    """
    shared = shared_words((premise, hypothesis), word_classes=WORD_CLASSES)
    (one,) = (s for s in shared if s.word == word)
    said: Mapping[Any, Any] = tags or {}

    def tags_of(side: int, candidate: str) -> Tags:
        sentence, positions = (premise, hypothesis)[side], one.positions[side]
        if (side, candidate) in said:
            return said[side, candidate]
        if candidate in said:
            return None if said[candidate] is None else (said[candidate],) * len(positions)
        return tuple(sentence.tokens[i].tag for i in positions)

    return found((premise, hypothesis), one, candidates, tags_of, Config(**settings))


# --- The papers' examples ---

GIRL_P = sentence("A/DT girl/NN jumps/VBZ in/IN the/DT air/NN ./.")
GIRL_H = sentence("A/DT girl/NN jumps/VBZ high/RB ./.")


def test_the_posters_example() -> None:
    """A girl, then a boy, jumps in the air: "boy" is validated in both sentences."""
    bert = Answers({(GIRL_P.text, 0): odds("boy man"), (GIRL_H.text, 0): odds("man dog boy")})
    (boy, man) = run(GIRL_P, GIRL_H, "girl", {"bert": bert}).replacements
    assert boy == Replacement(
        seed_id="snli:1",
        source="snli",
        word="girl",
        word_class="noun",
        replacement="boy",
        premise_mlms=("bert",),
        hypothesis_mlms=("bert",),
        log_odds=2.0,
    )
    assert (man.replacement, man.log_odds) == ("man", 2.5)


SMALL_P = sentence("A/DT girl/NN carries/VBZ a/DT little/JJ boy/NN ./.")
SMALL_H = sentence("A/DT little/JJ boy/NN is/VBZ carried/VBN ./.")


def test_figure_2_a_word_of_the_problem_is_rejected() -> None:
    """Neither "girl" nor "carried" can stand for "boy": the problem has them (D7)."""
    bert = Answers(
        {
            (SMALL_P.text, 0): odds("girl child kid carried"),
            (SMALL_H.text, 0): odds("girl kid child"),
        }
    )
    outcome = run(SMALL_P, SMALL_H, "boy", {"bert": bert})
    assert outcome.words == ["child", "kid"]
    assert outcome.counts("bert") == {
        "suggestions": 7,
        Reason.IN_PROBLEM: 3,
        KEPT: 4,
        "replacements": 2,
    }


def test_figure_2_a_word_of_another_class_is_rejected() -> None:
    """For "little", "teen" is a noun there and "small" an adjective (iii, D8)."""
    bert = Answers(
        {(SMALL_P.text, 0): odds("teen small"), (SMALL_H.text, 0): odds("teen small tiny")}
    )
    outcome = run(SMALL_P, SMALL_H, "little", {"bert": bert}, {"teen": "NN"})
    assert outcome.words == ["small"]
    assert outcome.counts("bert") == {
        "suggestions": 5,
        Reason.OTHER_SENTENCE: 1,
        Reason.WORD_CLASS: 2,
        KEPT: 2,
        "replacements": 1,
    }


def test_the_papers_poodle() -> None:
    """Two poodles and a boy: "boy" never becomes "poodle" if the problem has that word."""
    p = sentence("A/DT poodle/NN and/CC a/DT boy/NN swim/VBP ./.")
    h = sentence("Only/RB one/CD boy/NN swims/VBZ ./.")
    bert = Answers({(p.text, 0): odds("poodle girl"), (h.text, 0): odds("girl poodle")})
    assert run(p, h, "boy", {"bert": bert}).words == ["girl"]


def test_the_poodle_in_the_hypothesis_only() -> None:
    """A word of either sentence is out in both, whatever its case there (D7)."""
    p = sentence("Two/CD dogs/NNS and/CC a/DT boy/NN swim/VBP ./.")
    h = sentence("Poodle/NN and/CC boy/NN swim/VBP ./.")
    bert = Answers({(p.text, 0): odds("poodle girl"), (h.text, 0): odds("poodle girl")})
    outcome = run(p, h, "boy", {"bert": bert})
    assert outcome.words == ["girl"]
    assert outcome.counts("bert")[Reason.IN_PROBLEM] == 2


def test_the_original_is_a_word_of_the_problem() -> None:
    """Without the probability filter the original itself is suggested, and rejected (D7)."""
    bert = Answers({(GIRL_P.text, 0): odds("girl boy"), (GIRL_H.text, 0): odds("boy girl")})
    outcome = run(GIRL_P, GIRL_H, "girl", {"bert": bert}, probability_filter=False)
    assert outcome.words == ["boy"]


# --- Several occurrences, several MLMs ---

TWICE = sentence("A/DT girl/NN carries/VBZ a/DT small/JJ girl/NN ./.")
ONCE = sentence("A/DT girl/NN is/VBZ carried/VBN ./.")


def test_every_occurrence_has_to_validate() -> None:
    """What fits the first girl only, "mother", the MLM does not validate in the premise."""
    bert = Answers(
        {
            (TWICE.text, 0): odds("mother boy"),
            (TWICE.text, 1): odds("boy child"),
            (ONCE.text, 0): odds("mother child boy"),
        }
    )
    outcome = run(TWICE, ONCE, "girl", {"bert": bert})
    assert outcome.words == ["boy"]
    assert outcome.replacements[0].log_odds == 2.0  # 2.5 and 3 in the premise, 2 in h
    assert outcome.counts("bert") == {
        "suggestions": 7,
        Reason.OTHER_OCCURRENCE: 2,
        Reason.OTHER_SENTENCE: 2,
        KEPT: 3,
        "replacements": 1,
    }


def test_two_mlms_never_share_a_sentences_occurrences() -> None:
    """One MLM validates "boy" at the first girl, another at the second: not validated."""
    first = Answers(
        {(TWICE.text, 0): odds("boy"), (TWICE.text, 1): odds("man"), (ONCE.text, 0): odds("boy")}
    )
    second = Answers(
        {(TWICE.text, 0): odds("man"), (TWICE.text, 1): odds("boy"), (ONCE.text, 0): odds("man")}
    )
    outcome = run(TWICE, ONCE, "girl", {"first": first, "second": second})
    assert outcome.replacements == []
    assert outcome.counts("first") == {
        "suggestions": 3,
        Reason.OTHER_OCCURRENCE: 2,
        Reason.OTHER_SENTENCE: 1,
    }


def test_two_mlms_share_the_sentences() -> None:
    """The premise by one MLM, the hypothesis by the other: that is a replacement."""
    first = Answers(
        {(TWICE.text, 0): odds("boy man"), (TWICE.text, 1): odds("boy"), (ONCE.text, 0): {}}
    )
    second = Answers(
        {(TWICE.text, 0): odds("man"), (TWICE.text, 1): {}, (ONCE.text, 0): {"boy": 0.25}}
    )
    (boy,) = run(TWICE, ONCE, "girl", {"first": first, "second": second}).replacements
    assert (boy.replacement, boy.log_odds) == ("boy", 0.25)
    assert (boy.premise_mlms, boy.hypothesis_mlms) == (("first",), ("second",))


def test_both_mlms_are_named_where_both_validate() -> None:
    """Provenance lists every MLM that validates a sentence, sorted, and no other (D14)."""
    place = {(GIRL_P.text, 0): {"boy": 1.0}, (GIRL_H.text, 0): {"boy": 2.0}}
    only_p = Answers({(GIRL_P.text, 0): {"boy": 0.5}, (GIRL_H.text, 0): {"man": 1.0}})
    mlms = {"z": Answers(place), "a": only_p, "m": Answers(place)}
    (boy,) = run(GIRL_P, GIRL_H, "girl", mlms).replacements
    assert boy.premise_mlms == ("a", "m", "z")
    assert boy.hypothesis_mlms == ("m", "z")
    assert boy.log_odds == 0.5


def test_an_occurrence_outside_the_vocabulary_empties_the_mlm() -> None:
    """D3: if the word is not one token somewhere, that MLM validates nothing there."""
    partly = Answers({(TWICE.text, 0): odds("boy man"), (ONCE.text, 0): odds("boy")})
    outcome = run(TWICE, ONCE, "girl", {"partly": partly})
    assert outcome.replacements == []
    assert outcome.counts("partly") == {
        "suggestions": 3,
        Reason.OTHER_OCCURRENCE: 2,
        Reason.OTHER_SENTENCE: 1,
        NOT_IN_VOCABULARY: 1,
    }


def test_an_occurrence_of_another_class_keeps_its_class() -> None:
    """D2: "run" as noun and as verb; the word at each place has the class of that place."""
    p = sentence("They/PRP run/VBP a/DT run/NN ./.")
    h = sentence("A/DT run/NN is/VBZ long/JJ ./.")
    everywhere = odds("play race")
    bert = Answers({(p.text, 0): everywhere, (p.text, 1): everywhere, (h.text, 0): everywhere})
    outcome = run(p, h, "run", {"bert": bert})
    assert outcome.words == ["play", "race"]
    # A noun at both places of the premise is wrong at the first.
    assert run(p, h, "run", {"bert": bert}, {"race": "NN"}).words == ["play"]
    # So is a verb, though a noun is shared.
    assert run(p, h, "run", {"bert": bert}, {"play": "VB"}).words == ["race"]


# --- Casing (D6) ---


def test_a_capital_at_the_start_of_the_sentence() -> None:
    """The word "Girls" becomes "Boys", and the tagger sees it so."""
    p = sentence("Girls/NNS swim/VBP ./.")
    h = sentence("Girls/NNS swim/VBP fast/RB ./.")
    bert = Answers({(p.text, 0): odds("boys"), (h.text, 0): odds("boys")})
    outcome = run(p, h, "Girls", {"bert": bert})
    assert outcome.words == ["Boys"]
    assert outcome.asked == [(0, p.text, "Boys"), (1, h.text, "Boys")]


def test_the_problem_is_compared_in_lower_case() -> None:
    """The word "boys" in the problem rules out "Boys" at the start."""
    p = sentence("Girls/NNS like/VBP boys/NNS ./.")
    h = sentence("Girls/NNS swim/VBP ./.")
    bert = Answers({(p.text, 0): odds("boys men"), (h.text, 0): odds("boys men")})
    assert run(p, h, "Girls", {"bert": bert}).words == ["Men"]


# --- Options and ablations ---


def test_masked_queries_single_and_joint() -> None:
    """Single masking hides one occurrence at a time, joint masking all of them (D4)."""
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


def test_each_occurrence_is_looked_up_as_masked() -> None:
    """The candidates read are those of the masking that the settings say."""
    for masking, hidden in (("single", [1, 1, 1]), ("joint", [2, 2, 1])):
        bert = Answers()
        run(TWICE, ONCE, "girl", {"bert": bert}, masking=masking)
        assert [len(query.masked) for query in bert.asked] == hidden


def test_union_takes_either_sentence() -> None:
    """D13: what only one sentence validates counts, with that sentence's provenance."""
    bert = Answers({(GIRL_P.text, 0): {"boy": 1.0}, (GIRL_H.text, 0): {"man": 2.0}})
    boy, man = run(GIRL_P, GIRL_H, "girl", {"bert": bert}, combine="union").replacements
    assert (boy.replacement, boy.premise_mlms, boy.hypothesis_mlms) == ("boy", ("bert",), ())
    assert (man.replacement, man.premise_mlms, man.hypothesis_mlms) == ("man", (), ("bert",))
    assert (boy.log_odds, man.log_odds) == (1.0, 2.0)


def test_union_still_needs_the_class_in_that_sentence() -> None:
    """A class that fails where the word was validated rejects it, and only there."""
    bert = Answers({(GIRL_P.text, 0): odds("boy"), (GIRL_H.text, 0): odds("boy")})
    tags: dict[tuple[int, str], Tags] = {(0, "boy"): ("NN",), (1, "boy"): ("VB",)}
    outcome = run(GIRL_P, GIRL_H, "girl", {"bert": bert}, tags, combine="union")
    (boy,) = outcome.replacements
    assert (boy.premise_mlms, boy.hypothesis_mlms) == (("bert",), ())
    (row,) = outcome.funnel.rows()
    assert (row[KEPT], row[Reason.WORD_CLASS]) == (1, 1)
    assert run(GIRL_P, GIRL_H, "girl", {"bert": bert}, tags).replacements == []


def test_one_sentence_of_another_class_is_enough() -> None:
    """Equation 1: a class that fails in the hypothesis alone rejects the word, twice counted."""
    bert = Answers({(GIRL_P.text, 0): odds("boy"), (GIRL_H.text, 0): odds("boy")})
    for failing, reason in ((("VB",), Reason.WORD_CLASS), (None, Reason.TOKENIZATION)):
        for side in (0, 1):
            tags: dict[tuple[int, str], Tags] = {(1 - side, "boy"): ("NN",), (side, "boy"): failing}
            outcome = run(GIRL_P, GIRL_H, "girl", {"bert": bert}, tags)
            assert outcome.replacements == []
            (row,) = outcome.funnel.rows()
            assert (row[reason], row[KEPT], row["replacements"]) == (2, 0, 0)


def test_each_sentence_has_its_own_reason() -> None:
    """Rejected in both sentences for different reasons, a word is counted once under each."""
    bert = Answers({(GIRL_P.text, 0): odds("boy"), (GIRL_H.text, 0): odds("boy")})
    for first, second in ((("VB",), None), (None, ("VB",))):
        tags: dict[tuple[int, str], Tags] = {(0, "boy"): first, (1, "boy"): second}
        assert run(GIRL_P, GIRL_H, "girl", {"bert": bert}, tags).counts("bert") == {
            "suggestions": 2,
            Reason.TOKENIZATION: 1,
            Reason.WORD_CLASS: 1,
        }


def test_without_the_class_filter_tags_are_ignored() -> None:
    """D13: words of any class stay."""
    bert = Answers({(GIRL_P.text, 0): odds("run"), (GIRL_H.text, 0): odds("run")})
    assert run(GIRL_P, GIRL_H, "girl", {"bert": bert}, {"run": "VB"}).words == []
    kept = run(GIRL_P, GIRL_H, "girl", {"bert": bert}, {"run": "VB"}, class_filter=False)
    assert kept.words == ["run"]


def test_fine_tags() -> None:
    """With `tag_match = "fine"` "jumps" stays in the third person."""
    both = odds("swims swim")
    bert = Answers({(GIRL_P.text, 0): both, (GIRL_H.text, 0): both})
    tags = {"swim": "VBP", "swims": "VBZ"}
    assert run(GIRL_P, GIRL_H, "jumps", {"bert": bert}, tags).words == ["swim", "swims"]
    assert run(GIRL_P, GIRL_H, "jumps", {"bert": bert}, tags, tag_match="fine").words == ["swims"]


# --- Random problems against the definition ---

FILLERS = ["the/DT", "Dog/NN", "swims/VBZ", "cat/NN", "can/MD"]
SUGGESTIONS = ["man", "kid", "cat", "dog", "swims", "girl", "boy", "tree"]


@dataclass(frozen=True)
class Case:
    """One shared word "boy" in two sentences, and everything said about it."""

    sentences: tuple[Sentence, Sentence]
    word: SharedWord
    answers: dict[str, dict[tuple[str, int], dict[str, float]]]
    """MLM → (sentence, occurrence) → log-odds; a place left out is not in the vocabulary."""
    tags: dict[tuple[int, str], tuple[str, ...] | None]
    rejected: int


@st.composite
def random_cases(draw: st.DrawFn) -> Case:
    def one(side: str) -> Sentence:
        n = draw(st.integers(1, 3))
        boys = [f"boy/{draw(st.sampled_from(['NN', 'NNP', 'VB']))}" for _ in range(n - 1)]
        fillers = draw(st.lists(st.sampled_from(FILLERS), max_size=3))
        # The side's own first word keeps the sentences apart.
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
    """R_M(⟨p, h⟩, o) as the specification words it: word → provenance and log-odds."""
    problem = {token.text.lower() for s in case.sentences for token in s.tokens}
    sets: list[dict[str, tuple[list[str], float]]] = []
    for side, s in enumerate(case.sentences):
        positions = case.word.positions[side]
        originals = tuple(s.tokens[i].tag for i in positions)
        found: dict[str, tuple[list[str], float]] = {}
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
                found[word] = (having, least)
        sets.append(found)
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
    outcome = found(
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
    """Words, provenance and log-odds are those of the definition, sorted by word."""
    replacements, _ = found_in(case, config)
    assert as_dict(replacements) == by_definition(case, config)
    assert [r.replacement for r in replacements] == sorted(r.replacement for r in replacements)


@given(random_cases(), CONFIGS)
def test_the_funnel_adds_up(case: Case, config: Config) -> None:
    """Suggestions = Σ reasons + kept, per MLM, and they are as many as went in."""
    replacements, funnel = found_in(case, config)
    rows = {row["mlm"]: row for row in funnel.rows()}
    assert set(rows) == set(case.answers)
    in_premise, in_hypothesis = map(len, case.word.positions)
    for mlm, places in case.answers.items():
        row = rows[mlm]
        went_in = sum(len(found) + case.rejected for found in places.values())
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


@given(random_cases(), CONFIGS)
def test_fewer_mlms_never_find_more(case: Case, config: Config) -> None:
    """Taking an MLM away leaves a subset of the replacements."""
    everything = set(as_dict(found_in(case, config)[0]))
    for mlm in case.answers:
        rest = {m: places for m, places in case.answers.items() if m != mlm}
        fewer = Case(case.sentences, case.word, rest, case.tags, case.rejected)
        if rest:
            assert set(as_dict(found_in(fewer, config)[0])) <= everything


@given(random_cases())
def test_stricter_settings_never_find_more(case: Case) -> None:
    """Fine ⊆ coarse ⊆ no class filter, and ∩ ⊆ ∪, one step at a time."""

    def found(**settings: Any) -> set[str]:
        return set(as_dict(found_in(case, Config(**settings))[0]))

    for combine in ("intersection", "union"):
        fine = found(combine=combine, tag_match="fine")
        coarse = found(combine=combine)
        assert fine <= coarse <= found(combine=combine, class_filter=False)
    assert found() <= found(combine="union")


# --- The funnel's own arithmetic ---


def test_funnel_rows_are_sorted_and_complete() -> None:
    """One row per MLM and class, every column there, suggestions the sum of the ends."""
    funnel = Funnel()
    funnel.add("b", "noun", {KEPT: 2, Reason.IN_PROBLEM: 1, "replacements": 1})
    funnel.add("a", "verb", {NOT_IN_VOCABULARY: 3})
    funnel.add("b", "noun", {KEPT: 1})
    first, second = funnel.rows()
    assert (first["mlm"], first["word_class"], first["suggestions"]) == ("a", "verb", 0)
    assert first[NOT_IN_VOCABULARY] == 3
    assert (second["suggestions"], second[KEPT], second["replacements"]) == (4, 3, 1)
    assert list(first) == [
        "mlm",
        "word_class",
        "suggestions",
        *SUGGESTION_REASONS,
        KEPT,
        "replacements",
        NOT_IN_VOCABULARY,
    ]


def test_the_funnel_as_text() -> None:
    """Counts with thousands separators, shares of the column's suggestions."""
    funnel = Funnel()
    funnel.add("bert", "noun", {KEPT: 1_500, Reason.IN_PROBLEM: 4_500, "replacements": 700})
    text = render_funnel(funnel.rows())
    cells = {line.split("│")[1].strip(): line.split("│")[2].strip()
             for line in text.splitlines() if line.startswith("│")}  # fmt: skip
    assert cells["suggestions"] == "6,000"
    assert cells["kept"] == "1,500 25.0%"
    assert cells["in problem"] == "4,500 75.0%"
    assert cells["replacements"] == "700"
    assert cells["other sentence"] == "0  0.0%"


@pytest.mark.parametrize("key", SUGGESTION_REASONS)
def test_every_reason_is_counted(key: str) -> None:
    """No reason falls out of the sum."""
    funnel = Funnel()
    funnel.add("m", "noun", {key: 5})
    (row,) = funnel.rows()
    assert (row["suggestions"], row[key]) == (5, 5)
