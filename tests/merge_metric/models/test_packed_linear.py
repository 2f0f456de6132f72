"""Packed linear layers compute what linear layers do."""

from __future__ import annotations

from typing import Any, Final

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from merge_metric.models.packed_linear import PACKED, PackedLinear, _can_pack, pack_linear_layers

CPU: Final = torch.device("cpu")
needs_packing = pytest.mark.skipif(
    not _can_pack(CPU, torch.float32), reason="needs an x86 CPU and a PyTorch with oneDNN"
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
"""By the names that configurations have for these."""


def small_model(model_type: str) -> Any:
    names = AutoConfig.for_model(model_type).to_dict()
    sizes = {name: size for name, size in SMALL.items() if name in names}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    special |= {name: 3 for name in ("cls_token_id", "sep_token_id") if name in names}
    torch.manual_seed(0)
    return AutoModel.from_config(AutoConfig.for_model(model_type, **special, **sizes)).eval()


def layers(model: nn.Module, kind: type[nn.Module]) -> int:
    return sum(type(module) is kind for module in model.modules())


@needs_packing
@pytest.mark.parametrize("model_type", sorted(PACKED))
def test_models_compute_the_same(model_type: str) -> None:
    """All linear layers of every type are packed, and the result is equal but for rounding."""
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
def test_tied_weights_are_counted_once() -> None:
    """A head that shares its weights with the embeddings is packed, and no further parameter."""
    config = AutoConfig.for_model("llama", **SMALL, tie_word_embeddings=True, pad_token_id=0)
    model = AutoModelForCausalLM.from_config(config).eval()
    size = model.num_parameters()
    assert type(pack_linear_layers(model).lm_head) is PackedLinear
    assert model.num_parameters() == size


@needs_packing
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_do_not_depend_on_each_other(dtype: torch.dtype) -> None:
    """To the bit, from sixteen rows up: what suggestions rely on."""
    if not _can_pack(CPU, dtype):
        pytest.skip("needs a processor with bfloat16")
    torch.manual_seed(0)
    packed = PackedLinear(nn.Linear(384, 1536).to(dtype))
    inputs = torch.randn(700, 384, dtype=dtype)
    with torch.inference_mode():
        together = packed(inputs)
        for rows in (16, 17, 100, 512, 513):
            assert torch.equal(packed(inputs[:rows]), together[:rows])
            assert torch.equal(packed(inputs[-rows:].unsqueeze(0))[0], together[-rows:])


def test_other_models_stay_as_they_are() -> None:
    """Models of other types or number formats stay as they are."""
    odd = small_model("deberta")
    half = small_model("bert").to(torch.float64)
    for model in (odd, half):
        before = layers(model, nn.Linear)
        assert layers(pack_linear_layers(model), nn.Linear) == before > 0


def test_only_where_it_is_known_to_be_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on other processors or devices, nor where PyTorch lacks the operators."""
    assert not _can_pack(torch.device("meta"), torch.float32)
    with monkeypatch.context() as patch:
        patch.setattr("platform.machine", lambda: "arm64")
        assert not _can_pack(CPU, torch.float32)
    with monkeypatch.context() as patch:
        patch.setattr("torch.backends.mkldnn.is_available", lambda: False)
        assert not _can_pack(CPU, torch.float32)
