from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.paraphrasing import Budget, FakeJudge, Interrupted, random_verdict, rng_of

from generation.paraphrases import answer_store as module
from generation.paraphrases.answer_store import ask_in_parts, ask_once
from merge_metric.models.pair_model import Pair


def pairs_of(count: int) -> list[Pair]:
    return [(f"Premise {n}.", f"Hypothesis {n * n}.") for n in range(count)]


def asked(
    folder: Path, judge: FakeJudge, pairs: Sequence[Pair], identity: Any = "m"
) -> list[list[float]]:
    found = ask_in_parts(lambda: judge, pairs, identity=identity, folder=folder, what="test")
    return found.tolist()


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART", 4)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("calls", range(6))
def test_going_on_after_an_interruption(tmp_path: Path, calls: int) -> None:
    pairs, judge = pairs_of(10), FakeJudge(random_verdict(1))
    judge.budget = Budget(calls)
    if calls < 5:  # 4, 4 and 2 pairs are 2, 2 and 1 batches
        with pytest.raises(Interrupted):
            asked(tmp_path, judge, pairs)
    judge.budget = Budget()
    assert asked(tmp_path, judge, pairs) == [list(judge.verdict(*pair)) for pair in pairs]
    twice = [pair for pair, times in judge.asked.items() if times == 2]
    assert len(twice) == {1: 3, 3: 3}.get(calls, 0)
    assert set(judge.asked) == set(pairs)


def test_no_pair_is_asked_twice() -> None:
    """Compare with the obvious way: a list of all pairs ever asked, over rounds with repeats."""
    rng, names = rng_of("verdicts"), ["A.", "B.", "C."]
    log: list[Pair] = []

    def ask_model(pairs: list[Pair]) -> np.ndarray:
        assert pairs
        log.extend(pairs)
        return np.array([[len(p), len(h), hash((p, h)) % 7] for p, h in pairs], np.float64)

    known = {("P.", "A."): np.array([1.0, 2.0, 3.0])}
    for number in range(20):
        # A sentence that is no hypothesis of the run has only one round.
        texts = [*names, *(f"Text {number}.{i}" for i in range(3))]
        pairs = [(rng.choice(names), rng.choice(texts)) for _ in range(8)]
        pairs += [(h, p) for p, h in pairs] + [("P.", "A.")]
        rows = ask_once(ask_model, pairs, known)
        assert rows.tolist() == [
            [1.0, 2.0, 3.0] if pair == ("P.", "A.") else
            [len(pair[0]), len(pair[1]), hash(pair) % 7] for pair in pairs
        ]  # fmt: skip
    assert len(log) == len(set(log))
    assert ("P.", "A.") not in log


@dataclass
class Broken:
    """Gives changed answers, made by a function from good ones."""

    change: Callable[[list[int]], tuple[list[int], Any]]

    def describe(self) -> dict[str, Any]:
        return {"name": "broken", "revision": ""}

    def probabilities(self, pairs: Sequence[Pair]) -> Iterator[tuple[list[int], Any]]:
        yield self.change(list(range(len(pairs))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda places: (places, np.zeros((2, 3))),
         r"expected label probabilities of shape \(3, 3\), got \(2, 3\)"),
        (lambda places: (places[:2], np.zeros((2, 3))),
         "expected an answer of the NLI model for each of 3 pairs, got 2"),
        (lambda places: (places, np.array([[1, 0, 0], [0.5, np.nan, 0.5], [1, 0, 0]])),
         r"expected label probabilities, got \[0.5, nan, 0.5\] for the premise "
         r"'Premise 1.' and hypothesis 'Hypothesis 1.'"),
        (lambda places: (places, np.full((3, 3), np.inf)), r"got \[inf, inf, inf\] for the"),
    ],
    ids=["shape", "missing", "nan", "infinite"],
)  # fmt: skip
def test_something_else_than_probabilities(change: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        ask_in_parts(lambda: Broken(change), pairs_of(3), identity=1, folder=tmp_path, what="test")
    assert list(tmp_path.rglob("*.parquet")) == []
