"""Keys and values of the prompts' common prefix: computed once, used by every batch.

Imports torch and transformers, so only `language_model` imports it, when it runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

_SUPPORTED: Final = (DynamicLayer, DynamicSlidingWindowLayer)
"""Kinds of layers whose state is keys and values per token, and nothing else."""


class _PrefixLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values of the prefix, in front of whatever a batch brings.

    Nothing of a batch is kept: one forward pass per batch is all there is, so the same
    object serves all batches, and only one layer at a time holds a batch's copies.
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtype, self.device = keys.dtype, keys.device
        self.keys, self.values = self._prefix = keys, values
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self._prefix
        return _joined(keys, key_states), _joined(values, value_states)


class PrefixCache:
    """The state of a model that has read a prefix."""

    def __init__(self, model: Any, ids: Sequence[int]) -> None:
        """Run a causal LM, for which `unsupported` finds no reason against, over the prefix.

        Every layer keeps all keys and values, sliding windows included: the model's own mask hides
        what is too far away, as it does in a run without a cache. The prefix has a token at least.
        """
        cache: Any = DynamicCache()
        with torch.inference_mode():
            row = torch.tensor([list(ids)], device=model.device)
            model(input_ids=row, past_key_values=cache, use_cache=True, logits_to_keep=1)
        self._states: list[tuple[torch.Tensor, torch.Tensor]] = [
            (layer.keys, layer.values) for layer in cache.layers
        ]
        self.length = len(ids)
        self.layer_bytes = max(
            (keys.nbytes + values.nbytes) // self.length for keys, values in self._states
        )
        """Memory per token in the largest layer."""

    def first(self, length: int) -> DynamicCache:
        """The state after the prefix's first `length` tokens, for batches of any size.

        What a causal model makes of a token does not depend on what follows it, so a
        shorter prefix is a part of a longer one.
        """
        cache = DynamicCache()
        cache.layers = [
            _PrefixLayer(keys[..., :length, :], values[..., :length, :])
            for keys, values in self._states
        ]
        return cache


def unsupported(model: Any) -> str | None:
    """Say why a model's state cannot be shared between prompts; None if it can."""
    parameters = inspect.signature(model.forward).parameters
    if not {"past_key_values", "logits_to_keep"} <= set(parameters):
        return f"{type(model).__name__} takes no past_key_values"
    for layer in DynamicCache(config=model.config).layers:
        if type(layer) not in _SUPPORTED:
            return f"{type(model).__name__} has layers of the kind {type(layer).__name__}"
    return None


def _joined(prefix: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """(1, heads, prefix, size) and (rows, heads, own, size) → (rows, heads, prefix + own, size)."""
    return torch.cat([prefix.expand(own.shape[0], *prefix.shape[1:]), own], dim=-2)
