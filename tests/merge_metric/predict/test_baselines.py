from pathlib import Path

import numpy as np
import pytest
from helpers.answers import answers
from numpy.typing import NDArray

from merge_metric.predict import baselines
from merge_metric.predict.baselines import HypothesisOnly, Majority, read_training_data

WORDS = {0: "outside", 1: "tall", 2: "sleeping"}
"""Label → word that reveals it."""


def hypotheses(n: int = 90) -> tuple[list[str], NDArray[np.int64]]:
    """Hypotheses with a word that reveals the label, among other words."""
    generator = np.random.default_rng(0)
    labels = np.arange(n) % 3
    nouns = generator.choice(["man", "woman", "dog", "girl", "boy"], n)
    pairs = zip(nouns, labels, strict=True)
    return [f"The {noun} is {WORDS[label]}." for noun, label in pairs], labels


def trained() -> HypothesisOnly:
    return HypothesisOnly(*hypotheses(), {"file": "x.jsonl", "sha256": "0" * 64})


def test_it_never_reads_the_premise(monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained()
    first = answers(model, [("A man is outside.", "The dog is tall."), ("", "The boy is outside.")])
    second = answers(model, [("Nobody sleeps.", "The dog is tall."), ("x", "The boy is outside."),
                         ("y", "The dog is tall.")])  # fmt: skip
    assert np.array_equal(first, second[:2])
    assert np.array_equal(second[0], second[2])
    several = [("", text) for text in hypotheses()[0]]
    expected = answers(model, several)
    monkeypatch.setattr(baselines, "_BATCH", 7)
    assert np.array_equal(answers(model, several), expected)


def test_a_label_that_is_not_in_the_training_data() -> None:
    texts, labels = hypotheses()
    two = np.flatnonzero(labels != 1)
    model = HypothesisOnly([texts[i] for i in two], labels[two], {"sha256": "1"})
    result = answers(model, [("", text) for text in ("A cat is tall.", "Words.", "")])
    assert (result[:, 1] == 0).all()
    assert result.sum(axis=1) == pytest.approx(1)


def test_the_majority_answers_everything_alike() -> None:
    model = Majority(np.array([2, 0, 2, 1, 2]), {"seeds": 5})
    assert answers(model, [("p", "h"), ("q", "i")]).tolist() == [[0.2, 0.2, 0.6]] * 2


@pytest.mark.real
def test_on_real_hypotheses(shared_data: Path) -> None:
    """Gururangan et al. (2018) report 67 % with all 550,000 problems; these are 9,842."""
    model = HypothesisOnly(*read_training_data(shared_data / "snli_dev.jsonl"))
    hypotheses, labels, *_ = read_training_data(shared_data / "snli_test.jsonl")
    result = answers(model, [("", text) for text in hypotheses])
    assert 0.55 < (result.argmax(axis=1) == labels).mean() < 0.65


def test_a_file_without_hypotheses(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,label\n1,0\n")
    message = "a column sentence2 or hypothesis or sentence_B or text2, got x, label"
    with pytest.raises(ValueError, match=message):
        read_training_data(tmp_path / "a.csv")
