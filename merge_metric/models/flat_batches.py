"""Encoders over texts laid end to end: batches of texts of any lengths, without padding.

All but attention looks at one token at a time, so a batch can be one long row of tokens. Rows have
few lengths: to prepare a matrix product for a new one takes longer than a small model's product.
What is wanted is the vector at one token of each text, so the last layer computes no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention

from merge_metric.models.packed_linear import PackedLinear

FLAT: Final = frozenset({"bert", "camembert", "electra", "roberta", "xlm-roberta"})
"""Types of models with the parts of BERT, by its names."""

FEWEST: Final = 16
"""Rows from which on a row's result of a matrix product does not depend on how many there are:
kernels for fewer round otherwise."""
_STEPS: Final = 8
"""Numbers of rows for each power of two."""

Texts = Sequence[Sequence[int]] | Sequence[NDArray[np.int32]]
"""A number for each token of each text."""


def rows_for(count: int) -> int:
    """Round a number of rows up to one of few numbers.

    >>> [rows_for(count) for count in (1, 17, 500, 513)]
    [16, 32, 512, 640]
    """
    step = max(FEWEST, (1 << (count - 1).bit_length()) // _STEPS)
    return -(-count // step) * step


def is_flat(model: Any) -> bool:
    """Tell whether `vectors_at` knows a model's type, and its layers are packed."""
    return (
        model.config.model_type in FLAT
        and not model.config.is_decoder
        and any(type(module) is PackedLinear for module in model.modules())
    )


def tokens_for(model: Any) -> int:
    """Choose a batch's number of tokens: the widest results take 4 MB, to stay in the cache."""
    return rows_for(max(512, 2**20 // int(model.config.intermediate_size)))


def class_logits(model: Any, input_ids: Texts, token_type_ids: Texts | None = None) -> torch.Tensor:
    """Return [texts, classes] what a classifier makes of texts; arguments as of `vectors_at`."""
    trunk = getattr(model, model.base_model_prefix)
    first = vectors_at([0] * len(input_ids), trunk, input_ids, token_type_ids)[:, None]
    pooler = getattr(trunk, "pooler", None)
    logits: torch.Tensor = model.classifier(first if pooler is None else pooler(first))
    return logits[: len(input_ids)]


def vectors_at(
    places: Sequence[int], trunk: Any, input_ids: Texts, token_type_ids: Texts | None = None
) -> torch.Tensor:
    """Return [texts or more, width] what an encoder makes of a token of each text, then filler.

    Args:
        places: Index of the wanted token in each text.
        trunk: The encoder of a model for which `is_flat` holds.
        input_ids: Of each text; texts of equal length stand side by side.
        token_type_ids: Of each text; by default 0.
    """
    lengths = [len(ids) for ids in input_ids]
    starts = np.cumsum([0, *lengths])
    total, embeddings = int(starts[-1]), trunk.embeddings
    ids, types, positions = torch.zeros((3, rows_for(total)), dtype=torch.long)
    ids[:total] = torch.from_numpy(np.concatenate(input_ids))
    if token_type_ids is not None:
        types[:total] = torch.from_numpy(np.concatenate(token_type_ids))
    runs, text, start = [], 0, 0  # of texts of equal length
    for length, group in groupby(lengths):
        count = sum(1 for _ in group)
        stop = start + count * length
        if hasattr(embeddings, "create_position_ids_from_input_ids"):  # RoBERTa's
            same = ids[start:stop].view(-1, length)
            numbers = embeddings.create_position_ids_from_input_ids(same, embeddings.padding_idx)
        else:
            numbers = torch.arange(length).repeat(count)
        positions[start:stop] = numbers.flatten()
        runs.append((count, slice(start, stop), slice(text, text + count)))
        text, start = text + count, stop
    wanted = torch.from_numpy(starts[:-1] + np.asarray(places))
    wanted = torch.cat([wanted, wanted[-1:].expand(rows_for(text) - text)])

    # Before attention equal tokens in equal places are equal, as most are of variants of a text.
    places_of = (ids * len(embeddings.token_type_embeddings.weight) + types) * (
        len(embeddings.position_embeddings.weight)
    ) + positions
    _, example, same = np.unique(places_of.numpy(), return_index=True, return_inverse=True)
    more = rows_for(len(example)) - len(example)
    kept = torch.from_numpy(np.pad(example, (0, more), mode="edge"))
    states: torch.Tensor = embeddings.word_embeddings(ids[kept])
    states = states + embeddings.token_type_embeddings(types[kept])
    states = embeddings.LayerNorm(states.add_(embeddings.position_embeddings(positions[kept])))
    if hasattr(trunk, "embeddings_project"):  # ELECTRA's
        states = trunk.embeddings_project(states)
    every: Any = torch.from_numpy(same)
    for layer in trunk.encoder.layer:
        own, is_last = layer.attention.self, layer is trunk.encoder.layer[-1]
        asking = states[every][wanted] if is_last else states[every]
        shape = (-1, own.num_attention_heads, own.attention_head_size)
        of_tokens = own.query(asking), own.key(states)[every], own.value(states)[every]
        query, key, value = (rows.view(shape) for rows in of_tokens)
        every = slice(None)  # states of all tokens follow
        found = torch.zeros_like(query)
        for count, tokens, texts in runs:
            rows = texts if is_last else tokens
            q, k, v = (
                each.view(count, -1, *shape[1:]).transpose(1, 2)
                for each in (query[rows], key[tokens], value[tokens])
            )
            attended = scaled_dot_product_attention(q, k, v, scale=own.scaling).transpose(1, 2)
            found[rows] = attended.reshape(-1, *shape[1:])
        states = layer.attention.output(found.flatten(1), asking)
        states = layer.output(layer.intermediate(states), states)
    return states
