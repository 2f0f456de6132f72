"""Sentences → pseudo-log-likelihoods, by the within-word left-to-right scheme.

Kauf and Ivanova (2023, arXiv 2305.10588), PLL-word-l2r: a token is scored with itself and the
later tokens of its word masked, so that a word's last pieces do not give away its first. The sum
over all tokens, in nats, is the sentence's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from generation.suggestions.masked_lm import Input

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from generation.suggestions.masked_lm import MaskedLM

SCHEME: Final = "PLL-word-l2r"

_IDS_AT_ONCE: Final = {"cpu": 2**14}
_IDS_AT_ONCE_ACCELERATOR: Final = 2**20
"""Token ids of masked sentences held at a time: enough to fill batches of equal length."""


@dataclass(frozen=True, slots=True)
class Likelihoods:
    """Of n sentences."""

    pll: NDArray[np.float64]
    """[n] In nats."""
    windowed: NDArray[np.bool_]
    """[n] Whether tokens were scored within windows, as the sentence is too long for the model."""

    def take(self, rows: slice) -> Likelihoods:
        """Some of them."""
        return Likelihoods(self.pll[rows], self.windowed[rows])


def pseudo_log_likelihoods(
    mlm: MaskedLM,
    sentences: Sequence[str],
    *,
    batch_tokens: int | None = None,
    on_progress: Callable[[int], object] = lambda sentences: None,
) -> Likelihoods:
    """Score sentences; a score does not depend on which others are scored with it.

    A sentence of more tokens than the model takes is scored token by token within a window
    around the token, as wide as the model allows.

    Args:
        mlm: The masked LM.
        sentences: In any order.
        batch_tokens: Most tokens in a forward pass; by default what suits the device.
        on_progress: Called with the number of sentences done, as they are done.
    """
    encodings = mlm.encode(sentences)
    pll = np.zeros(len(sentences))
    windowed = np.array([len(each.ids) > mlm.max_tokens for each in encodings], np.bool_)
    at_once = _IDS_AT_ONCE.get(mlm.device, _IDS_AT_ONCE_ACCELERATOR)
    for rows in _groups([len(each.ids) for each in encodings], at_once):
        inputs: list[Input] = []
        owner: list[int] = []
        for row in rows:
            for ids, position, token in _masked(sentences[row], encodings[row], mlm):
                inputs.append(Input(len(inputs), ids, position, token, bool(windowed[row])))
                owner.append(row)
        log_probs = mlm.log_probs(inputs, batch_tokens=batch_tokens).astype(np.float64)
        # Adds in the order of the tokens, so that the sum is the same to the bit.
        np.add.at(pll, owner, log_probs)
        on_progress(len(rows))
    return Likelihoods(pll, windowed)


def _masked(
    sentence: str, encoding: Any, mlm: MaskedLM
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """For each token: ids with it and the rest of its word masked, its place, and the token."""
    ends = word_ends(sentence, encoding)
    for i, token in enumerate(encoding.ids):
        if encoding.special_tokens_mask[i]:
            continue
        ids = list(encoding.ids)
        ids[i : ends[i]] = [mlm.mask_id] * (ends[i] - i)
        kept, position = mlm.fitted(ids, i, encoding)
        yield kept, position, token


def word_ends(sentence: str, encoding: Any) -> list[int]:
    """For each token the place after the last token of its word.

    Words are those of the tokenizer, cut where letters and digits meet other marks, as some
    tokenizers only split at white space ("air."). Special tokens stand alone.

    Args:
        sentence: A text.
        encoding: Its tokens, a `tokenizers.Encoding`.
    """
    words = [
        (number, _is_word(sentence[start:end]))
        for number, (start, end) in zip(encoding.word_ids, encoding.offsets, strict=True)
    ]
    ends = list(range(1, len(words) + 1))
    for i in reversed(range(len(words) - 1)):
        if words[i] == words[i + 1] and words[i][0] is not None:
            ends[i] = ends[i + 1]
    return ends


def _is_word(text: str) -> bool:
    # A token of white space alone, such as "▁", belongs to what follows: nearly always a word.
    return not text.strip() or text.strip().isalnum()


def _groups(lengths: Sequence[int], at_once: int) -> Iterator[list[int]]:
    """Numbers of sentences by length, so many at a time that their inputs fit into memory."""
    group: list[int] = []
    size = 0
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and size + lengths[row] ** 2 > at_once:
            yield group
            group, size = [], 0
        group.append(row)
        size += lengths[row] ** 2
    if group:
        yield group
