"""Sets of words as columns, against sets of words, one by one (eq. 1, D7)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from helpers import set_algebra
from helpers.set_algebra import Evidence, Odds
from hypothesis import given
from hypothesis import strategies as st

from generation.records import pairs, split
from generation.variants.set_algebra import (
    Suggested,
    over_mlms,
    over_occurrences,
    over_sentences,
)

WORDS = st.sampled_from(["girl", "man", "dog", "kid", "cat"])
ODDS = st.dictionaries(WORDS, st.integers(-9, 9).map(lambda n: n / 2), max_size=5)

NUMBERS = {word: number for number, word in enumerate(["girl", "man", "dog", "kid", "cat"])}
SIDES = st.lists(st.lists(ODDS, min_size=1, max_size=4), min_size=1, max_size=4)
"""Sides, each with the sets of its occurrences."""


def members(sets: Sequence[tuple[int, Odds]]) -> tuple[Any, Any]:
    """Convert (side, set) to keys and log-odds, with a row per member."""
    rows = [(side, NUMBERS[word], odds[word]) for side, odds in sets for word in odds]
    side, word, log_odds = zip(*rows, strict=True) if rows else ((), (), ())
    return (
        pairs(np.array(side, np.int64), np.array(word, np.int64)),
        np.array(log_odds, np.float32),
    )


def by_side(keys: Any, values: Sequence[Any]) -> dict[int, dict[str, Any]]:
    """Convert columns to side → word → value; sides without words are left out."""
    found: dict[int, dict[str, Any]] = {}
    names = list(NUMBERS)
    for side, word, value in zip(*(c.tolist() for c in split(keys)), values, strict=True):
        assert names[word] not in found.setdefault(side, {})
        found[side][names[word]] = value
    return found


def intersected(sides: Sequence[Sequence[Odds]]) -> dict[int, dict[str, float]]:
    """Apply `over_occurrences` to several sides at once."""
    rows = [(side, odds) for side, sets in enumerate(sides) for odds in sets]
    keys, log_odds = over_occurrences(
        *members(rows), np.array([len(sets) for sets in sides], np.int64)
    )
    assert (np.diff(keys) > 0).all()
    return by_side(keys, log_odds.tolist())


def without_empty(sets: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {side: words for side, words in sets.items() if words}


@given(SIDES)
def test_over_occurrences_is_the_intersection(sides: list[list[Odds]]) -> None:
    expected = {side: set_algebra.over_occurrences(sets) for side, sets in enumerate(sides)}
    assert intersected(sides) == without_empty(expected)


@given(st.lists(ODDS, min_size=1, max_size=4), ODDS)
def test_another_occurrence_never_adds_a_word(sets: list[Odds], another: Odds) -> None:
    before = intersected([sets]).get(0, {})
    after = intersected([[*sets, another]]).get(0, {})
    assert after.keys() <= before.keys()
    assert all(after[word] <= before[word] for word in after)


@given(st.lists(ODDS, min_size=1, max_size=4), st.randoms())
def test_the_order_of_occurrences_does_not_matter(sets: list[Odds], rng: Any) -> None:
    shuffled = list(sets)
    rng.shuffle(shuffled)
    assert intersected([shuffled]) == intersected([sets])


def sorted_members(sides: Sequence[Odds]) -> tuple[Any, Any]:
    keys, log_odds = members(list(enumerate(sides)))
    order = np.argsort(keys)
    return keys[order], log_odds[order]


def evidence(found: Suggested, mlms: Sequence[str]) -> dict[int, dict[str, Evidence]]:
    """Convert columns to side → word → its masked LMs and log-odds."""
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
    """Apply `over_mlms`: masked LM → a set per side, to the union per side."""
    mlms = sorted(sets)
    return evidence(over_mlms([sorted_members(sets[mlm]) for mlm in mlms]), mlms)


BY_MLM = st.dictionaries(
    st.sampled_from("abcd"), st.lists(ODDS, min_size=2, max_size=2), min_size=1, max_size=4
)


@given(BY_MLM)
def test_over_mlms_is_the_union_with_exact_provenance(sets: dict[str, list[Odds]]) -> None:
    """The union has every word of any set, all its masked LMs and the least log-odds (D14)."""
    expected: dict[int, dict[str, Any]] = {
        side: dict(set_algebra.over_mlms({mlm: odds[side] for mlm, odds in sets.items()}))
        for side in (0, 1)
    }
    assert united(sets) == without_empty(expected)


@given(BY_MLM, ODDS)
def test_another_mlm_never_removes_a_word(sets: dict[str, list[Odds]], another: Odds) -> None:
    before = united(sets).get(0, {})
    after = united({**sets, "z": [another, {}]}).get(0, {})
    assert after.keys() == before.keys() | another.keys()
    for word, found in before.items():
        assert set(found.mlms) <= set(after[word].mlms)
        assert ("z" in after[word].mlms) == (word in another)


def combined(sides: Sequence[Odds], combine: str) -> dict[int, list[str]]:
    """Apply `over_sentences`: two sets per shared word, to shared word → words in order."""
    keys, _ = sorted_members(sides)
    numbers = np.arange(len(sides))
    found, places = over_sentences(keys, numbers // 2, numbers % 2, texts=2, combine=combine)
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
    """Equation 1 and its ablation: the intersection is in the union, and p and h are symmetric."""
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
