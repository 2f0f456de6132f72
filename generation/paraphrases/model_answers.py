"""The text generator and the NLI model: opened when they are needed, and batches of answers."""

import json
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa

from generation.paraphrases.rounds import ParaphraseRequest, TextGenerator
from merge_dataset.files import read_record, write_record
from merge_dataset.schema import LABELS
from merge_metric.models.pair_model import Model, Pair, require_probabilities

log = logging.getLogger(__name__)

ModelT = TypeVar("ModelT")

_CANDIDATE: Final = pa.struct({"text": pa.string(), "finished": pa.bool_(), "score": pa.float64()})
CANDIDATES: Final = pa.schema([("candidates", pa.list_(_CANDIDATE))])
"""Answer of the text generator."""
PROBABILITIES: Final = pa.schema([(label, pa.float64()) for label in LABELS])
"""Answer of the NLI model."""


class LazyModel(Generic[ModelT]):
    """A model that is opened at the first question, and described by an earlier run's record."""

    def __init__(
        self,
        open_model: Callable[[], ModelT],
        describe: Callable[[ModelT], dict[str, Any]],
        *,
        asked: Mapping[str, Any],
        path: Path,
    ) -> None:
        """Prepare to open the model of the settings `asked`, whose record is at `path`."""
        self._open, self._describe, self._path = open_model, describe, path
        self._asked = json.loads(json.dumps(asked))
        self._model: ModelT | None = None
        self._record: dict[str, Any] = {}
        """The settings asked for, the description and the weights; empty until they are known."""

    @property
    def description(self) -> dict[str, Any]:
        """Description that identifies the model, which is opened only if no record has it."""
        if not self._record and self._path.is_file():
            try:
                record = read_record(self._path)
            except ValueError as error:
                log.warning("%s; the model is opened to write it anew", error)
            else:
                self._record = record if record.get("asked") == self._asked else {}
        if not self._record:
            self()
        description: dict[str, Any] = self._record["description"]
        return description

    @property
    def provenance(self) -> dict[str, Any]:
        """The description with the digest of the weights, which is not used to find answers."""
        description, weights = self.description, self._record["weights"]
        return {**description, **({"weights": weights} if weights else {})}

    def __call__(self) -> ModelT:
        """Open the model once; ValueError if it is not the one of the record."""
        if self._model is None:
            model, before = self._open(), self._record
            made = {
                "asked": self._asked,
                "description": self._describe(model),
                "weights": getattr(model, "weights", None),
            }
            self._record = json.loads(json.dumps(made))
            write_record(self._path, self._record)
            if before and before["description"] != self._record["description"]:
                raise ValueError(
                    f"{self._path}: expected the model of the run so far, got another of the same "
                    "name; give the same command again, and this one is asked"
                )
            self._model = model
        return self._model


def rewritten(
    generator: TextGenerator, requests: Sequence[ParaphraseRequest]
) -> Iterator[tuple[Sequence[int], pa.Table]]:
    """Yield candidates for batches of requests, whose prompts have similar lengths."""
    from merge_metric.models.fast_layers import on_single_threads

    lengths = [generator.length(request.hypothesis) for request in requests]
    order = sorted(range(len(requests)), key=lambda i: (-lengths[i], requests[i].hypothesis))
    size = generator.batch_size
    # The longest batch first, so that a lack of memory shows at once; the others at random, so
    # that the speed so far is an honest estimate of the speed to come.
    first, *others = (order[start : start + size] for start in range(0, len(order), size))
    random.Random(0).shuffle(others)
    batches = [first, *others]

    def ask(batch: Sequence[int]) -> pa.Table:
        answers = generator.candidates([requests[i] for i in batch])
        rows = [{"candidates": [asdict(c) for c in candidates]} for candidates in answers]
        return pa.Table.from_pylist(rows, CANDIDATES)

    yield from zip(batches, on_single_threads(ask, batches, generator.device), strict=True)


def judged(judge: Model, pairs: Sequence[Pair]) -> Iterator[tuple[Sequence[int], pa.Table]]:
    """Yield the NLI model's probabilities for batches of pairs."""
    for answers in judge.answer(pairs):
        asked = [pairs[i] for i in answers.positions]
        rows = require_probabilities(asked, LABELS, answers.probabilities)
        yield answers.positions, pa.table(list(rows.T), schema=PROBABILITIES)
