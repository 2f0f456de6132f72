"""Equation 1 on whole problems (D2–D8, D14), eligibility (D9) and the subsamples (D10)."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import shake_128
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.one_problem import Answers, odds, outcome_of, run
from helpers.replacement_tables import Replacement, Variant, replacements_in, table_of, variants_in
from helpers.tagged_texts import sentence
from hypothesis import given
from hypothesis import strategies as st

from generation.config import Config
from generation.problems.substitutions import Place
from generation.problems.tagging import coarse_class
from generation.records import Exclusion, MaskedQuery, Scores, Sentence, SharedWord
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
from generation.variants.validation import CHEAP_REASONS, draw, of_pairs, survivors_of
from generation.variants.validation import eligible as eligible_columns
from merge_dataset.provenance import DRAW
from merge_dataset.settings import from_mapping

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
    """Condition (iii), D8: the tags or classes in all places stay, and so do the tokens."""
    if tags and config.tag_match == "coarse":
        tags, originals = tuple(map(coarse_class, tags)), tuple(map(coarse_class, originals))
    return not config.class_filter or tags == originals


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


def replacement(seed_id: str, word_class: str, word: str, text: str) -> Replacement:
    source = seed_id.partition(":")[0]
    return Replacement(
        seed_id=seed_id, source=source, word=word, word_class=word_class, replacement=text
    )


def several(seed_id: str, word_class: str, word: str, count: int) -> list[Replacement]:
    return [replacement(seed_id, word_class, word, f"{word}{n:03}") for n in range(count)]


def drawn(
    replacements: Iterable[Replacement], *, subsamples: int = 10, size: int = 20, rng_seed: int = 0
) -> list[Variant]:
    config = Config(subsamples=subsamples, variants_per_class=size, rng_seed=rng_seed)
    return variants_in(draw(table_of(replacements), config))


def eligible(
    replacements: Iterable[Replacement], *, minimum: int, scope: str
) -> tuple[list[Replacement], list[Exclusion]]:
    config = from_mapping(Config, {"min_replacements": minimum, "min_replacements_scope": scope})
    kept, excluded = eligible_columns(table_of(replacements), config)
    return replacements_in(kept), excluded


def members(variants: Iterable[Variant], subsample: int) -> list[str]:
    return [v.replacement.replacement for v in variants if subsample in v.subsamples]


PROBLEM = [
    *several("s:1", "noun", "boy", 12),
    *several("s:1", "noun", "dog", 8),
    *several("s:1", "verb", "runs", 19),
    *several("s:2", "noun", "boy", 19),
    *several("s:2", "verb", "runs", 1),
    *several("t:3", "adjective", "big", 25),
]
"""Seed 1: nouns 12 + 8 = 20, verb 19. Seed 2: 19 + 1 = 20 in all. Seed 3: one word, 25."""


def kept_by(scope: str, minimum: int = 20) -> tuple[Counter[tuple[str, str]], list[Exclusion]]:
    kept, excluded = eligible(PROBLEM, minimum=minimum, scope=scope)
    assert [r for r in PROBLEM if r in kept] == kept
    return Counter((r.seed_id, r.word) for r in kept), excluded


def excluded(
    seed_id: str, word_class: str | None, word: str | None, replacements: int
) -> Exclusion:
    named = {"seed_id": seed_id, "source": seed_id[0], "word": word, "word_class": word_class}
    made = {"reason": Reason.TOO_FEW, "replacements": replacements}
    return {name: value for name, value in named.items() if value is not None} | made


def test_scopes() -> None:
    """At least 20 for the words of a class, for all classes of a problem, or for each word."""
    kept, left_out = kept_by("class")
    assert kept == {("s:1", "boy"): 12, ("s:1", "dog"): 8, ("t:3", "big"): 25}
    assert left_out == [
        excluded("s:1", "verb", None, 19),
        excluded("s:2", "noun", None, 19),
        excluded("s:2", "verb", None, 1),
    ]
    kept, left_out = kept_by("problem")
    assert sum(kept.values()) == len(PROBLEM)
    assert left_out == []
    kept, left_out = kept_by("problem", 25)
    assert set(kept) == {("s:1", "boy"), ("s:1", "dog"), ("s:1", "runs"), ("t:3", "big")}
    assert left_out == [excluded("s:2", None, None, 20)]
    kept, left_out = kept_by("word")
    assert kept == {("t:3", "big"): 25}
    assert left_out == [
        excluded("s:1", "noun", "boy", 12),
        excluded("s:1", "noun", "dog", 8),
        excluded("s:1", "verb", "runs", 19),
        excluded("s:2", "noun", "boy", 19),
        excluded("s:2", "verb", "runs", 1),
    ]
    assert kept_by("word", 12)[0] == {
        ("s:1", "boy"): 12, ("s:1", "runs"): 19, ("s:2", "boy"): 19, ("t:3", "big"): 25,
    }  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from("12"), st.sampled_from(["noun", "verb"]),
                       st.sampled_from("ab"), st.integers(0, 5)), unique=True, max_size=30),
    st.integers(1, 6),
    st.sampled_from(["class", "problem", "word"]),
)  # fmt: skip
def test_every_replacement_is_kept_or_accounted_for(
    keys: list[tuple[str, str, str, int]], minimum: int, scope: str
) -> None:
    given_ = [replacement(f"s:{s}", c, w, f"{w}{n}") for s, c, w, n in keys]
    kept, left_out = eligible(given_, minimum=minimum, scope=scope)
    assert len(kept) + sum(e["replacements"] for e in left_out) == len(given_)
    assert all(0 < e["replacements"] < minimum for e in left_out)
    stricter, _ = eligible(given_, minimum=minimum + 1, scope=scope)
    assert all(r in kept for r in stricter)
    coarser = {"word": "class", "class": "problem", "problem": "problem"}[scope]
    assert all(r in eligible(given_, minimum=minimum, scope=coarser)[0] for r in kept)


def test_the_pairs_of_another_build() -> None:
    """An ablation keeps (seed, class) pairs, whatever it finds for them or for others (D13)."""
    kept, _ = eligible_columns(table_of(PROBLEM), Config())
    pairs = kept.group_by(["seed_id", "word_class"]).aggregate([])
    assert sorted(map(tuple, zip(*pairs.to_pydict().values(), strict=True))) == [
        ("s:1", "noun"),
        ("t:3", "adjective"),
    ]
    others = [
        *several("s:2", "noun", "boy", 30),
        *several("s:1", "verb", "runs", 30),
        *several("s:1", "noun", "dog", 1),
    ]
    assert replacements_in(of_pairs(table_of(others), pairs)) == others[-1:]
    assert replacements_in(of_pairs(table_of([]), pairs)) == []


POOLS = st.lists(
    st.tuples(st.sampled_from("123"), st.sampled_from(["noun", "verb"]), st.integers(0, 40)),
    unique=True,
    max_size=40,
)


@given(POOLS, st.randoms(), st.integers(-5, 5))
def test_a_draw_depends_on_its_group_alone(
    keys: list[tuple[str, str, int]], rng: random.Random, rng_seed: int
) -> None:
    """Neither the input order nor other seeds and classes change a draw, nor do shards."""
    pool = [replacement(f"s:{s}", c, "boy", f"boy{n:02}") for s, c, n in keys]
    whole = drawn(pool, subsamples=3, size=4, rng_seed=rng_seed)
    shuffled = list(pool)
    rng.shuffle(shuffled)
    assert drawn(shuffled, subsamples=3, size=4, rng_seed=rng_seed) == whole
    groups = sorted({(r.seed_id, r.word_class) for r in pool})
    pieces = [
        v
        for group in groups
        for v in drawn(
            [r for r in pool if (r.seed_id, r.word_class) == group],
            subsamples=3,
            size=4,
            rng_seed=rng_seed,
        )
    ]
    assert pieces == whole


def slowly_drawn(pool: list[Replacement], subsample: int, size: int, rng_seed: int) -> set[str]:
    """The replacements of one seed and class with the smallest hashes."""

    def key(of: Replacement) -> bytes:
        text = f"{rng_seed}\0{of.seed_id}\0{of.word_class}\0{of.word}\0{of.replacement}"
        return shake_128(text.encode()).digest(8 * (subsample + 1))[-8:]

    return {of.replacement for of in sorted(pool, key=key)[:size]}


def test_a_small_draw_stays_as_it_is() -> None:
    """Golden values: every version draws published subsamples alike, or has a new draw number."""
    variants = drawn(several("snli:1", "noun", "boy", 6), subsamples=3, size=2, rng_seed=0)
    assert {v.replacement.replacement: v.subsamples for v in variants} == {
        "boy000": (1,), "boy002": (0, 2), "boy003": (2,), "boy004": (1,), "boy005": (0,),
    }  # fmt: skip
    pool = [*several("s:1", "noun", "boy", 30), *several("s:1", "noun", "dog", 15)]
    others = [*several("s:1", "verb", "boy", 9), *several("s:0", "noun", "boy", 9)]
    variants = drawn([*pool, *others], subsamples=4, size=6, rng_seed=7)
    mine = [v for v in variants if v.replacement in pool]
    for subsample in range(4):
        assert set(members(mine, subsample)) == slowly_drawn(pool, subsample, 6, 7)
    names = [f"word{number}" for number in range(30)]
    rows = pa.table({
        "seed_id": ["snli:1"] * 30, "word_class": ["noun"] * 30, "word": ["dog"] * 30,
        "replacement": names, "source": ["snli"] * 30,
    })  # fmt: skip
    made = draw(rows, Config(subsamples=2, variants_per_class=5))
    assert DRAW == 2
    result = zip(made["replacement"].to_pylist(), made["subsamples"].to_pylist(), strict=True)
    assert {int(name.removeprefix("word")): numbers for name, numbers in result} == {
        15: [0, 1], 16: [0], 21: [1], 24: [1], 27: [0], 4: [0, 1], 5: [0, 1],
    }  # fmt: skip
