"""Texts end to end as on a GPU, here with a slow attention by the words of PyTorch's page."""

import logging
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.answers import answers
from helpers.masked_queries import ask_all, score
from helpers.tiny_classifiers import one_by_one, tiny_classifier
from helpers.tiny_models import MAX_TOKENS, sentences, tiny_model
from torch.nn.attention import varlen
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModel

from generation.suggestions.masked_lm import MaskedLM
from merge_metric.models import fast_layers
from merge_metric.models.classifier import Classifier

TEXTS = sentences(40)[:40]
PAIRS = [
    *zip(TEXTS[:20], TEXTS[20:], strict=True),
    ("", "A dog."),
    (" ".join(TEXTS[:12]), "A dog."),
]
KINDS = ("bert-uncased", "roberta", "albert", "electra")


def slow_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    bounds_q: torch.Tensor, bounds_k: torch.Tensor, most_q: int, most_k: int,
) -> torch.Tensor:  # fmt: skip
    """Text by text and head by head; it takes only what the kernel does, and leaves no row out."""
    for rows, bounds, most in ((q, bounds_q, most_q), (k, bounds_k, most_k), (v, bounds_k, most_k)):
        assert bounds.dtype == torch.int32
        assert bounds.is_contiguous()
        assert rows.stride(-1) == 1
        assert (int(bounds[0]), int(bounds[-1])) == (0, len(rows))
        assert (int(bounds.diff().min()) > 0, int(bounds.diff().max())) == (True, most)
    result = torch.full_like(q, torch.nan)
    of_queries, of_keys = (list(pairwise(bounds.tolist())) for bounds in (bounds_q, bounds_k))
    for (first, last), (start, stop) in zip(of_queries, of_keys, strict=True):
        for head in range(q.shape[1]):
            scores = q[first:last, head] @ k[start:stop, head].T / q.shape[2] ** 0.5
            result[first:last, head] = scores.softmax(-1) @ v[start:stop, head]
    return result


@pytest.fixture
def as_on_gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Replace what a GPU computes, and let models on the processor use it, in float32 too."""

    def at_once(runs: list[tuple[int, slice, slice]]) -> Any:
        starts = [0]
        for count, tokens, _ in runs:
            length = (tokens.stop - tokens.start) // count
            starts += [tokens.start + length * number for number in range(1, count + 1)]
        return fast_layers._attending_at_once(np.array(starts), SimpleNamespace(device="cpu"))

    def replaced(attention: Any) -> None:
        monkeypatch.setattr(varlen, "varlen_attn", attention)
        monkeypatch.setattr(fast_layers, "_attending_by_length", at_once)
        monkeypatch.setattr(fast_layers, "why_padded", lambda model: "")
        monkeypatch.setitem(fast_layers._ROUNDED, torch.float32, 1e-5)

    return replaced


@pytest.mark.slow(but=("roberta",))
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_a_text_at_a_time(
    kind: str, as_on_gpu: Callable[[Any], None], caplog: pytest.LogCaptureFixture
) -> None:
    queries = ask_all(TEXTS[:12])
    usual = score(MaskedLM.load(tiny_model(kind), device="cpu"), queries, k=20)
    as_on_gpu(slow_attention)
    caplog.set_level(logging.INFO)
    model = Classifier.load(tiny_classifier(kind), device="cpu", unpadded=True)
    assert model.describe().facts["unpadded"] is True
    assert "texts are read without padding" in caplog.text
    expected = one_by_one(tiny_classifier(kind), PAIRS, MAX_TOKENS)
    np.testing.assert_allclose(answers(model, PAIRS), expected, atol=2e-6)
    unpadded = MaskedLM.load(tiny_model(kind), device="cpu", unpadded=True)
    assert unpadded.unpadded
    for name in ("original", "logits", "original_logit", "log_normalizer"):
        both = (getattr(scores, name) for scores in (score(unpadded, queries, k=20), usual))
        np.testing.assert_allclose(*both, atol=1e-5)


def mixed(*given: Any) -> torch.Tensor:
    q, k, v, *bounds = given[:5]
    return slow_attention(q, k, v, *(ends[[0, -1]] for ends in bounds), len(q), len(k))


def moved(*given: Any) -> torch.Tensor:
    """The first text has a token of the second one's."""
    q, k, v, of_queries, of_keys, most_q, _ = given
    of_keys = of_keys.clone()
    of_keys[1] += 1
    return slow_attention(q, k, v, of_queries, of_keys, most_q, int(of_keys.diff().max()))


def impossible(*given: Any) -> torch.Tensor:
    raise RuntimeError("no kernel image is available")


def nothing(*given: Any) -> torch.Tensor:
    return torch.full_like(given[0], torch.nan)


@pytest.mark.parametrize("attention", [mixed, moved, impossible, nothing])
def test_a_wrong_attention_is_refused(attention: Any, as_on_gpu: Callable[[Any], None]) -> None:
    """Also by the wider limits of bfloat16."""
    as_on_gpu(attention)
    fast_layers._ROUNDED[torch.float32] = fast_layers._ROUNDED[torch.bfloat16]
    with pytest.raises(ValueError, match=r"^bert-uncased.*: leave out `unpadded`$"):
        MaskedLM.load(tiny_model("bert-uncased"), device="cpu", unpadded=True)


class OnOneDevice(TorchDispatchMode):
    """Require that each operation's tensors lie on one device, as CUDA does; keep their names."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        assert len({tensor.device for tensor in tensors}) < 2, func
        self.called.append(str(func))
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("kind", KINDS)
def test_everything_lies_on_the_device(kind: str) -> None:
    """On "meta", which computes shapes alone; by PyTorch's own function, whose kernel is CUDA's."""
    trunk = AutoModel.from_pretrained(tiny_model(kind), dtype=torch.bfloat16).eval().to("meta")
    with torch.inference_mode(), OnOneDevice() as watched:
        vectors = fast_layers.vectors_at([1, 0, 4], trunk, [[5, 6], [7, 8, 9], [5, 6, 7, 8, 9]])
    layers = fast_layers._layers_of(trunk)
    assert watched.called.count("torch_attn._varlen_attn.default") == len(layers)
    width, heads = trunk.config.hidden_size, trunk.config.num_attention_heads
    assert {own.scaling for own, _, _ in layers} == {(width // heads) ** -0.5}
    assert (vectors.device.type, vectors.dtype) == ("meta", torch.bfloat16)
    assert vectors.shape == (fast_layers.rows_for(3), width)


def test_what_stays_padded(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    bert, capability = AutoConfig.for_model("bert", hidden_size=768), (9, 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)

    def why(config: Any = bert, dtype: torch.dtype = torch.bfloat16, device: str = "cuda") -> str:
        model = SimpleNamespace(config=config, dtype=dtype, device=torch.device(device))
        return fast_layers.why_padded(model)

    assert why() == why(dtype=torch.float16) == ""
    assert "got mps" in why(device="mps")
    assert "got float32" in why(dtype=torch.float32)
    assert "got deberta-v2" in why(AutoConfig.for_model("deberta-v2"))
    assert "got 36" in why(AutoConfig.for_model("bert", hidden_size=432))
    capability = (7, 5)
    assert "got 7.5" in why()
    model = Classifier.load(tiny_classifier("bert-uncased"), device="cpu", unpadded=True)
    assert (
        "bert-uncased-entailment-neutral-contradiction: warning: `unpadded` changes" in caplog.text
    )
    assert "unpadded" not in model.describe().facts
