"""Classifiers of pairs, such as premise and hypothesis: on this machine, and on servers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from merge_dataset.redaction import mask_urls
from merge_dataset.schema import LABELS
from merge_metric.models.checkpoints import Loaded, load, max_tokens
from merge_metric.models.inspection import CLASSIFIER, inspect
from merge_metric.models.label_order import SEEDS, LabelOrder, read_order
from merge_metric.models.pair_model import Answers, Description, batched, batches_of
from merge_metric.models.prompts import read_prompt
from merge_metric.models.remote import MALFORMED, Endpoint, beginning
from merge_metric.models.tokens import (
    PairTokens,
    count_unknown,
    plain_tokenizer,
    warn_of_unknown,
    word_tokens,
)

if TYPE_CHECKING:
    import httpx

    from merge_metric.models.pair_model import ModelRequest, Pair, Prepared

_BLOCK: Final = 65_536
"""Pairs that are tokenised and sorted by length together."""
_TOKENISED: Final = 256
"""Pairs tokenised at a time: the tokenizer's objects take many times the memory of ids."""
_Encoded = dict[str, NDArray[np.int32]]
"""One pair as the model sees it: `input_ids` and, for some models, `token_type_ids`."""
_Result = tuple[NDArray[np.float64], int]
"""Probabilities of the labels, (rows, labels), and the number of pairs that were cut."""


class Classifier:
    """A sequence classifier of pairs, such as premise and hypothesis, with its tokenizer."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        label_order: LabelOrder,
        batch_tokens: int | None = None,
        unpadded: bool = False,
    ) -> None:
        """Wrap a live `*ForSequenceClassification`; `load` is the usual way in."""
        from merge_metric.models import fast_layers

        model, self._tokenizer, self.name, _, self.weights = loaded
        self.label_order, self._loaded = label_order, loaded
        self._model: Any = model.eval()
        self._unpadded = unpadded and fast_layers.reads_unpadded(model, self._tokenizer, self.name)
        self._is_flat = fast_layers.is_flat(model) or self._unpadded
        self._budget = batch_tokens or fast_layers.tokens_for(model, 2048, 32_768)
        self._filler = fast_layers.filler_for(model)
        if not (self._is_flat or fast_layers.keeps_apart(model)):
            self._budget = 1
        self.max_tokens = max_tokens(model, self._tokenizer)
        self._words: PairTokens | None = None
        self._backend: Any = None  # of the tokenizer; called directly it takes a fifth less time
        if self._tokenizer.is_fast and not getattr(self._tokenizer, "split_special_tokens", False):
            self._backend = plain_tokenizer(self._tokenizer)
            self._words = word_tokens(self._backend)
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
        label_order: str | None = None,
        device: str = "auto",
        dtype: str = "float32",
        batch_tokens: int | None = None,
        unpadded: bool = False,
        labels: tuple[str, ...] = LABELS,
    ) -> Self:
        """Load a classifier from a directory or from the Hub; no code in it is run.

        Args:
            model: Directory, or Hub id with an optional `@revision`.
            label_order: What its classes mean, as `read_order` takes it.
            device: `auto` takes a GPU if there is one.
            dtype: `float32` is the reference, whatever the weights are stored in.
            batch_tokens: Most tokens in a forward pass.
            unpadded: Lay texts end to end on a GPU, if `why_padded` finds nothing against it.
            labels: Labels of the problems it will be asked about.

        Raises:
            ValueError: it cannot be loaded, nothing says what its classes mean, or texts without
                padding are read wrongly.
        """
        checkpoint = inspect(model, CLASSIFIER)
        name, classes = checkpoint.files.name, checkpoint.config.id2label
        order = read_order(classes, name, label_order, labels)
        loaded = load(checkpoint, device=device, dtype=dtype)
        return cls(loaded, label_order=order, batch_tokens=batch_tokens, unpadded=unpadded)

    def describe(self) -> Description:
        """Describe the model, its settings and its size."""
        evidence = dict(self.label_order.evidence)
        return Description(
            identity={
                "kind": "classifier",
                **self._loaded.describe(),
                "label_order": self.label_order.names,
                "label_order_source": self.label_order.source,
                "max_tokens": self.max_tokens,
            },
            facts={
                **self._loaded.facts(),
                **({"label_order_evidence": evidence} if evidence else {}),
                **({"unpadded": True} if self._unpadded else {}),
            },
        )

    def answer(self, questions: Sequence[Pair], *, repeat: int = 0) -> Iterator[Answers]:
        """Yield probabilities of the labels, and count pairs cut to `max_tokens`, the longer first.

        On a CPU, a pair's probabilities do not depend on what else is asked, not even by
        rounding; elsewhere they do, by rounding only. `repeat` changes nothing.
        """

        def ids_of(texts: list[str]) -> Any:
            return self._tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]

        unknown = count_unknown(questions, ids_of, self._tokenizer.unk_token_id)
        if not self._warned:
            warn_of_unknown(self.name, unknown)
            self._warned = bool(unknown)

        def prepare(some: Sequence[Pair], start: int) -> Prepared[_Result]:
            encoded, cut = self._encode(some)
            # Encoder-decoders require equal numbers of end-of-sequence tokens in a batch's rows.
            end = None if self._is_flat else getattr(self._model.config, "eos_token_id", None)
            every = [row["input_ids"] for row in encoded]
            shapes = [(len(ids), 0 if end is None else int((ids == end).sum())) for ids in every]
            batches = batches_of(shapes, self._budget, mixed=self._is_flat, filler=self._filler)

            def ask(batch: list[int]) -> _Result:
                return self._run([encoded[i] for i in batch]), len(cut.intersection(batch))

            return batches, ask

        notes = {"unknown_tokens": unknown} if unknown else {}
        device = self._model.device.type
        for positions, (probabilities, n_cut) in batched(
            questions, block=_BLOCK, prepare=prepare, device=device
        ):
            counts = {"truncated": n_cut}
            yield Answers.of(positions, probabilities, counts=counts, notes=notes)

    def _encode(self, pairs: Sequence[Pair]) -> tuple[list[_Encoded], set[int]]:
        known = self._tokenizer.model_input_names
        names = [name for name in ("input_ids", "token_type_ids") if name in known]

        def row_of(values: Iterable[Sequence[int]]) -> _Encoded:
            return {n: np.array(ids, np.int32) for n, ids in zip(names, values, strict=False)}

        def tokenize(places: Sequence[int], most: int = 0) -> Iterator[tuple[int, _Encoded]]:
            for start in range(0, len(places), _TOKENISED):
                block = places[start : start + _TOKENISED]
                values: Iterable[Sequence[Sequence[int]]]
                if self._backend is not None and not most:
                    encodings = self._backend.encode_batch_fast([pairs[i] for i in block])
                    values = ((encoding.ids, encoding.type_ids) for encoding in encodings)
                else:
                    tokens = self._tokenizer(
                        *([pairs[i][side] for i in block] for side in (0, 1)),
                        truncation="longest_first" if most else False,
                        max_length=most or None,
                        return_attention_mask=False,
                        verbose=False,
                    )
                    values = zip(*(tokens[name] for name in names), strict=True)
                yield from zip(block, map(row_of, values), strict=True)

        rows: dict[int, _Encoded] = {}
        for i, (first, second) in enumerate(pairs if self._words else ()):
            if self._words and (tokens := self._words(first, second)):
                rows[i] = row_of(tokens)
        rows |= tokenize([i for i in range(len(pairs)) if i not in rows])
        most = self.max_tokens or 0
        cut = [i for i, row in rows.items() if 0 < most < len(row["input_ids"])]
        rows |= tokenize(cut, most)
        return [rows[i] for i in range(len(pairs))], set(cut)

    def _run(self, rows: Sequence[_Encoded]) -> NDArray[np.float64]:
        import torch

        from merge_metric.models.fast_layers import class_logits, padded

        with torch.inference_mode():
            if self._is_flat:
                columns = {name: [row[name] for row in rows] for name in rows[0]}
                logits = class_logits(self._model, **columns)
            else:
                inputs, lone = {}, len(rows) == 1
                for name in rows[0]:
                    inputs[name], own = padded([row[name] for row in [*rows, *rows[:lone]]])
                inputs["attention_mask"] = own.astype(np.int64)
                tensors = {k: torch.as_tensor(v).to(self._model.device) for k, v in inputs.items()}
                logits = self._model(**tensors).logits[: len(rows)]
            of_classes = logits.double().softmax(-1).cpu().numpy()
        return self.label_order.rearrange(of_classes)


# --- On a server, asked in batches ---

_BATCH: Final = 32
"""Pairs in a request: the most that text-embeddings-inference takes by default."""

_Read = tuple[NDArray[np.float64], dict[int, str]]
"""Probabilities of classes, (pairs, classes), and names of classes, as far as they are told."""


class RemoteClassifier:
    """A classifier of pairs that text-embeddings-inference or, with a separator, vLLM serves.

    The former's `/predict` takes pairs and names all classes, in any order, with their scores
    (https://github.com/huggingface/text-embeddings-inference, docs/openapi.json of 1.7.1). vLLM's
    `/classify` takes single texts, so the separator joins those of a pair, as the model's tokenizer
    would, which is right for models without token types, such as RoBERTa's; it lists the classes'
    probabilities, and names the most probable class alone
    (https://docs.vllm.ai/en/stable/models/pooling_models/classify).
    """

    def __init__(self, request: ModelRequest, *, labels: tuple[str, ...], **more: Any) -> None:
        """Ask about a few pairs, to learn what the classes are called; `more` as of `Endpoint`.

        Raises:
            ValueError: nothing says what the classes mean, or the server refuses.
            ConnectionError: it could not be reached.
        """
        self._request, self._separator = request, request.pair_separator
        path = "predict" if self._separator is None else "classify"
        self._endpoint, self._names = Endpoint(request, path, **more), dict[int, str]()
        self._width = 0
        """Number of classes; 0 until it is known."""
        shown = [*read_prompt("snli").examples, *read_prompt("mnli").examples]
        (given,) = self._endpoint.answers([[example.texts for example in shown]], self._ask)
        rows, self._names = given[0]
        self._width = rows.shape[1]
        called = {n: self._names.get(n, f"LABEL_{n}") for n in range(self._width)}
        numbered = all(re.fullmatch(r"LABEL_\d+", name) for name in called.values())
        order = request.label_order
        if self._separator is None and order not in (None, "", SEEDS) and not numbered:
            raise ValueError(
                f"label_order: expected none, or {SEEDS}, as the server names its classes "
                f"{', '.join(called.values())}, without numbers, got {order}"
            )
        self.name = mask_urls(request.model)
        self.label_order = read_order(called, self.name, order, labels)

    def describe(self) -> Description:
        """Describe the server and the order of labels."""
        evidence = dict(self.label_order.evidence)
        identity = {
            "kind": "classifier",
            "name": self.name,
            "revision": None,
            "endpoint": self._endpoint.place,
            "label_order": self.label_order.names,
            "label_order_source": self.label_order.source,
        }
        if self._separator is not None:
            identity["pair_separator"] = self._separator
        return Description(
            identity=identity, facts={"label_order_evidence": evidence} if evidence else {}
        )

    def answer(self, questions: Sequence[Pair], *, repeat: int = 0) -> Iterator[Answers]:
        """Yield probabilities of the labels, by batches as they come in."""
        starts = range(0, len(questions), _BATCH)
        batches = (questions[start : start + _BATCH] for start in starts)

        def ask(client: httpx.Client, pairs: Sequence[Pair]) -> _Read:
            self._endpoint.take_requests(1)
            return self._ask(client, pairs)

        for given in self._endpoint.answers(batches, ask):
            for batch, (rows, _) in given.items():
                positions = [starts[batch] + n for n in range(len(rows))]
                yield Answers.of(positions, self.label_order.rearrange(rows))

    def _ask(self, client: httpx.Client, pairs: Sequence[Pair]) -> _Read:
        body: dict[str, Any] = {"inputs": [list(pair) for pair in pairs], "raw_scores": False}
        if self._separator is not None:
            texts = [self._separator.join(pair) for pair in pairs]
            body = {"model": self._request.model, "input": texts, "use_activation": True}
        answer = self._endpoint.post(client, body)
        with suppress(*MALFORMED):
            if self._separator is None:
                scores = [{str(item["label"]): item["score"] for item in row} for row in answer]
                called = sorted({*scores[0]}, key=lambda name: (len(name), name))  # LABEL_10 last
                names = dict(enumerate(called))
                whole = (row for row in scores if len(row) == len(called))
                rows = np.array([[row[name] for name in called] for row in whole], np.float64)
            else:
                by_index = {int(row["index"]): row for row in answer["data"]}
                data = [by_index[n] for n in range(len(answer["data"]))]
                rows = np.array([row["probs"] for row in data], np.float64)
                named = zip(rows.argmax(axis=1).tolist(), data, strict=True)
                names = {n: str(row["label"]) for n, row in named if row["label"]}
            known = self._names or names
            are_same = all(known.get(n, name) == name for n, name in names.items())
            if are_same and rows.shape == (len(pairs), self._width or rows.shape[1]):
                return rows, names
        classes = ", ".join(self._names.values())
        raise ValueError(
            f"{self._endpoint.place}: expected probabilities of the classes"
            f"{f' {classes}' * bool(classes)} for {len(pairs)} pairs, got {beginning(answer)}"
        )
