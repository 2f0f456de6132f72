from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.paraphrasing import Budget, FakeJudge, Interrupted, random_verdict

from generation.paraphrases import answer_store as module
from generation.paraphrases.model_answers import ask_in_parts
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
