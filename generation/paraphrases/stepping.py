"""A language model in the middle of a batch: reads its rows on, token by token.

Prompts are read once per request, and beams share what came of it: keys and values of a
prompt, or a text's encoding, are copied to the rows that go on from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.modeling_outputs import BaseModelOutput

from generation.paraphrases.beams import Following, Ints


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The token ids that are not text."""

    start: tuple[int, ...]
    """What a decoder begins with; empty where the prompt itself is read on."""
    ends: tuple[int, ...]
    """Tokens that end a text, at least one."""
    never: tuple[int, ...]
    """Tokens that are not chosen, the ends among them."""


class Stepper:
    """The `NextTokens` of one batch of prompts. To be used in inference mode."""

    def __init__(
        self,
        model: Any,
        prompts: Sequence[Sequence[int]],
        temperatures: Sequence[float],
        special: SpecialTokens,
    ) -> None:
        """Pad the prompts: on the left what is read on, on the right what is encoded.

        Args:
            model: An encoder-decoder or causal model of transformers with a cache.
            prompts: Token ids of each request.
            temperatures: What each request's logits are divided by.
            special: What ends a text, and so on.
        """
        self._model, self._special = model, special
        self._encodes: bool = model.config.is_encoder_decoder
        self._parameters = inspect.signature(model.forward).parameters
        left = not self._encodes
        self._ids = self._tensor(_padded(prompts, left=left))
        self._mask = self._tensor(_padded([[1] * len(ids) for ids in prompts], left=left))
        self._ends, self._never = self._tensor(special.ends), self._tensor(special.never)
        self._temperatures = self._tensor(temperatures)[:, None]
        self._requests: Ints = np.arange(len(prompts))
        """The request of each row."""
        self._encoded: torch.Tensor | None = None
        self._cache: Any = None

    @property
    def vocabulary(self) -> int:
        """Number of tokens there are."""
        return int(self._model.config.get_text_config().vocab_size)

    def start(self, k: int) -> Following:
        """Read the prompts; see `NextTokens`."""
        if not self._encodes:
            return self._read(self._ids, k)
        encoder = self._model.get_encoder()
        self._encoded = encoder(input_ids=self._ids, attention_mask=self._mask).last_hidden_state
        return self._read(self._tensor([self._special.start] * len(self._ids)), k)

    def advance(self, rows: Ints, tokens: Ints, k: int) -> Following:
        """Go on with some rows; see `NextTokens`."""
        index, requests = self._tensor(rows), self._requests[rows]
        same = np.array_equal(requests, self._requests)
        if self._encodes:
            self._cache.self_attention_cache.reorder_cache(index)
            if not same and self._encoded is not None:
                self._cache.cross_attention_cache.reorder_cache(index)
                self._encoded = self._encoded[index]
        else:
            self._cache.reorder_cache(index)
        if not same:
            self._mask = self._mask[index]
        self._requests = requests
        if not self._encodes:
            self._mask = torch.cat([self._mask, self._mask.new_ones(len(index), 1)], dim=-1)
        return self._read(self._tensor(tokens)[:, None], k)

    def _read(self, ids: torch.Tensor, k: int) -> Following:
        """Run the model over new tokens of all rows."""
        arguments: dict[str, Any] = {
            "attention_mask": self._mask,
            "past_key_values": self._cache,
            "use_cache": True,
        }
        if self._encodes:
            arguments["decoder_input_ids"] = ids
            arguments["encoder_outputs"] = BaseModelOutput(last_hidden_state=self._encoded)
        else:
            arguments["input_ids"] = ids
            if "position_ids" in self._parameters:
                positions = (self._mask.cumsum(-1) - 1).clamp(min=0)
                arguments["position_ids"] = positions[:, -ids.shape[1] :]
            if "logits_to_keep" in self._parameters:
                arguments["logits_to_keep"] = 1
        output = self._model(**arguments)
        self._cache = output.past_key_values
        return self._following(output.logits[:, -1], k)

    def _following(self, logits: torch.Tensor, k: int) -> Following:
        precise = torch.promote_types(logits.dtype, torch.float32)
        scaled = logits.to(precise) / self._temperatures[self._tensor(self._requests)].to(precise)
        normaliser = scaled.logsumexp(-1, keepdim=True)
        ends = scaled[:, self._ends].max(-1)
        scaled.index_fill_(1, self._never, -torch.inf)
        best = scaled.topk(min(k, scaled.shape[-1] - len(self._never)))
        return Following(
            tokens=best.indices.cpu().numpy(),
            log_probs=(best.values - normaliser).double().cpu().numpy(),
            ends=self._ends[ends.indices].cpu().numpy(),
            end_log_probs=(ends.values - normaliser[:, 0]).double().cpu().numpy(),
        )

    def _tensor(self, numbers: Any) -> torch.Tensor:
        return torch.as_tensor(numbers, device=self._model.device)


def _padded(rows: Sequence[Sequence[int]], *, left: bool) -> list[list[int]]:
    """Rows of one length, filled up with zeros.

    >>> _padded([[1, 2], [3]], left=True)
    [[1, 2], [0, 3]]
    """
    width = max(len(row) for row in rows)
    filled = [(list(row), [0] * (width - len(row))) for row in rows]
    return [fill + row if left else row + fill for row, fill in filled]
