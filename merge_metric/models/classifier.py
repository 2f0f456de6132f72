"""Classifiers that map a pair of texts, such as premise and hypothesis, to probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from merge_dataset.schema import LABELS
from merge_metric.models.checkpoints import Loaded, load, max_tokens
from merge_metric.models.inspection import CLASSIFIER, inspect
from merge_metric.models.label_order import LabelOrder, read_order
from merge_metric.models.odd_answers import count_unknown, evenly, warn_of_unknown
from merge_metric.models.pair_model import WHOLE, batch_tokens_for, batches_of, unknown_batches

if TYPE_CHECKING:
    from merge_metric.models.pair_model import Answered, Pair, Positions, Prepared, Share
    from merge_metric.models.word_tokens import WordTokens

_WINDOW: Final = 65_536
"""Pairs that are tokenised and sorted by length together."""
_PIECE: Final = 256
"""Pairs tokenised at a time: the tokenizer's objects take many times the memory of ids."""
_SPECIAL: Final = 8
"""Upper bound of the number of special tokens that a tokenizer adds to a pair."""

_Encoded = dict[str, NDArray[np.int32]]
"""One pair as the model sees it: `input_ids` and, for some models, `token_type_ids`."""


class Classifier:
    """A sequence classifier of pairs, such as premise and hypothesis, with its tokenizer."""

    def __init__(
        self, loaded: Loaded, *, label_order: LabelOrder, batch_tokens: int | None = None
    ) -> None:
        """Wrap a live `*ForSequenceClassification`; `load` is the usual way in.

        Args:
            loaded: The model.
            label_order: What its classes mean.
            batch_tokens: Most tokens in a forward pass.
        """
        from merge_metric.models.fast_layers import filler_for, is_flat, tokens_for
        from merge_metric.models.word_tokens import word_tokens

        model, self._tokenizer, self.name, _, self.weights = loaded
        self.label_order, self._loaded = label_order, loaded
        self._model: Any = model.eval()
        self._is_flat = is_flat(model)
        usual = batch_tokens_for(model.device.type, 2048, 32_768)
        self._budget = batch_tokens or (tokens_for(model) if self._is_flat else usual)
        self._filler = filler_for(model)
        self.max_tokens = max_tokens(model, self._tokenizer)
        self._words: WordTokens | None = None
        self._backend: Any = None  # of the tokenizer; called directly it takes a fifth less time
        if self._tokenizer.is_fast and not getattr(self._tokenizer, "split_special_tokens", False):
            from tokenizers import Tokenizer

            self._backend = Tokenizer.from_str(self._tokenizer.backend_tokenizer.to_str())
            self._backend.no_padding()
            self._backend.no_truncation()
            self._words = word_tokens(self._backend)
            if self.max_tokens is not None:
                side = self._tokenizer.truncation_side
                self._backend.enable_truncation(self.max_tokens, direction=side)
        self._warned = False
        config = model.config.get_text_config()
        if config.pad_token_id is None:
            # Decoders look for the last token that is not padding; there is no padding here.
            config.pad_token_id = -1

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        label_order: LabelOrder | str | None = None,
        device: str = "auto",
        dtype: str = "float32",
        batch_tokens: int | None = None,
        labels: tuple[str, ...] = LABELS,
    ) -> Self:
        """Load a classifier from a directory or from the Hub.

        Weights are safetensors, or converted to them once; no code of the repository is run.

        Args:
            model: Directory, or Hub id with an optional `@revision`.
            label_order: What its classes mean, also as `parse_order` reads it; by default what
                its configuration or a document says. With "seeds" an order whose source is
                `unknown` stands in where neither does, until the seeds have been asked.
            device: `auto` takes a GPU if there is one.
            dtype: `float32` is the reference, whatever the weights are stored in.
            batch_tokens: Most tokens in a forward pass.
            labels: Of the problems it will be asked about.

        Raises:
            ValueError: no such model, no weights that are read, no trained head, not as many
                classes as labels, or nothing says what they mean.
        """
        found = inspect(model, CLASSIFIER)
        found.require()
        names = dict(enumerate(found.class_names))  # none: they are known once it is loaded
        loaded = None if names else load(found, device=device, dtype=dtype)
        classes = loaded.model.config.id2label if loaded else names
        order = read_order(classes, found.name, label_order, labels)
        loaded = loaded or load(found, device=device, dtype=dtype)
        return cls(loaded, label_order=order, batch_tokens=batch_tokens)

    def describe(self) -> dict[str, Any]:
        """Describe everything that determines the probabilities."""
        return {
            "kind": "classifier",
            **self._loaded.describe(),
            "label_order": self.label_order.names,
            "label_order_source": self.label_order.source,
            "max_tokens": self.max_tokens,
        }

    def notes(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        """Return size, evidence of the label order, number of pairs cut, and unknown tokens."""
        told = {
            "weights": self.weights,
            "label_order_evidence": dict(self.label_order.evidence),
            "unknown_tokens": self._unknown_tokens(pairs),
        }
        return {
            "parameters": self._model.num_parameters(),
            "truncated": self._n_truncated(pairs),
            **{name: each for name, each in told.items() if each},
        }

    def _unknown_tokens(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        def tokenize(texts: list[str]) -> list[list[int]]:
            tokens = self._tokenizer(texts, add_special_tokens=False, verbose=False)
            return list(tokens["input_ids"])

        texts = [f"{first} {second}" for first, second in evenly(pairs)]
        return count_unknown(texts, tokenize, self._tokenizer.unk_token_id)

    def _n_truncated(self, pairs: Sequence[Pair]) -> int:
        if self.max_tokens is None:
            return 0
        # In ASCII there is at most a token per character, and nothing expands.
        room = self.max_tokens - _SPECIAL
        long = (
            pair
            for pair in pairs
            if len(pair[0]) + len(pair[1]) > room or not (pair[0] + pair[1]).isascii()
        )
        count = 0
        while some := list(islice(long, _PIECE)):
            whole = self._tokenize(some, truncate=False)["input_ids"]
            count += sum(len(ids) > self.max_tokens for ids in whole)
        return count

    def probabilities(
        self, pairs: Sequence[Pair], known: Positions = frozenset(), share: Share = WHOLE
    ) -> Answered:
        """Yield probabilities of the labels for pairs.

        On a CPU there is no padding; other pairs of a batch change a pair's probabilities by
        rounding only. Batches, and so answers, are bit-identical whatever is known.

        Args:
            pairs: Premises and hypotheses; the longer one is cut where they exceed
                `max_tokens` together.

            known: Positions whose answers are known; batches with only these are skipped.
            share: Share of the batches to compute.

        Yields:
            Positions in `pairs`, (b,), and probabilities of the labels, (b, n_labels).
        """
        if not self._warned:
            unknown = self._unknown_tokens(pairs)
            warn_of_unknown(self.name, unknown)
            self._warned = bool(unknown)

        def prepare(some: Sequence[Pair], start: int) -> Prepared[NDArray[np.float64]]:
            encoded = self._encode(some)
            # Encoder-decoders require equal numbers of end-of-sequence tokens in a batch's rows.
            end = None if self._is_flat else getattr(self._model.config, "eos_token_id", None)
            every = [row["input_ids"] for row in encoded]
            shapes = [(len(ids), 0 if end is None else int((ids == end).sum())) for ids in every]
            batches = batches_of(shapes, self._budget, mixed=self._is_flat, filler=self._filler)
            return batches, lambda batch: self._run([encoded[i] for i in batch])

        device = self._model.device.type
        yield from unknown_batches(
            pairs, known, share, window=_WINDOW, prepare=prepare, device=device
        )

    resume = probabilities

    def _tokenize(self, pairs: Sequence[Pair], *, truncate: bool) -> Any:
        return self._tokenizer(
            [premise for premise, _ in pairs],
            [hypothesis for _, hypothesis in pairs],
            truncation="longest_first" if truncate else False,
            max_length=self.max_tokens if truncate else None,
            return_attention_mask=False,
            verbose=False,
        )

    def _encode(self, pairs: Sequence[Pair]) -> list[_Encoded]:
        known = self._tokenizer.model_input_names
        names = [name for name in ("input_ids", "token_type_ids") if name in known]

        def row_of(values: Iterable[Sequence[int]]) -> _Encoded:
            return {n: np.array(ids, np.int32) for n, ids in zip(names, values, strict=False)}

        rows: dict[int, _Encoded] = {}
        for i, (first, second) in enumerate(pairs):
            words = self._words
            if words is not None and words.knows(first) and words.knows(second):
                columns = words.pair(first, second)
                if self.max_tokens is None or len(columns[0]) <= self.max_tokens:
                    rows[i] = row_of(columns)
        others = [i for i in range(len(pairs)) if i not in rows]
        for start in range(0, len(others), _PIECE):
            places = others[start : start + _PIECE]
            some = [pairs[i] for i in places]
            if self._backend is None:
                tokens = self._tokenize(some, truncate=self.max_tokens is not None)
                found = list(zip(*(tokens[name] for name in names), strict=True))
            else:
                encodings = self._backend.encode_batch_fast([(pair[0], pair[1]) for pair in some])
                found = [(each.ids, each.type_ids) for each in encodings]
            rows |= {i: row_of(values) for i, values in zip(places, found, strict=True)}
        return [rows[i] for i in range(len(pairs))]

    def _run(self, rows: Sequence[_Encoded]) -> NDArray[np.float64]:
        import torch

        from merge_metric.models.fast_layers import class_logits, padded

        with torch.inference_mode():
            if self._is_flat:
                columns = {name: [row[name] for row in rows] for name in rows[0]}
                logits = class_logits(self._model, **columns)
            else:
                inputs = {}
                for name in rows[0]:
                    inputs[name], own = padded([row[name] for row in rows])
                inputs["attention_mask"] = own.astype(np.int64)
                tensors = {k: torch.as_tensor(v).to(self._model.device) for k, v in inputs.items()}
                logits = self._model(**tensors).logits
            of_classes = logits.double().softmax(-1).cpu().numpy()
        return self.label_order.rearrange(of_classes)
