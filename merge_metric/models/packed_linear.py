"""Linear layers that oneDNN computes on CPUs, from weights packed once.

PyTorch gives linear layers in float32 to MKL, which keeps to AVX2 on processors that are not
Intel's, and packs the weights anew in every call. The operators here are those that
`torch.compile` puts in their place. They are private, so any PyTorch may change them: they are
tried once in a process, and where they are gone or compute something else, layers stay as they are.
"""

from __future__ import annotations

import logging
import os
import platform
from functools import cache
from itertools import product
from typing import Any, Final, cast

import torch
from torch import nn
from transformers.activations import GELUActivation

log = logging.getLogger(__name__)

PACKED: Final = frozenset(
    {
        "albert", "bart", "bert", "camembert", "deberta-v2", "distilbert", "electra", "gemma2",
        "llama", "mistral", "modernbert", "mpnet", "opt", "qwen2", "roberta", "t5", "xlm-roberta",
    }
)  # fmt: skip
"""Types of models that use linear layers as such, and not the weights in them."""

_ACTIVATIONS: Final = ("intermediate_act_fn", "transform_act_fn")
"""Names of what is applied to the result of a layer `dense` and nothing else."""

_SHAPES_KEPT: Final = "128"
"""Shapes of inputs for which PyTorch and oneDNN each keep what they prepared. They keep 1,024
unless told otherwise, at about a megabyte each; preparing one takes no time to speak of."""
_ROWS: Final = 512
"""Rows of inputs that weights are laid out for; others come out the same, hardly slower."""
_APART: Final = {torch.float32: 1e-4, torch.bfloat16: 0.25}
"""Largest difference between results of the trial, which are below 40, that is rounding."""


class PackedLinear(nn.Module):
    """A linear layer, but for rounding; a row's result depends on no other row."""

    def __init__(self, linear: nn.Linear, *, counted: bool = True, gelu: bool = False) -> None:
        """Take over a layer's weights.

        Args:
            linear: The layer; it may be thrown away then.
            gelu: Whether its results go through GELU.
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
        self._then = "gelu" if gelu else "none"

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(…, in) → (…, out)."""
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs, self.weight, self.bias, self._then, [], "none"
        )
        return result


def pack_linear_layers(model: Any) -> Any:
    """Replace a model's linear layers by packed ones, where that is known to be good.

    Args:
        model: Of transformers, to be used for inference only. Changed in place.

    Returns:
        The model; as it was on other devices than x86 CPUs, in other types than float32 and
        bfloat16, where its type is not in `PACKED`, and, with a warning, where PyTorch's
        operators do not do what they should.
    """
    if model.config.model_type in PACKED and _can_pack(model.device, model.dtype):
        with torch.inference_mode():
            _pack(model, model.get_input_embeddings().weight)
    return model


def _can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    return (
        device.type == "cpu"
        and platform.machine().lower() in {"x86_64", "amd64"}
        and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        and dtype in {torch.float32, torch.bfloat16}
        and _operators_work(dtype)
    )


@cache
def _operators_work(dtype: torch.dtype) -> bool:
    """Tell whether PyTorch's operators compute linear layers; warn if they do not."""
    for variable in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        os.environ.setdefault(variable, _SHAPES_KEPT)  # read at the first such computation
    try:
        if dtype is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False  # a matter of the processor
        fault = _fault(dtype)
    except Exception as error:  # anything may be wrong with an operator that is not public
        fault = str(error).partition("\n")[0] or type(error).__name__
    if fault:
        log.warning(
            "models run on PyTorch's own linear layers, often at half the speed: those of oneDNN, "
            "tried in %s with torch %s: %s",
            str(dtype).removeprefix("torch."),
            torch.__version__,
            fault,
        )
    return not fault


def _fault(dtype: torch.dtype) -> str:
    """Compare packed layers with plain ones; describe the difference, if there is any."""
    width, height = 48, 80
    with torch.inference_mode():
        for bias in (True, False):
            with torch.random.fork_rng(devices=[]):  # the caller's draws stay what they were
                plain = nn.Linear(width, height, bias=bias, dtype=dtype)
            for values in plain.parameters():
                values.copy_(torch.arange(values.numel()).reshape(values.shape).sin())
            for gelu, rows in product((False, True), ((1,), (_ROWS + 1,), (2, 17))):
                packed = PackedLinear(plain, gelu=gelu)
                shape = (*rows, width)
                inputs = torch.arange(torch.Size(shape).numel()).cos().reshape(shape).to(dtype)
                want, got = plain(inputs), packed(inputs)
                want = nn.functional.gelu(want) if gelu else want
                if got.shape != want.shape or got.dtype != want.dtype:
                    return f"expected {[*want.shape]} in {dtype}, got {[*got.shape]} in {got.dtype}"
                apart = float((got - want).abs().max())
                if not apart <= _APART[dtype]:  # nor NaN
                    return f"results are up to {apart:.2g} apart"
    return ""


def _pack(module: nn.Module, embeddings: nn.Parameter) -> None:
    # Where transformers puts GELU after a layer, oneDNN does both at once.
    after = next((name for name in _ACTIVATIONS if _is_gelu(getattr(module, name, None))), None)
    if after and type(getattr(module, "dense", None)) is nn.Linear:
        module.dense = PackedLinear(cast(nn.Linear, module.dense), gelu=True)
        setattr(module, after, nn.Identity())
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            setattr(module, name, PackedLinear(child, counted=child.weight is not embeddings))
        else:
            _pack(child, embeddings)


def _is_gelu(activation: Any) -> bool:
    return type(activation) is GELUActivation and activation.act is nn.functional.gelu
