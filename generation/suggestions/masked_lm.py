"""Masked LMs: the most probable tokens at masked words, and their logits (D3–D5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from unicodedata import combining, normalize

import numpy as np
import torch
from numpy.typing import NDArray

from generation.records import MaskedQuery, Scores, Span
from generation.suggestions.vocabulary import Vocabulary, read_vocabulary
from merge_metric.models import fast_layers
from merge_metric.models.checkpoints import Loaded, load, max_tokens
from merge_metric.models.inspection import MASKED_LM, inspect
from merge_metric.models.pair_model import batches_of
from merge_metric.models.tokens import count_unknown, plain_tokenizer

_Reduced = TypeVar("_Reduced")

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
    "bart": ("lm_head",),
}
"""Model type → modules after the trunk, in order. Models of other types run as a whole."""

_HEAD_ROWS_CPU, _HEAD_ROWS = 128, 2048
"""Masks per pass of the head: its matrix has a row per word of the vocabulary, and needs more
masks at a time than a batch of sentences has."""
_LOOKED_AT: Final = 32
"""Number of rows of logits that a CPU reduces together, so that they stay in its cache."""
_BLOCK: Final = 16
"""Logits in a block, whose maximum `most_probable` takes, to find a threshold for all logits."""
_IN_FLIGHT: Final = 3
"""Number of results left on the device while it works on; fetching the newest would idle it."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """A tokenised text as lists, [tokens] each; the library's class copies them at each access."""

    ids: list[int]
    offsets: list[Span]
    """Half-open character span of each token."""
    special_tokens_mask: list[int]
    """1 for each token that is not part of the text."""
    word_ids: list[int | None]
    """Number of the tokenizer's word; None for special tokens."""


@dataclass(frozen=True, slots=True)
class Input:
    """A text as input of the model, and the mask whose tokens are asked for."""

    row: int
    """Number of the question, and row of the answer."""
    ids: tuple[int, ...]
    position: int
    original: int
    """The masked token, whose score is asked for too."""
    windowed: bool


class MaskedLM:
    """A masked language model and its tokenizer."""

    def __init__(self, loaded: Loaded, *, unpadded: bool = False) -> None:
        """Wrap a live `*ForMaskedLM`; `load` is the usual way in."""
        model, tokenizer, name, self.revision, self.weights = loaded
        if not getattr(tokenizer, "is_fast", False) or tokenizer.mask_token_id is None:
            raise ValueError(
                f"{name}: expected a fast tokenizer, as offsets are needed, with a mask token, got "
                f"{type(tokenizer).__name__} with the mask token {tokenizer.mask_token}"
            )
        self.name, self.architecture = name, type(model).__name__
        self._model: Any = model.eval()
        if self._model.config.is_encoder_decoder:
            self._model.config.use_cache = False  # only useful for a decoder that generates tokens
        self.mask_id: int = tokenizer.mask_token_id
        self._tokenizer = plain_tokenizer(tokenizer)
        self._special_ids = frozenset(tokenizer.all_special_ids)
        self._unknown_id: int | None = tokenizer.unk_token_id
        self.max_tokens = max_tokens(model, tokenizer) or 10**9  # no limit
        self.unpadded = unpadded and fast_layers.reads_unpadded(model, tokenizer, name)
        """Whether texts lie end to end on a GPU."""
        self._is_flat = fast_layers.is_flat(model) or self.unpadded
        self.batch_tokens = fast_layers.tokens_for(model)
        """Maximum of tokens in a forward pass."""
        self._filler = fast_layers.filler_for(model)

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        name: str | None = None,
        device: str = "auto",
        dtype: str = "float32",
        batch_tokens: int | None = None,
        unpadded: bool = False,
    ) -> Self:
        """Load a masked LM from a directory, or from the Hub with an optional `@revision`.

        `name`, by default the id or the folder's name, is for provenance columns.
        """
        loaded = load(inspect(model, MASKED_LM), device=device, dtype=dtype)
        mlm = cls(loaded._replace(name=name or loaded.name), unpadded=unpadded)
        mlm.batch_tokens = batch_tokens or mlm.batch_tokens
        return mlm

    @property
    def device(self) -> str:
        """Device type: `cpu`, `cuda`, `mps`."""
        return str(self._model.device.type)

    @property
    def dtype(self) -> str:
        """Name of the weights' dtype, such as `float32`."""
        return str(self._model.dtype).removeprefix("torch.")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Text and kind of each token id."""
        return read_vocabulary(self._tokenizer, self._special_ids)

    def unknown_tokens(self, texts: Sequence[str]) -> dict[str, Any]:
        """Count tokens of texts that the tokenizer does not know; empty if they are few."""

        def tokenize(sample: list[str]) -> list[list[int]]:
            encodings = self._tokenizer.encode_batch_fast(sample, add_special_tokens=False)
            return [encoding.ids for encoding in encodings]

        return count_unknown([[text] for text in texts], tokenize, self._unknown_id)

    def answer(
        self, queries: Sequence[MaskedQuery], *, k: int
    ) -> Iterator[tuple[list[int], Scores]]:
        """Yield rows of queries and the `k` most probable tokens at their masks (D4), as they come.

        Queries whose word, or another masked occurrence, is not exactly one token stay empty (D3).
        """
        inputs, k = list(self._inputs(queries)), min(k, int(self._model.config.vocab_size))
        if without := sorted({*range(len(queries))} - {i.row for i in inputs}):
            yield without, Scores.empty(len(without), k)
        names = ("tokens", "logits", "original_logit", "log_normalizer")

        def best_of(
            inputs: list[Input], logits: torch.Tensor
        ) -> tuple[list[Input], tuple[torch.Tensor, ...]]:
            originals = self._to_device([[i.original] for i in inputs])
            size, parts = _LOOKED_AT if self.device == "cpu" else len(inputs), []
            for start in range(0, len(inputs), size):
                some = logits[start : start + size]
                tokens, values = most_probable(some, k)
                own = some.gather(1, originals[start : start + size])[:, 0]
                # In place, starting from the known maximum: logits are large.
                highest = values[:, :1]
                relative = some.sub_(highest).exp_()
                log_normalizer = relative.sum(-1).log_() + highest[:, 0]
                parts.append((tokens, values, own, log_normalizer))
            return inputs, tuple(map(torch.cat, zip(*parts, strict=True)))

        for done, best in self._passes(inputs, best_of):
            of_tokens = {n: v.cpu().numpy() for n, v in zip(names, best, strict=True)}
            scores = Scores(
                original=np.array([i.original for i in done], np.int32),
                windowed=np.array([i.windowed for i in done], np.bool_),
                **of_tokens | {"tokens": of_tokens["tokens"].astype(np.int32)},
            )
            yield [i.row for i in done], scores

    def _inputs(self, queries: Sequence[MaskedQuery]) -> Iterator[Input]:
        """Yield inputs of the queries whose word is one token at all masked occurrences."""
        sentences = list(dict.fromkeys(query.sentence for query in queries))
        encodings = dict(zip(sentences, self.encode(sentences), strict=True))
        tokens_at = {s: tokens_of_spans(s, e) for s, e in encodings.items()}
        for row, query in enumerate(queries):
            encoding, located = encodings[query.sentence], tokens_at[query.sentence]
            if all(
                span in located
                and self.is_word(encoding.ids[located[span]], query.sentence[slice(*span)])
                for span in query.masked
            ):
                ids, place = list(encoding.ids), located[query.span]
                for span in query.masked:
                    ids[located[span]] = self.mask_id
                kept, position = self.fitted(ids, place, encoding)
                yield Input(row, kept, position, encoding.ids[place], len(kept) < len(ids))

    def log_probs(self, inputs: Sequence[Input]) -> NDArray[np.float32]:
        """Return [inputs] log P of each `original` at its mask, in nats; equal ids run once."""
        scores = np.zeros(len(inputs), np.float32)
        alike: dict[tuple[tuple[int, ...], int], list[Input]] = {}
        for item in inputs:
            alike.setdefault((item.ids, item.position), []).append(item)

        def own_of(inputs: list[Input], logits: torch.Tensor) -> tuple[list[int], torch.Tensor]:
            asked = [(n, i) for n, one in enumerate(inputs) for i in alike[one.ids, one.position]]
            places = self._to_device([n for n, _ in asked])
            own = self._to_device([i.original for _, i in asked])
            return [i.row for _, i in asked], logits.log_softmax(-1)[places, own]

        distinct = [same[0] for same in alike.values()]
        for rows, values in self._passes(distinct, own_of):
            scores[rows] = values.cpu().numpy()
        return scores

    def encode(self, sentences: Sequence[str]) -> list[Encoding]:
        """Tokenise sentences."""
        return [
            Encoding(e.ids, e.offsets, e.special_tokens_mask, e.word_ids)
            for e in self._tokenizer.encode_batch(list(sentences))
        ]

    def fitted(
        self, ids: Sequence[int], position: int, encoding: Any
    ) -> tuple[tuple[int, ...], int]:
        """Cut ids to a window around a position if they are too many; return them and its index."""
        if len(ids) <= self.max_tokens:
            return tuple(ids), position
        special = encoding.special_tokens_mask
        head = next(i for i, flag in enumerate(special) if not flag)
        tail = next(i for i, flag in enumerate(reversed(special)) if not flag)
        room = self.max_tokens - head - tail
        first = min(max(position - room // 2, head), len(ids) - tail - room)
        kept = (*ids[:head], *ids[first : first + room], *ids[len(ids) - tail :])
        return kept, position - first + head

    def is_word(self, token: int, word: str) -> bool:
        """Tell whether a token stands for a word, and not for "unknown" or another text."""
        if not self.vocabulary.is_text(token):
            return False
        # As uncased tokenizers fold texts: lower case without accents.
        decomposed = (normalize("NFKD", text) for text in (self.vocabulary.texts[token], word))
        folded = ("".join(c for c in text if not combining(c)) for text in decomposed)
        return len({text.casefold() for text in folded}) == 1

    def _passes(
        self,
        inputs: Sequence[Input],
        reduce: Callable[[list[Input], torch.Tensor], _Reduced],
    ) -> Iterator[_Reduced]:
        """Run the model over all inputs, in any order; yield reduced logits group by group."""
        most = _HEAD_ROWS_CPU if self.device == "cpu" else _HEAD_ROWS
        lengths = [(len(i.ids), 0) for i in inputs]
        batches = batches_of(lengths, self.batch_tokens, mixed=self._is_flat, filler=self._filler)
        asked = [[inputs[i] for i in batch] for batch in batches]

        def groups() -> Iterator[tuple[list[Input], torch.Tensor]]:
            """Gather vectors at masks: the head takes more rows at a time than the trunk."""
            seen, vectors = list[Input](), list[torch.Tensor]()
            vectors_of = fast_layers.on_single_threads(self._run, asked, self.device)
            for number, (batch, some) in enumerate(zip(asked, vectors_of, strict=True), start=1):
                seen += batch
                vectors.append(some)
                while len(seen) >= most or (seen and number == len(asked)):
                    rows = torch.cat(vectors)
                    yield seen[:most], rows[:most]
                    seen, vectors = seen[most:], [rows[most:]]

        def reduced(group: tuple[list[Input], torch.Tensor]) -> _Reduced:
            """Run the head; results stay on the device, which may still be computing them."""
            masked, vectors = group
            spare = fast_layers.rows_for(len(masked)) - len(masked)
            with torch.inference_mode():
                vectors = torch.cat([vectors, vectors[-1:].expand(spare, -1)])
                for module in _HEADS.get(self._model.config.model_type, ()):
                    vectors = getattr(self._model, module)(vectors)
                    if module == "lm_head" and hasattr(self._model, "final_logits_bias"):
                        vectors = vectors + self._model.final_logits_bias  # BART's
                return reduce(masked, vectors[: len(masked)].float())

        waiting = deque[_Reduced]()
        for result in fast_layers.on_single_threads(reduced, groups(), self.device):
            waiting.append(result)
            while len(waiting) > _IN_FLIGHT:
                yield waiting.popleft()
        yield from waiting

    def _run(self, batch: list[Input]) -> torch.Tensor:
        """Return [batch, width] the trunk's vectors at the masks, or a whole model's logits.

        BART's decoder predicts a word at the word's position, as transformers shifts its input.
        """
        # The model without its head, or the whole model if its head is unknown.
        has_known_head = self._model.config.model_type in _HEADS
        trunk = self._model.base_model if has_known_head else self._model
        with torch.inference_mode():
            if self._is_flat:
                places = [i.position for i in batch]
                return fast_layers.vectors_at(places, trunk, [i.ids for i in batch])[: len(batch)]
            rows = max(len(batch), -(-fast_layers.FEWEST // len(batch[0].ids)))
            filled = [batch[min(i, len(batch) - 1)] for i in range(rows)]
            ids, own = fast_layers.padded([i.ids for i in filled])
            hidden = {} if own.all() else {"attention_mask": self._to_device(own.astype(np.int64))}
            positions = self._to_device([i.position for i in filled])
            output: torch.Tensor = trunk(input_ids=self._to_device(ids), **hidden)[0]
            return output[torch.arange(rows, device=self._model.device), positions][: len(batch)]

    def _to_device(self, numbers: Any) -> torch.Tensor:
        return torch.as_tensor(numbers).to(self._model.device, non_blocking=True)


def most_probable(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return [rows, k] tokens and logits, the highest first; the lower token first among equals.

    On a CPU only logits up from the k-th highest of blocks' maxima are sorted: k and few more.
    """
    # On other devices sorting is quick, and copying logits to the CPU would make them wait.
    if logits.device.type != "cpu":
        return logits.topk(k, dim=-1)[::-1]
    size = logits.shape[1]
    block = min(_BLOCK, size // k)
    blocks = size // block  # block i holds logits i, i + blocks, i + 2 · blocks, …
    highest = torch.unflatten(logits[:, : blocks * block], 1, (block, blocks)).amax(1).numpy()
    floors = np.partition(highest, blocks - k, axis=1)[:, blocks - k, None]
    rows, tokens_above = np.divmod(np.flatnonzero(logits.numpy() >= floors), size)
    counts = np.bincount(rows, minlength=len(logits))
    if len(logits) and counts.min() < k:  # the model's logits have NaN
        return logits.topk(k, dim=-1)[::-1]
    # One number to sort by: the float as an integer of the same order, then the token.
    above = logits.numpy()[rows, tokens_above] + np.float32(0)  # no -0
    bits = above.view(np.int32).astype(np.int64)
    bits ^= (bits >> 63) & 0x7FFF_FFFF
    keys = np.full((len(logits), counts.max(initial=k)), np.iinfo(np.int64).min)
    columns = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    keys[rows, columns] = (bits << 32) | (0xFFFF_FFFF - tokens_above)
    keys.sort(axis=1)
    tokens = torch.from_numpy(0xFFFF_FFFF - (keys[:, : -k - 1 : -1] & 0xFFFF_FFFF))
    return tokens, logits.gather(1, tokens)


def tokens_of_spans(sentence: str, encoding: Any) -> dict[Span, int]:
    """Map half-open character spans to the one token that covers exactly them (D3)."""
    spans: list[tuple[int, int, int]] = []
    for i, (start, end) in enumerate(encoding.offsets):
        if start < end and (sentence[start].isspace() or sentence[end - 1].isspace()):
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
