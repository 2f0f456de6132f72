"""Classifiers of every kind against the plain way: one pair at a time, by Auto classes."""

import json
import logging
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest
import torch
from helpers.answers import answers
from helpers.masked_queries import ask_all, assert_identical, score
from helpers.tiny_classifiers import KINDS as CLASSIFIERS
from helpers.tiny_classifiers import one_by_one, tiny_classifier
from helpers.tiny_models import KINDS, MAX_TOKENS, sentences, tiny_model
from safetensors.torch import load_file
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from generation.suggestions.masked_lm import MaskedLM
from merge_dataset.schema import LABELS
from merge_metric.demo import MODEL as DEMO_MODEL
from merge_metric.models import classifier
from merge_metric.models.classifier import Classifier
from merge_metric.models.fast_layers import (
    HIDING,
    PACKED,
    PackedLinear,
    _operators_work,
    can_pack,
    on_single_threads,
    pack_linear_layers,
)

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
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_probabilities_are_those_of_one_pair_at_a_time(kind: str) -> None:
    expected = one_by_one(tiny_classifier(kind), PAIRS, LIMITS.get(kind, MAX_TOKENS))
    assert len(expected.round(3)) > 40
    assert np.ptp(expected, axis=0).max() > 0.2
    np.testing.assert_allclose(answers(tiny(kind), PAIRS), expected, atol=2e-6)


@pytest.mark.slow(but=("roberta",))
@pytest.mark.parametrize("kind", CLASSIFIERS)
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
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_other_questions_change_no_bit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, rng = answers(tiny(kind), PAIRS), random.Random(0)
    for tokens, window in ((1, 65_536), (60, 65_536), (700, 13), (None, 13)):
        monkeypatch.setattr(classifier, "_BLOCK", window)
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


@pytest.mark.parametrize("kind", CLASSIFIERS)
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


CPU: Final = torch.device("cpu")
needs_packing = pytest.mark.skipif(
    not can_pack(CPU, torch.float32), reason="needs an x86 CPU and a PyTorch with oneDNN"
)

SMALL: Final = {
    "vocab_size": 99, "hidden_size": 32, "d_model": 32, "dim": 32, "embedding_size": 16,
    "word_embed_proj_dim": 32, "num_hidden_layers": 2, "num_layers": 2, "n_layers": 2,
    "encoder_layers": 1, "decoder_layers": 1, "num_attention_heads": 4, "num_heads": 4,
    "n_heads": 4, "num_key_value_heads": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "head_dim": 8, "d_kv": 8, "intermediate_size": 64,
    "hidden_dim": 64, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "ffn_dim": 64, "d_ff": 64,
    "max_position_embeddings": 64,
}  # fmt: skip
"""Small sizes, by their names in configurations."""


def small_model(model_type: str, kind: Any = AutoModel) -> Any:
    names = AutoConfig.for_model(model_type).to_dict()
    sizes = {name: size for name, size in SMALL.items() if name in names}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    special |= {name: 3 for name in ("cls_token_id", "sep_token_id") if name in names}
    torch.manual_seed(0)
    return kind.from_config(AutoConfig.for_model(model_type, **special, **sizes)).eval()


def layers(model: nn.Module, kind: type[nn.Module]) -> int:
    return sum(type(module) is kind for module in model.modules())


@needs_packing
@pytest.mark.parametrize("model_type", sorted(PACKED))
def test_models_compute_the_same(model_type: str) -> None:
    model = small_model(model_type)
    size, linear = model.num_parameters(), layers(model, nn.Linear)
    ids = torch.randint(4, 99, (3, 7))
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if model_type == "t5" else {})
    with torch.inference_mode():
        before = model(**inputs)[0]
        packed = pack_linear_layers(model)
        after = packed(**inputs)[0]
    assert packed is model
    assert linear >= 8
    assert (layers(model, nn.Linear), layers(model, PackedLinear)) == (0, linear)
    assert (model.num_parameters(), model.dtype, model.device) == (size, torch.float32, CPU)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)


@needs_packing
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_do_not_depend_on_each_other(dtype: torch.dtype) -> None:
    if not can_pack(CPU, dtype):
        pytest.skip("needs a processor with bfloat16")
    torch.manual_seed(0)
    packed = PackedLinear(nn.Linear(384, 1536).to(dtype))
    inputs = torch.randn(700, 384, dtype=dtype)
    with torch.inference_mode():
        together = packed(inputs)
        for rows in (16, 17, 100, 512, 513):
            assert torch.equal(packed(inputs[:rows]), together[:rows])
            assert torch.equal(packed(inputs[-rows:].unsqueeze(0))[0], together[-rows:])


@pytest.fixture
def tried_anew() -> Iterator[None]:
    """Make this test try the operators, and later tests try them again."""
    _operators_work.cache_clear()
    yield
    _operators_work.cache_clear()


def refusing(*arguments: object) -> object:
    raise RuntimeError("mkldnn::_linear_pointwise() expected at most 5 arguments\nDeclaration:")


def wrong(inputs: torch.Tensor, weight: torch.Tensor, *rest: object) -> torch.Tensor:
    return torch.full((*inputs.shape[:-1], weight.shape[0]), torch.nan)


@needs_packing
@pytest.mark.usefixtures("tried_anew")
@pytest.mark.parametrize(
    ("operator", "fault"),
    [
        (None, "object has no attribute '_reorder_linear_weight'"),
        (refusing, "mkldnn::_linear_pointwise() expected at most 5 arguments"),
        (wrong, "results in torch.float32 are up to nan apart"),
    ],
)
def test_faulty_operators_are_not_used(
    operator: Callable[..., torch.Tensor] | None,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Missing, refusing or wrong operators: one line of warning, and plain layers."""
    if operator is None:
        monkeypatch.setattr(torch.ops, "mkldnn", SimpleNamespace())
    else:
        monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", operator)
    model, other = small_model("bert"), small_model("roberta")
    ids = torch.randint(4, 99, (3, 7))
    with torch.inference_mode():
        before = model(input_ids=ids)[0]
        after = pack_linear_layers(model)(input_ids=ids)[0]
    assert torch.equal(before, after)
    assert layers(pack_linear_layers(other), PackedLinear) == 0
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "PyTorch's own linear layers" in record.message
    assert record.message.endswith(fault)
    assert "\n" not in record.message


@contextmanager
def threads_of_torch(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_results_are_in_order_of_single_threads_and_errors_are_raised() -> None:
    def compute(number: int) -> tuple[int, int]:
        sleep(0.002 * (number % 3))
        return 12 // number, torch.get_num_threads()

    for threads in (1, 3):
        with threads_of_torch(threads):
            result = list(on_single_threads(compute, range(1, 13), "cpu"))
            assert result == [(12 // n, 1) for n in range(1, 13)]
            results = on_single_threads(compute, (4, 0, 1), "cpu")
            assert next(results) == (3, 1)
            with pytest.raises(ZeroDivisionError):
                next(results)
            assert list(on_single_threads(lambda _: torch.get_num_threads(), [0], "cuda")) == [
                threads
            ]
            assert torch.get_num_threads() == threads


@pytest.mark.slow(but=("roberta", "deberta"))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_do_not_depend_on_threads(kind: str, dtype: str) -> None:
    queries = ask_all(sentences()[:20])
    mlm = MaskedLM.load(tiny_model(kind), device="cpu", dtype=dtype)
    with threads_of_torch(1):
        expected = score(mlm, queries, k=5)
    for threads in (2, 4):
        with threads_of_torch(threads):
            assert_identical(score(mlm, queries, k=5), expected)


@pytest.mark.slow(but=("bert-uncased", "bart", "demo"))
@pytest.mark.parametrize("kind", [*CLASSIFIERS, "demo"])
def test_probabilities_do_not_depend_on_threads(kind: str) -> None:
    texts = sentences()[:120]
    pairs = list(zip(texts, texts[::-1], strict=True))
    folder = tiny_classifier(kind) if kind in CLASSIFIERS else DEMO_MODEL  # as large as BERT-tiny
    model = Classifier.load(folder, device="cpu", batch_tokens=200)

    def answers(threads: int) -> Any:
        with threads_of_torch(threads):
            batches = list(model.answer(pairs))
        positions = [place for batch in batches for place in batch.positions]
        return positions, [batch.probabilities.tolist() for batch in batches]

    assert answers(4) == answers(2) == answers(1)
