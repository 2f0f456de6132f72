"""Group beam search against the slow way, over models that are tables."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers.slow_beams import Tokens, slow_search

from generation.paraphrases.config import Decoding
from generation.paraphrases.text_generator import Beam, Following, Ints, search

VOCABULARY = 30
END, OTHER_END, SPECIAL = 3, 17, 8
ENDS, NEVER = (END, OTHER_END), (END, OTHER_END, SPECIAL)


@cache
def log_probs(request: int, tokens: Tokens) -> tuple[float, ...]:
    """A random distribution for every text of every request, in which ends are not rare."""
    rng = random.Random(repr((request, tokens)))
    logits = [rng.gauss(0, 2) for _ in range(VOCABULARY)]
    logits[END] += 1
    normaliser = math.log(sum(map(math.exp, logits)))
    return tuple(logit - normaliser for logit in logits)


class Table:
    """A `NextTokens` of such distributions, which counts the rows it is asked for."""

    vocabulary = VOCABULARY

    def __init__(self, requests: Sequence[int]) -> None:
        """Begin with nothing but the requests' numbers."""
        self._rows: list[tuple[int, Tokens]] = [(request, ()) for request in requests]
        self.asked: list[int] = []

    def start(self, k: int) -> Following:
        self.asked.append(len(self._rows))
        p = np.array([log_probs(*row) for row in self._rows])
        ends = p[:, ENDS]
        texts = p.copy()
        texts[:, NEVER] = -np.inf
        best = np.argsort(-texts, axis=1)[:, : min(k, VOCABULARY - len(NEVER))]
        return Following(
            best,
            np.take_along_axis(texts, best, 1),
            np.array(ENDS)[ends.argmax(1)],
            ends.max(1),
        )

    def advance(self, rows: Ints, tokens: Ints, k: int) -> Following:
        self._rows = [
            (self._rows[row][0], (*self._rows[row][1], int(token)))
            for row, token in zip(rows, tokens, strict=True)
        ]
        return self.start(k)


def slow(request: int, decoding: Decoding, earlier: Sequence[Sequence[int]] = ()) -> list[Beam]:
    return slow_search(lambda tokens: log_probs(request, tokens), ENDS, NEVER, decoding, earlier)


def same(found: Sequence[Beam], expected: Sequence[Beam]) -> bool:
    assert [beam.tokens for beam in found] == [beam.tokens for beam in expected]
    assert [beam.finished for beam in found] == [beam.finished for beam in expected]
    return [beam.score for beam in found] == pytest.approx([beam.score for beam in expected])


SETTINGS: list[dict[str, Any]] = [
    {"num_beams": 12, "num_beam_groups": 4, "diversity_penalty": 1.0, "sibling_penalty": 0.5},
    {"num_beams": 12, "num_beam_groups": 12, "diversity_penalty": 0.3, "sibling_penalty": 0.5},
    {"num_beams": 6, "num_beam_groups": 1, "diversity_penalty": 1.0, "sibling_penalty": 0.7},
    {"num_beams": 6, "num_beam_groups": 2, "diversity_penalty": 0.0, "sibling_penalty": 0.0},
    {"num_beams": 8, "num_beam_groups": 2, "diversity_penalty": 5.0, "sibling_penalty": 0.0},
    {"num_beams": 1, "num_beam_groups": 1, "diversity_penalty": 0.0, "sibling_penalty": 0.0},
]


@pytest.mark.parametrize("most", [1, 4, 12])
@pytest.mark.parametrize("settings", SETTINGS)
def test_the_search_is_the_slow_one(settings: dict[str, Any], most: int) -> None:
    """Requests of one batch, with and without earlier texts, each as if it were alone."""
    decoding = Decoding(**settings, max_new_tokens=most)
    rng = random.Random(most)
    earlier = [
        [[rng.randrange(VOCABULARY) for _ in range(rng.randrange(7))] for _ in range(n)]
        for n in (0, 3, 25, 0, 1)
    ]
    requests = range(most, most + len(earlier))
    found = search(Table(requests), decoding, earlier)
    assert len(found) == len(earlier)
    for request, texts, beams in zip(requests, earlier, found, strict=True):
        assert len(beams) == decoding.num_beams
        assert same(beams, slow(request, decoding, texts))


def test_something_ends_and_something_is_cut() -> None:
    """The tables above bring both about."""
    decoding = Decoding(**SETTINGS[0], max_new_tokens=4)
    ended = [beam.finished for beams in search(Table(range(20)), decoding, [()] * 20)
             for beam in beams]  # fmt: skip
    assert 0.2 < sum(ended) / len(ended) < 0.9


def test_what_is_done_is_not_run() -> None:
    """Rows are the beams of groups that still search, and at first one per request."""
    decoding = Decoding(**SETTINGS[0], max_new_tokens=40)
    table = Table(range(6))
    search(table, decoding, [()] * 6)
    assert table.asked[0] == 6
    assert table.asked[1] <= 6 * 12
    assert table.asked[1:] == sorted(table.asked[1:], reverse=True)
    assert table.asked[-1] < 6 * 12 / 4
    assert len(table.asked) < 40
