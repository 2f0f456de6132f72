"""Classifiers of every kind against the plain way: one pair at a time, by Auto classes."""

import json
import random
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.answers import answers
from helpers.tiny_classifiers import KINDS, one_by_one, tiny_classifier
from helpers.tiny_models import MAX_TOKENS, sentences
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from merge_dataset.schema import LABELS
from merge_metric.models import classifier
from merge_metric.models.classifier import Classifier
from merge_metric.models.fast_layers import HIDING

TEXTS = sentences(80)
LONG = " ".join(TEXTS[:12])
PAIRS = [
    *zip(TEXTS[:30], TEXTS[30:60], strict=True), *[(TEXTS[0], text) for text in TEXTS[60:]],
    (LONG, TEXTS[3]), (TEXTS[3], LONG), (LONG, LONG),
    ("A </s> dog <|end|> runs.", "«Ünïcode» 🙂"), ("", "A dog."),
]  # fmt: skip
LIMITS = {"xlnet": 10_000}
"""Largest input lengths of tiny models; XLNet has no limit."""


@cache
def tiny(kind: str) -> Classifier:
    return Classifier.load(tiny_classifier(kind), device="cpu")


@pytest.mark.slow(but=("roberta", "xlnet"))
@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_are_those_of_one_pair_at_a_time(kind: str) -> None:
    expected = one_by_one(tiny_classifier(kind), PAIRS, LIMITS.get(kind, MAX_TOKENS))
    assert len(expected.round(3)) > 40
    assert np.ptp(expected, axis=0).max() > 0.2
    np.testing.assert_allclose(answers(tiny(kind), PAIRS), expected, atol=2e-6)


@pytest.mark.slow(but=("roberta",))
@pytest.mark.parametrize("kind", KINDS)
def test_padding_as_on_accelerators(kind: str) -> None:
    model, hidden = Classifier.load(tiny_classifier(kind), device="cpu"), list[bool]()
    hides = model._model.config.model_type in HIDING
    model._is_flat, model._filler = False, 2048 * hides

    def look(module: torch.nn.Module, args: object, inputs: dict[str, torch.Tensor]) -> None:
        hidden.append(not inputs["attention_mask"].all())

    model._model.register_forward_pre_hook(look, with_kwargs=True)
    np.testing.assert_allclose(answers(model, PAIRS), answers(tiny(kind), PAIRS), atol=2e-6)
    assert any(hidden) == hides


@pytest.mark.slow(but=("bert-uncased", "gpt2"))
@pytest.mark.parametrize("kind", KINDS)
def test_other_questions_change_no_bit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, rng = answers(tiny(kind), PAIRS), random.Random(0)
    for tokens, window in ((1, 65_536), (60, 65_536), (700, 13), (None, 13)):
        monkeypatch.setattr(classifier, "_WINDOW", window)
        model = Classifier.load(tiny_classifier(kind), device="cpu", batch_tokens=tokens)
        for size in (len(PAIRS), 1, 3, 20):
            rows = rng.sample(range(len(PAIRS)), size)
            np.testing.assert_array_equal(answers(model, [PAIRS[n] for n in rows]), expected[rows])


def counted(model: Classifier, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Sums of the counts of all answers, with their notes."""
    result = dict[str, Any]()
    for batch in model.answer(pairs):
        for name, count in batch.counts.items():
            result[name] = result.get(name, 0) + count
        result |= batch.notes
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_cut_pairs_are_counted(kind: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_classifier(kind))
    lengths = [len(tokenizer([p], [h], verbose=False)["input_ids"][0]) for p, h in PAIRS]
    assert max(lengths) > MAX_TOKENS
    expected = sum(length > LIMITS.get(kind, MAX_TOKENS) for length in lengths)
    assert counted(tiny(kind), PAIRS)["truncated"] == expected
    assert tiny(kind).max_tokens == (None if kind == "xlnet" else MAX_TOKENS)


def test_a_pair_at_the_limit_is_not_cut() -> None:
    """64 tokens are kept, 65 are too many; truncated text is also checked for unknown words."""
    model = tiny("bert-uncased")
    words = ["dog"] * 61
    assert counted(model, [(" ".join(words[:30]), " ".join(words[30:]))])["truncated"] == 0
    assert counted(model, [(" ".join(words), "dog")])["truncated"] == 1
    result = counted(model, [(" ".join(["dog"] * 100), " ".join(["猫"] * 50))])
    assert result["unknown_tokens"] == {"texts": 1, "tokens": 150, "unknown": 50, "words": ["猫"]}


@pytest.mark.parametrize("kind", ["bert-uncased", "gpt2"])
def test_half_precision_weights_are_computed_in_float32(kind: str, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_classifier(kind), tmp_path / "half")
    model = AutoModelForSequenceClassification.from_pretrained(folder).half()
    model.save_pretrained(folder)
    assert {t.dtype for t in load_file(folder / "model.safetensors").values()} == {torch.float16}
    loaded = Classifier.load(folder)
    assert loaded.describe().identity["dtype"] == "float32"
    expected = one_by_one(folder, PAIRS[:10], MAX_TOKENS)
    np.testing.assert_allclose(answers(loaded, PAIRS[:10]), expected, atol=2e-6)
    rough = Classifier.load(folder, dtype="bfloat16")
    assert rough.describe().identity["dtype"] == "bfloat16"
    difference = abs(answers(rough, PAIRS[:20]) - answers(loaded, PAIRS[:20])).max()
    assert 1e-6 < difference < 0.2


@pytest.mark.real
@pytest.mark.parametrize(("name", "low", "high"), [("bert-tiny-nli", 0.66, 0.80),
                                                   ("minilm-l6-nli", 0.74, 0.88)])  # fmt: skip
def test_real_models(
    name: str, low: float, high: float, shared_models: Path, shared_data: Path
) -> None:
    """Accuracy on SNLI's test set equals that of the model card, within sampling error."""
    lines = (shared_data / "snli_test.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["gold_label"] in LABELS][:300]
    pairs = [(row["sentence1"], row["sentence2"]) for row in rows]
    gold = np.array([LABELS.index(row["gold_label"]) for row in rows])
    model = Classifier.load(shared_models / name)
    result = answers(model, pairs)
    assert low < (result.argmax(axis=1) == gold).mean() < high
    expected = one_by_one(shared_models / name, pairs[:10], 512)
    np.testing.assert_allclose(result[:10], expected, atol=2e-6)
