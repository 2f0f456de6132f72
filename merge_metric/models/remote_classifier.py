"""Classifiers of pairs on servers, asked in batches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from merge_dataset.redaction import mask_urls
from merge_metric.models.label_order import SEEDS, read_order
from merge_metric.models.pair_model import Answers, Description, ModelRequest, Pair
from merge_metric.models.prompts import read_prompt
from merge_metric.models.remote import MALFORMED, Endpoint, beginning

if TYPE_CHECKING:
    import httpx

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
