"""Combinations by rank, keyed orders, and walks through them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, islice, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from generation.variants.combinations import Combinations, Walk, Walks, shuffled


def listed(sizes: Sequence[int], k: int) -> list[tuple[tuple[int, int], ...]]:
    """All of them, by loops."""
    return [
        tuple(zip(sets, members, strict=True))
        for sets in combinations(range(len(sizes)), k)
        for members in product(*(range(sizes[number]) for number in sets))
    ]


@given(st.lists(st.integers(0, 4), max_size=5), st.integers(1, 4))
def test_ranks_are_all_combinations(sizes: list[int], k: int) -> None:
    """In order, each rank another one."""
    found = Combinations(sizes, k)
    assert found.total == len(listed(sizes, k))
    assert [found.at(rank) for rank in range(found.total)] == sorted(listed(sizes, k))


def test_more_than_can_be_listed() -> None:
    """30 words with 50 replacements each, 6 at a time: by their rank, at once."""
    found = Combinations([50] * 30, 6)
    assert found.total == math.comb(30, 6) * 50**6
    assert found.at(0) == tuple((n, 0) for n in range(6))
    assert found.at(found.total - 1) == tuple((n, 49) for n in range(24, 30))


@given(st.integers(0, 50), st.text(max_size=5))
def test_shuffled_has_each_number_once(n: int, key: str) -> None:
    """The same for the same key, and the beginning is that of the whole."""
    order = list(shuffled(n, key))
    assert sorted(order) == list(range(n))
    assert list(islice(shuffled(n, key), 7)) == order[:7]


def test_every_order_is_as_likely() -> None:
    """24 orders of four numbers under 4,800 keys, 200 times each but for chance."""
    counts = Counter(tuple(shuffled(4, f"key {n}")) for n in range(4800))
    assert len(counts) == 24
    assert chisquare(list(counts.values())).pvalue > 0.001


def test_the_first_of_many_are_spread_out() -> None:
    """Of numbers that no list could hold, each tenth is as likely as every other."""
    n = 10**40
    found = [number for key in range(500) for number in islice(shuffled(n, str(key)), 4)]
    assert len(set(found)) == 2000
    counts = Counter(number * 10 // n for number in found)
    assert chisquare([counts[tenth] for tenth in range(10)]).pvalue > 0.001


def walked(total: int, wanted: int, good: set[int], key: str) -> list[int]:
    walk = Walk(0, shuffled(total, key), wanted)
    Walks(lambda asked: [rank in good for _, rank in asked]).finish([walk])
    return walk.found


@given(st.integers(0, 30), st.integers(1, 10), st.sets(st.integers(0, 29)), st.text(max_size=3))
def test_a_walk_takes_the_first_good_ones(
    total: int, wanted: int, good: set[int], key: str
) -> None:
    """As many as are wanted, in the order of the walk, or all there are."""
    order = [rank for rank in shuffled(total, key) if rank in good]
    assert walked(total, wanted, good, key) == order[:wanted]


def test_walks_draw_every_set_alike() -> None:
    """Two of four good ones among nine: six sets, each as likely as every other."""
    good = {0, 3, 4, 8}
    counts = Counter(frozenset(walked(9, 2, good, f"key {n}")) for n in range(3000))
    assert set(counts) == {frozenset(pair) for pair in combinations(good, 2)}
    assert chisquare(list(counts.values())).pvalue > 0.001


def test_walks_judge_together_and_once() -> None:
    """What two walks meet is judged for both; later walks know it too."""
    calls: list[list[tuple[int, int]]] = []

    def judge(asked: Sequence[tuple[int, int]]) -> list[bool]:
        calls.append(list(asked))
        return [rank != 2 for _, rank in asked]

    walks = Walks(judge)
    first, second = Walk(7, iter([0, 1, 2, 3]), 3), Walk(7, iter([2, 1, 0]), 3)
    walks.finish([first, second])
    assert (first.found, second.found) == ([0, 1, 3], [1, 0])
    assert calls == [[(7, 0), (7, 1), (7, 2)], [(7, 3)]]
    other = Walk(8, iter([0]), 1)
    walks.finish([Walk(7, iter([1, 3]), 2), other])
    assert (calls[2:], other.found) == ([[(8, 0)]], [0])


@pytest.mark.parametrize("wanted", [1, 5])
def test_a_walk_does_not_go_further_than_it_has_to(wanted: int) -> None:
    """Where all are good, as many are looked at as are wanted, of however many there are."""
    seen: list[tuple[int, int]] = []

    def judge(asked: Sequence[tuple[int, int]]) -> list[bool]:
        seen.extend(asked)
        return [True] * len(asked)

    Walks(judge).finish([Walk(0, shuffled(10**30, "key"), wanted)])
    assert len(seen) == wanted
