from itertools import permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from merge_metric.frame.plausibility import AnswerTally, tell_of_answers, tell_of_model

NLI = ("entailment", "neutral", "contradiction")


def told(
    gold: NDArray[np.int64],
    predicted: NDArray[np.int64],
    caplog: pytest.LogCaptureFixture,
    metadata: dict[str, Any] | None = None,
    *,
    labels: tuple[str, ...] = NLI,
    n_variants: int = 0,
) -> list[str]:
    """Return warnings for answers to seeds, and to `n_variants` variants of the first seed."""
    is_seed = np.arange(len(gold)) < len(gold) - n_variants
    tally = AnswerTally(labels, gold.astype(np.int8), predicted.astype(np.int8), is_seed)
    caplog.clear()
    tell_of_answers("m", tally, metadata or {})
    return list(caplog.messages)


def random_gold(n: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, 3, n)


def test_answers_at_chance(caplog: pytest.LogCaptureFixture) -> None:
    gold = random_gold(300)
    guessed = random_gold(300, 1)
    right = int((gold == guessed).sum())
    expected = 100 * float((np.bincount(gold) * np.bincount(guessed)).sum()) / 300**2
    assert told(gold, guessed, caplog) == [
        f"m: warning: no better than chance on seeds: right on {right / 3:.0f} % of 300, where "
        f"guessing is right on {expected:.0f} %; if the model is better than that, its labels may "
        "stand in another order, its answers in another order than the problems, or they are for "
        "another dataset"
    ]
    half = np.where(np.arange(300) % 4 == 0, gold, guessed)
    assert (half == gold).mean() == pytest.approx(0.5, abs=0.03)
    assert told(gold, half, caplog) == []
    few = slice(0, 99)
    assert told(gold[few], guessed[few], caplog) == []
    # 300 rows, of which 201 are variants.
    assert told(gold, guessed, caplog, n_variants=201) == []


@pytest.mark.parametrize("shift", [1, -1])
def test_shifted_rows_whose_labels_take_turns(shift: int, caplog: pytest.LogCaptureFixture) -> None:
    gold = np.delete(np.arange(600) % 3, np.s_[::5])
    text = np.roll(gold, shift)
    orders = [np.array(order) for order in permutations(range(3))]
    assert max(float((order[text] == gold).mean()) for order in orders) > 0.5
    (message,) = told(gold, text, caplog)
    where = f"1 row {'below' if shift > 0 else 'above'} it"
    assert f"would be on 100 % if each row had the prediction that stands {where}" in message


def test_labels_that_are_never_said(caplog: pytest.LogCaptureFixture) -> None:
    gold = np.repeat([0, 1, 2], [60, 30, 10])
    text = np.where(gold == 2, 0, gold)
    (message,) = told(gold, text, caplog)
    assert message == (
        "m: warning: never says contradiction (10% of the problems): is it a model of fewer "
        "labels, or are its classes taken for others?"
    )
    assert told(gold[:-1], text[:-1], caplog) == []
    rarer = np.repeat([0, 1, 2], [60, 31, 9])
    assert told(rarer, np.where(rarer == 2, 0, rarer), caplog) == []
    always = np.zeros(100, int)
    (message,) = told(gold, always, caplog)
    assert "never says neutral (30% of the problems), contradiction (10%" in message
    assert told(gold, always, caplog, {"kind": "baseline", "name": "majority"}) == []
    assert len(told(gold, always, caplog, {"kind": "baseline", "name": "hypothesis-only"})) == 1


def test_a_letter_that_is_taken_too_often(caplog: pytest.LogCaptureFixture) -> None:
    gold = np.arange(300) % 3
    often = np.where(np.arange(300) < 150, 0, gold)
    by_letters = {"letter_A": 200, "letter_B": 50, "letter_C": 50}
    (message,) = told(gold, often, caplog, by_letters)
    assert message == (
        "m: warning: takes the letter of entailment in 66.7% of its answers, where 33.3% of the "
        "gold labels are that: is it the letter that it likes? Run it with `shuffle_letters`, too"
    )
    assert told(gold, often, caplog) == []
    assert told(gold, often, caplog, by_letters | {"letters_seed": 0}) == []
    less = np.where(np.arange(300) < 80, 0, gold)
    assert told(gold, less, caplog, by_letters) == []


def test_orders_of_labels(caplog: pytest.LogCaptureFixture) -> None:
    gold = np.arange(120) % 3
    turned = (gold + 1) % 3
    order = {"label_order": ["contradiction", "entailment", "neutral"]}
    start = "m: warning: right on 0 % of 120 seeds, and would be on 100 % under another order of "
    (message,) = told(gold, turned, caplog, order)
    assert message == f"{start}labels; its classes are taken for c,e,n: try `label_order` n,c,e"
    text = "it seems to say entailment for contradiction, "
    for metadata in ({}, {"label_order": "c,e,n"}):
        (message,) = told(gold, turned, caplog, metadata)
        assert message.startswith(f"{start}labels; {text}")
    named = order | {"gives_names": True}
    (message,) = told(gold, turned, caplog, named)
    assert message == (
        "m: warning: right on 0 % of 120 seeds, and would be on 100 % if its labels were swapped; "
        f"{text}"
        "neutral for entailment, contradiction for neutral: does it mix up the labels' names?"
    )
    partly = np.where(np.arange(120) % 10 < 6, turned, 0)  # a poor model, not one of another order
    assert len(told(gold, partly, caplog, order)) == 1
    assert told(gold, partly, caplog, named) == []
    always = np.full(60, 1)  # tells nothing about the order, however rare the label
    assert told(np.repeat([0, 1, 2], [40, 5, 15]), always, caplog, order) == []
    gold = np.arange(120) % 2
    (message,) = told(gold, 1 - gold, caplog, labels=("no", "yes"))
    assert "it seems to say no for yes, yes for no" in message


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"truncated": 10, "distinct_pairs": 1000},
         "10 of 1,000 pairs (1 %) were cut to 8 tokens"),
        ({"truncated": 9, "distinct_pairs": 1000}, ""),
        ({"truncated": "many", "distinct_pairs": True}, ""),
        ({"unknown_tokens": {"texts": 2, "tokens": 10, "unknown": 4, "words": ["żółw"]}},
         "m: warning: 40 % of 10 tokens in 2 texts are unknown to its tokenizer, as in 'żółw'"),
        ({"answered_as": ["m-2", "m-3"]}, "the model m, the server says they are of m-2, m-3"),
        ({"prompts_cut": {"prompt_tokens": 64, "prompt_words": 1200}},
         "64 tokens for 1,200 words"),
        ({"prompts_cut": {"prompt_tokens": "a few"}}, ""),
        ({"answers_without_letters": 10, "distinct_pairs": 1000},
         "10 of 1,000 answers (1 %) had none of the letters"),
    ],
)  # fmt: skip
def test_models_that_did_otherwise_than_asked(
    metadata: dict[str, Any], expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    tell_of_model("m", {"name": "m", "max_tokens": 8, **metadata})
    assert expected in caplog.text
    assert bool(caplog.messages) == bool(expected)
