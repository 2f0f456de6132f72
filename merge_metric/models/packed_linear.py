"""Linear layers that oneDNN computes on CPUs, from weights packed once.

PyTorch gives linear layers in float32 to MKL, which keeps to AVX2 on processors that are not
Intel's, and packs the weights anew in every call. The operators here are those that
`torch.compile` puts in their place.
"""

from __future__ import annotations

import os
import platform
from typing import Any, Final

import torch
from torch import nn

PACKED: Final = frozenset(
    {
        "albert", "bart", "bert", "camembert", "deberta-v2", "distilbert", "electra", "gemma2",
        "llama", "mistral", "modernbert", "mpnet", "opt", "qwen2", "roberta", "t5", "xlm-roberta",
    }
)  # fmt: skip
"""Types of models that use linear layers as such, and not the weights in them."""

_SHAPES_KEPT: Final = "32"
"""Shapes of inputs for which PyTorch and oneDNN each keep what they prepared. They keep 1,024
unless told otherwise, at about a megabyte each; preparing one takes no time to speak of."""
_ROWS: Final = 512
"""Rows of inputs that weights are laid out for; others come out the same, hardly slower."""


class PackedLinear(nn.Module):
    """A linear layer, but for rounding; a row's result depends on no other row."""

    def __init__(self, linear: nn.Linear, *, counted: bool = True) -> None:
        """Take over a layer's weights.

        Args:
            linear: The layer; it may be thrown away then.
            counted: Whether its weights are parameters of the model; those of a head that are
                the input embeddings' are counted there.
        """
        super().__init__()
        packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS)
        if counted:
            self.weight = nn.Parameter(packed, requires_grad=False)
        else:
            self.register_buffer("weight", packed, persistent=False)
        self.bias = linear.bias

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(…, in) → (…, out)."""
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs, self.weight, self.bias, "none", [], ""
        )
        return result


def pack_linear_layers(model: Any) -> Any:
    """Replace a model's linear layers by packed ones, where that is known to be good.

    Args:
        model: Of transformers, to be used for inference only. Changed in place.

    Returns:
        The model; as it was on other devices than x86 CPUs, in other types than float32 and
        bfloat16, and where its type is not in `PACKED`.
    """
    if model.config.model_type in PACKED and _can_pack(model.device, model.dtype):
        for variable in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
            os.environ.setdefault(variable, _SHAPES_KEPT)  # read at the first such computation
        with torch.inference_mode():
            _pack(model, model.get_input_embeddings().weight)
    return model


def _can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    there = (
        device.type == "cpu"
        and platform.machine().lower() in {"x86_64", "amd64"}
        and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )
    if dtype is torch.bfloat16:
        return there and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return there and dtype is torch.float32


def _pack(module: nn.Module, embeddings: nn.Parameter) -> None:
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            setattr(module, name, PackedLinear(child, counted=child.weight is not embeddings))
        else:
            _pack(child, embeddings)
