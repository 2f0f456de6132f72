"""The filters without a tagger, against a slow loop, and casing, letters and numbers (D4–D6)."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.config import Config
from generation.records import Scores
from generation.suggestions.vocabulary import ATTACHED, OTHER, WHOLE, Vocabulary
from generation.variants.equation import Lexicon, Survivors, match_case
from generation.variants.perturbations import scramble
from generation.variants.reasons import Reason
from generation.variants.work import CHEAP_REASONS, survivors_of


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
