"""Encoders over texts laid end to end: batches of texts of any lengths, without padding.

All but attention looks at one token at a time, so a batch can be one long row of tokens. Rows have
few lengths: to prepare a matrix product for a new one takes longer than a small model's product.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from merge_metric.models.packed_linear import PackedLinear

FLAT: Final = frozenset({"bert", "camembert", "electra", "roberta", "xlm-roberta"})
"""Types of models that hand attention what they are called with, and pool the first token."""

FEWEST: Final = 16
"""Rows from which on a row's result of a matrix product does not depend on how many there are:
kernels for fewer round otherwise."""
_STEPS: Final = 8
"""Numbers of rows for each power of two."""
_NAME: Final = "texts_end_to_end"

Texts = Sequence[Sequence[int]] | Sequence[NDArray[np.int32]]
"""A number for each token of each text."""


def rows_for(count: int) -> int:
    """Round a number of rows up to one of few numbers.

    >>> [rows_for(count) for count in (1, 17, 500, 513)]
    [16, 32, 512, 640]
    """
    step = max(FEWEST, (1 << (count - 1).bit_length()) // _STEPS)
    return -(-count // step) * step


def flatten(model: Any) -> Any:
    """Prepare a model for `states`, if it is of a type that can be, with packed layers.

    Args:
        model: Of transformers, to be used for inference only. Changed in place.
    """
    config = model.config
    if (
        config.model_type in FLAT
        and not config.is_decoder
        and config._attn_implementation == "sdpa"
        and any(type(module) is PackedLinear for module in model.modules())
    ):
        AttentionInterface.register(_NAME, _attention)
        AttentionMaskInterface.register(_NAME, sdpa_mask)
        config._attn_implementation = _NAME
    return model


def is_flat(model: Any) -> bool:
    """Tell whether a model is prepared for `states`."""
    return bool(model.config._attn_implementation == _NAME)


def class_logits(
    model: Any,
    input_ids: Texts,
    token_type_ids: Texts | None = None,
) -> torch.Tensor:
    """Return [texts, classes] what a classifier makes of texts; arguments as of `states`."""
    trunk = getattr(model, model.base_model_prefix)
    vectors, starts = states(trunk, input_ids, token_type_ids)
    count = len(starts)
    filled = torch.cat([starts, starts[-1:].expand(rows_for(count) - count)])
    first = vectors[filled][:, None]
    pooler = getattr(trunk, "pooler", None)
    logits: torch.Tensor = model.classifier(first if pooler is None else pooler(first))
    return logits[:count]


def states(
    trunk: Any,
    input_ids: Texts,
    token_type_ids: Texts | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return [tokens, width] what an encoder makes of each token, and [texts] where texts begin.

    Args:
        trunk: The encoder of a model that `flatten` prepared.
        input_ids: Of each text; texts of equal length stand side by side.
        token_type_ids: Of each text; by default 0.
    """
    lengths = [len(ids) for ids in input_ids]
    starts = np.cumsum([0, *lengths])
    total, embeddings = int(starts[-1]), trunk.embeddings
    ids, types, positions = torch.zeros((3, 1, rows_for(total)), dtype=torch.long)
    ids[0, :total] = torch.from_numpy(np.concatenate(input_ids))
    if token_type_ids is not None:
        types[0, :total] = torch.from_numpy(np.concatenate(token_type_ids))
    runs, start = [], 0
    for length, group in groupby(lengths):
        stop = start + length * sum(1 for _ in group)
        if hasattr(embeddings, "create_position_ids_from_input_ids"):  # RoBERTa's
            same = ids[0, start:stop].view(-1, length)
            numbers = embeddings.create_position_ids_from_input_ids(same, embeddings.padding_idx)
        else:
            numbers = torch.arange(length).repeat((stop - start) // length)
        positions[0, start:stop] = numbers.flatten()
        runs.append((start, stop, length))
        start = stop
    output = trunk(input_ids=ids, token_type_ids=types, position_ids=positions, runs=runs)
    return output[0][0], torch.from_numpy(starts[:-1])


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    runs: Sequence[tuple[int, int, int]] | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Let each text attend to itself; three of (1, heads, tokens, size) → (1, tokens, heads, size).

    Args:
        module: The layer.
        query: What each token looks for.
        key: What it is found by.
        value: What is read of it.
        attention_mask: Of a call without `runs`.
        scaling: Factor of the products.
        runs: Half-open ranges of tokens, and the length of each text in them; by default the model
            was called as transformers' own is.
        **options: Of a call without `runs`.
    """
    if runs is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **options
        )
    _, heads, tokens, size = query.shape
    flat = [each.transpose(1, 2).view(tokens, heads, size) for each in (query, key, value)]
    found = torch.zeros_like(flat[0])
    for start, stop, length in runs:
        q, k, v = (each[start:stop].view(-1, length, heads, size).transpose(1, 2) for each in flat)
        own = scaled_dot_product_attention(q, k, v, scale=scaling).transpose(1, 2)
        found[start:stop] = own.reshape(stop - start, heads, size)
    return found[None], None
