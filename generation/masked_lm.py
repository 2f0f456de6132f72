"""Masked queries → the most probable tokens and their logits (D3–D5).

Of the modules here the only one that runs torch and transformers; `paraphrase/` has another.
"""

from __future__ import annotations

import random
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from generation.records import MaskedQuery, Scores, Span
from generation.vocabulary import Vocabulary, read_vocabulary
from merge_metric.predict.weights import digest_of_files, resolve_device

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel

_HEADS: Final = {
    "bert": ("cls",),
    "roberta": ("lm_head",),
    "xlm-roberta": ("lm_head",),
    "camembert": ("lm_head",),
    "mpnet": ("lm_head",),
    "albert": ("predictions",),
    "electra": ("generator_predictions", "generator_lm_head"),
    "distilbert": ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
    "modernbert": ("head", "decoder"),
}
"""Model type → the modules after the trunk, in order. Other types run whole."""

_FILES: Final = frozenset({".json", ".safetensors", ".model", ".txt"})
"""What a model's folder is known by: configuration, tokenizer and weights."""
_BATCH_TOKENS: Final = {"cpu": 512}
_BATCH_TOKENS_ACCELERATOR: Final = 16_384
_HEAD_ROWS: Final = {"cpu": 256}
_HEAD_ROWS_ACCELERATOR: Final = 2048
"""Masks that the head takes at a time: its matrix is the vocabulary, and wants more rows than a
batch of sentences has masks."""
_FEWEST_ROWS: Final = 16
"""Matrix kernels take another path for fewer rows, with other rounding; smaller inputs
are filled up with copies, so that a score never depends on what it is batched with."""
_IN_FLIGHT: Final = 3
"""Results left on the device while it works on: fetching the newest would make it idle."""


@dataclass(frozen=True, slots=True)
class _Input:
    """One query as the model sees it."""

    row: int
    """Index of the query."""
    ids: tuple[int, ...]
    position: int
    """Index in `ids` of the mask asked about."""
    original: int
    windowed: bool


@dataclass(frozen=True, slots=True)
class _Best:
    """What the model says about some inputs, perhaps still being computed on its device."""

    inputs: list[_Input]
    tokens: torch.Tensor
    """[inputs, k]"""
    logits: torch.Tensor
    """[inputs, k]"""
    original_logit: torch.Tensor
    """[inputs]"""
    log_normalizer: torch.Tensor
    """[inputs]"""

    def write(self, scores: Scores) -> None:
        """Wait for the device and put the results where they belong."""
        rows = [i.row for i in self.inputs]
        scores.original[rows] = [i.original for i in self.inputs]
        scores.windowed[rows] = [i.windowed for i in self.inputs]
        for name in ("tokens", "logits", "original_logit", "log_normalizer"):
            getattr(scores, name)[rows] = getattr(self, name).cpu().numpy()


class MaskedLM:
    """A masked language model and its tokenizer."""

    def __init__(self, model: PreTrainedModel, tokenizer: Any, *, name: str, revision: str) -> None:
        """Wrap a live model; `load` is the usual way in.

        Args:
            model: Any `*ForMaskedLM`, already on its device, in its dtype.
            tokenizer: Its fast tokenizer, with a mask token.
            name: What provenance columns call the model.
            revision: What identifies its weights and tokenizer.

        Raises:
            ValueError: the tokenizer is not a fast one or has no mask token.
        """
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(
                f"{name}: expected a fast tokenizer (character offsets are needed), got "
                f"{type(tokenizer).__name__}"
            )
        if tokenizer.mask_token_id is None:
            raise ValueError(f"{name}: expected a tokenizer with a mask token, it has none")
        self.name, self.revision = name, revision
        self.architecture = type(model).__name__
        self._model: Any = model.eval()  # type: ignore[no-untyped-call]
        self._mask_id: int = tokenizer.mask_token_id
        self._tokenizer = _plain_copy(tokenizer.backend_tokenizer)
        self._special_ids = frozenset(tokenizer.all_special_ids)
        self.max_tokens = _max_tokens(model, tokenizer)

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        name: str | None = None,
        device: str = "auto",
        dtype: str = "float32",
    ) -> Self:
        """Load a masked LM from a directory or from the Hub.

        Weights must be safetensors; no code of the repository is run.

        Args:
            model: Directory, or Hub id with an optional `@revision`.
            name: What provenance calls it; by default the id or the folder's name.
            device: `auto` takes a GPU if there is one.
            dtype: `float32` is the reference (D5).

        Raises:
            ValueError: no such model, no safetensors, or no trained masked-LM head.
        """
        import torch
        from transformers import AutoModelForMaskedLM, AutoTokenizer

        from merge_metric.predict.packed_linear import pack_linear_layers

        path = Path(model)
        source, _, revision = (str(model), "", "") if path.is_dir() else str(model).partition("@")
        arguments = {"revision": revision or None, "trust_remote_code": False}
        try:
            tokenizer = AutoTokenizer.from_pretrained(source, **arguments)
            weights, info = AutoModelForMaskedLM.from_pretrained(
                source,
                dtype=getattr(torch, dtype),
                use_safetensors=True,
                output_loading_info=True,
                **arguments,
            )
        except (OSError, ValueError) as error:
            raise ValueError(
                f"expected a masked LM with safetensors weights in a folder or on the Hub, "
                f"could not load {str(model)!r}: {error}"
            ) from error
        if missing := sorted(info["missing_keys"]):
            raise ValueError(
                f"{model}: expected a trained masked-LM head, but the checkpoint lacks "
                f"{missing[:3]}; is it a model for another task?"
            )
        weights = pack_linear_layers(weights.to(resolve_device(device)))
        commit = None if path.is_dir() else getattr(weights.config, "_commit_hash", None)
        return cls(
            weights,
            tokenizer,
            name=name or (path.name if path.is_dir() else source),
            revision=commit
            or digest_of_files(file for file in path.iterdir() if file.suffix in _FILES),
        )

    @property
    def device(self) -> str:
        """Device type: `cpu`, `cuda`, `mps`."""
        return str(self._model.device.type)

    @property
    def dtype(self) -> str:
        """Name of the weights' dtype, such as `float32`."""
        return str(self._model.dtype).removeprefix("torch.")

    @property
    def questions_at_once(self) -> int:
        """As many as fill the device's batches, though sentences differ in length."""
        return 1 if self.device == "cpu" else 32_768

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """What each token id reads as, and which ids are whole words."""
        return read_vocabulary(self._tokenizer, self._special_ids)

    def score(
        self,
        queries: Sequence[MaskedQuery],
        *,
        k: int,
        batch_tokens: int | None = None,
        on_progress: Callable[[int], object] = lambda queries: None,
    ) -> Scores:
        """The `k` most probable tokens at each query's mask (D4).

        Sentences of equal length share a batch, so there is no padding and a query's
        scores do not depend on its company. The head runs on the masked rows alone.

        Args:
            queries: What to ask.
            k: Suggestions wanted; the size of the vocabulary bounds it.
            batch_tokens: Most tokens in a forward pass.
            on_progress: Called with the number of queries done, as they are done.

        Returns:
            One row per query, in order. Queries whose word, or whose other masked
            occurrence, is not exactly one token stay empty (D3).
        """
        k = min(k, int(self._model.config.vocab_size))
        budget = batch_tokens or _BATCH_TOKENS.get(self.device, _BATCH_TOKENS_ACCELERATOR)
        scores = Scores.empty(len(queries), k)
        inputs = [i for i in self._inputs(queries) if i is not None]
        on_progress(len(queries) - len(inputs))
        rows = _HEAD_ROWS.get(self.device, _HEAD_ROWS_ACCELERATOR)
        waiting: deque[_Best] = deque()
        for group in _groups(_batches(inputs, budget), rows):
            waiting.append(self._best(group, k, on_progress))
            if len(waiting) > _IN_FLIGHT:
                waiting.popleft().write(scores)
        while waiting:
            waiting.popleft().write(scores)
        return scores

    def _inputs(self, queries: Sequence[MaskedQuery]) -> Iterator[_Input | None]:
        sentences = list(dict.fromkeys(query.sentence for query in queries))
        encodings = dict(zip(sentences, self._tokenizer.encode_batch(sentences), strict=True))
        tokens_at = {s: _token_of_span(s, e) for s, e in encodings.items()}
        for row, query in enumerate(queries):
            located = tokens_at[query.sentence]
            ids = encodings[query.sentence].ids
            masked = [located.get(span) for span in query.masked]
            if all(i is not None and self._is_word(ids[i], query, span)
                   for i, span in zip(masked, query.masked, strict=True)):  # fmt: skip
                yield self._input(row, encodings[query.sentence], located[query.span], masked)
            else:
                yield None

    def _is_word(self, token: int, query: MaskedQuery, span: Span) -> bool:
        """Whether the token stands for the word: not for "unknown", nor for another text."""
        word = query.sentence[slice(*span)]
        return self.vocabulary.is_text(token) and _folded(self.vocabulary.texts[token]) == _folded(
            word
        )

    def _input(self, row: int, encoding: Any, position: int, masked: Sequence[Any]) -> _Input:
        ids = list(encoding.ids)
        original = ids[position]
        for i in masked:
            ids[i] = self._mask_id
        if len(ids) <= self.max_tokens:
            return _Input(row, tuple(ids), position, original, False)
        special = encoding.special_tokens_mask
        head = next(i for i, flag in enumerate(special) if not flag)
        tail = next(i for i, flag in enumerate(reversed(special)) if not flag)
        room = self.max_tokens - head - tail
        first = min(max(position - room // 2, head), len(ids) - tail - room)
        kept = ids[:head] + ids[first : first + room] + ids[len(ids) - tail :]
        return _Input(row, tuple(kept), position - first + head, original, True)

    def _run(self, batch: list[_Input]) -> torch.Tensor:
        """[batch, width] The trunk's vector at each mask; whole models give logits at once."""
        import torch

        length = len(batch[0].ids)
        rows = max(len(batch), -(-_FEWEST_ROWS // length))
        filled = [batch[min(i, len(batch) - 1)] for i in range(rows)]
        ids = self._to_device([i.ids for i in filled])
        positions = self._to_device([i.position for i in filled])
        output: torch.Tensor = self._trunk(input_ids=ids)[0]
        return output[torch.arange(rows, device=self._model.device), positions][: len(batch)]

    def _best(
        self, batches: list[list[_Input]], k: int, on_progress: Callable[[int], object]
    ) -> _Best:
        """Run trunk and head; the results stay on the device, and need not be there yet."""
        import torch

        inputs = [i for batch in batches for i in batch]
        found = []
        with torch.inference_mode():
            for batch in batches:
                found.append(self._run(batch))
                on_progress(len(batch))
            vectors = torch.cat(found)
            if (few := _FEWEST_ROWS - len(inputs)) > 0:
                vectors = torch.cat([vectors, vectors[-1:].expand(few, -1)])
            logits = self._head(vectors)[: len(inputs)].float()
            best = logits.topk(k, dim=-1)
            own = logits.gather(1, self._to_device([[i.original] for i in inputs]))[:, 0]
            # In place, from the maximum that is known: logits are large, and not needed any more.
            highest = best.values[:, :1]
            log_normalizer = logits.sub_(highest).exp_().sum(-1).log_() + highest[:, 0]
            return _Best(inputs, best.indices, best.values, own, log_normalizer)

    def _to_device(self, numbers: Sequence[Any]) -> torch.Tensor:
        import torch

        return torch.tensor(numbers).to(self._model.device, non_blocking=True)

    @cached_property
    def _trunk(self) -> Callable[..., Any]:
        """The model without its head; the whole model where the head is not known."""
        if self._model.config.model_type in _HEADS:
            trunk: Callable[..., Any] = getattr(self._model, self._model.base_model_prefix)
            return trunk
        return self._model  # type: ignore[no-any-return]

    def _head(self, vectors: torch.Tensor) -> torch.Tensor:
        for module in _HEADS.get(self._model.config.model_type, ()):
            vectors = getattr(self._model, module)(vectors)
        return vectors


def _batches(inputs: Sequence[_Input], budget: int) -> list[list[_Input]]:
    """Inputs of equal length, at most `budget` tokens together.

    Short and long batches come in random order, so that the speed seen so far is an
    honest estimate of the speed to come.
    """
    batches = []
    ordered = sorted(inputs, key=lambda i: (len(i.ids), i.row))
    for length, group in groupby(ordered, key=lambda i: len(i.ids)):
        same = list(group)
        size = max(1, budget // length)
        batches += [same[start : start + size] for start in range(0, len(same), size)]
    random.Random(0).shuffle(batches)
    return batches


def _groups(batches: Iterable[list[_Input]], rows: int) -> Iterator[list[list[_Input]]]:
    """Batches in groups of at least so many rows: the head wants more than the trunk."""
    group: list[list[_Input]] = []
    for batch in batches:
        group.append(batch)
        if sum(map(len, group)) >= rows:
            yield group
            group = []
    if group:
        yield group


def _token_of_span(sentence: str, encoding: Any) -> dict[Span, int]:
    """Half-open character span → index of the one token that covers just that (D3).

    Tokenizers that count the space before a word as part of its token are put right.
    Tokens that overlap (a lone "▁" over its word's first letter, the bytes of one
    character) are several tokens for one word, and left out.
    """
    spans: list[tuple[int, int, int]] = []
    for i, (start, end) in enumerate(encoding.offsets):
        text = sentence[start:end]
        start += len(text) - len(text.lstrip())
        end -= len(text) - len(text.rstrip())
        if start < end and not encoding.special_tokens_mask[i]:
            spans.append((start, end, i))
    before = [0, *(end for _, end, _ in spans)]
    after = [*(start for start, _, _ in spans[1:]), len(sentence)]
    return {
        (start, end): i
        for (start, end, i), last, following in zip(spans, before, after, strict=False)
        if last <= start and end <= following
    }


def _folded(text: str) -> str:
    """Lower case without accents, as uncased tokenizers see text."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c)).casefold()


def _plain_copy(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer without truncation or padding, whatever its file says."""
    from tokenizers import Tokenizer

    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def _max_tokens(model: PreTrainedModel, tokenizer: Any) -> int:
    """Longest input in tokens, special ones included.

    RoBERTa and its kin count positions from `padding_idx + 1`.
    """
    positions = getattr(model.config, "max_position_embeddings", None) or 10**9
    embeddings = getattr(model.base_model, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    if padding is not None:
        positions -= padding + 1
    return int(min(positions, tokenizer.model_max_length))
