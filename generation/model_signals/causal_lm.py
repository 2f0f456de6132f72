"""Log-likelihoods of sentences by a causal language model: the sum over tokens of log P(token).

Each token is predicted from all before it, so a sentence takes one forward pass, where
pseudo-log-likelihood takes one per token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from generation.model_signals.likelihoods import Likelihoods
from merge_metric.models.checkpoints import load
from merge_metric.models.heads import CAUSAL_LM
from merge_metric.models.inspection import inspect

_ROWS: Final = {"cpu": 8}
_ROWS_ACCELERATOR: Final = 64
"""Rows of a forward pass: always as many, as matrix kernels take other paths for fewer, with other
rounding. Smaller batches are filled up with copies."""
_MOST_TOKENS: Final = 1024
"""Longest input of a model without a limit; of one with a longer limit, too."""


class CausalLM:
    """A causal language model that scores sentences."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str, revision: str) -> None:
        """Wrap a live model; `load` is the usual way in.

        Args:
            model: Any `*ForCausalLM`, already on its device, in its dtype.
            tokenizer: Its fast tokenizer.
            name: Name in manifests.
            revision: Identifies its weights and tokenizer.

        Raises:
            ValueError: it has no token to begin a sentence with.
        """
        self.name, self.revision = name, revision
        self.architecture = type(model).__name__
        self.device = str(model.device.type)
        self.dtype = str(model.dtype).removeprefix("torch.")
        self._model, self._tokenizer = model.eval(), tokenizer
        self._start = _start_token(tokenizer, name)
        limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self.max_tokens = min(int(limit or _MOST_TOKENS), _MOST_TOKENS)

    @classmethod
    def load(
        cls, model: str | Path, *, name: str, device: str = "auto", dtype: str = "float32"
    ) -> Self:
        """Load a causal LM from a directory, from the Hub, or from a GGUF file.

        Args:
            model: Directory, Hub id with an optional `@revision`, or a .gguf file.
            name: Name in manifests.
            device: `auto` takes a GPU if there is one.
            dtype: `float32` is the reference.

        Raises:
            ValueError: no such model, or no weights that are read.
        """
        loaded = load(inspect(model, CAUSAL_LM), device=device, dtype=dtype)
        return cls(loaded.model, loaded.tokenizer, name=name, revision=loaded.revision)

    def log_likelihoods(
        self,
        sentences: Sequence[str],
        *,
        on_progress: Callable[[int], object] = lambda sentences: None,
    ) -> Likelihoods:
        """Score sentences; a score does not depend on which others are scored with it.

        A sentence of more tokens than the model takes is scored in windows that overlap by half:
        each token is predicted from half a window before it at least.

        Args:
            sentences: In any order.
            on_progress: Called with the number of sentences done, as they are done.
        """
        # As the tokens of "<s>" in a text are that text, not the start of another one.
        encoded = self._tokenizer(
            list(sentences), add_special_tokens=False, split_special_tokens=True
        ).input_ids
        total = np.zeros(len(sentences))
        pieces = [
            (len(ids), row, ids, first)
            for row, of_row in enumerate(encoded)
            for ids, first in self._windows(of_row)
        ]
        pieces.sort(key=lambda piece: (piece[0], piece[1]))
        rows = _ROWS.get(self.device, _ROWS_ACCELERATOR)
        for _, alike in groupby(pieces, key=lambda piece: piece[0]):
            of_length = list(alike)
            for start in range(0, len(of_length), rows):
                batch = of_length[start : start + rows]
                scores = self._run([ids for _, _, ids, _ in batch], rows)
                for (_, row, _, first), own in zip(batch, scores, strict=True):
                    total[row] += own[first:].sum()
                on_progress(sum(first == 0 for *_, first in batch))
        return Likelihoods(
            total, np.array([len(ids) >= self.max_tokens for ids in encoded], np.bool_)
        )

    def _windows(self, ids: Sequence[int]) -> Iterator[tuple[list[int], int]]:
        """Yield inputs that begin with the start token, and the first of their scores to count."""
        width, start, done = self.max_tokens - 1, 0, 0
        while done < len(ids):
            yield [self._start, *ids[start : start + width]], done - start
            done = start + width
            start += width // 2

    def _run(self, inputs: Sequence[Sequence[int]], rows: int) -> np.ndarray[Any, Any]:
        """Return [n, tokens − 1] log P of all tokens but the first, in float64.

        Args:
            inputs: Of equal length.
            rows: Of the forward pass.
        """
        import torch

        padded = [*inputs, *[inputs[-1]] * (rows - len(inputs))]
        ids = torch.tensor(padded, device=self._model.device)
        if ids.shape[1] < 2:
            return np.zeros((len(inputs), 0))
        with torch.inference_mode():
            logits = self._model(input_ids=ids, use_cache=False).logits[:, :-1].float()
            chosen = logits.gather(2, ids[:, 1:, None])[..., 0]
            log_probs = chosen - logits.logsumexp(2)
        scores: np.ndarray[Any, Any] = log_probs[: len(inputs)].double().cpu().numpy()
        return scores


def _start_token(tokenizer: Any, name: str) -> int:
    """Return the token that a text begins with.

    Chat models begin a turn with their own, and texts as they were trained before with
    `<|endoftext|>`, where they have it.
    """
    known = tokenizer.get_vocab()
    for token in (
        known.get("<|endoftext|>"),
        tokenizer.bos_token_id,
        tokenizer.eos_token_id,
    ):
        if token is not None:
            return int(token)
    raise ValueError(
        f"{name}: expected a tokenizer with a token that begins or ends texts, found none; name "
        "another model with --lm, or a masked LM with --mlm"
    )
