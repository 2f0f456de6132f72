import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Final

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModel

from merge_metric.models.fast_layers import (
    PACKED,
    PackedLinear,
    _operators_work,
    can_pack,
    pack_linear_layers,
)

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
