"""Answers of the text generator and the NLI model, kept so that each question is asked once."""

import json
import logging
import random
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tqdm import tqdm

from generation.paraphrases.rounds import Candidate, ParaphraseRequest, TextGenerator
from merge_dataset.files import digest_of, read_record, write_record
from merge_dataset.part_store import read_or_make, sound_parts
from merge_dataset.schema import LABELS
from merge_metric.models.pair_model import WHOLE, Model, Pair, Share, require_probabilities

PART: Final = 8192
"""Number of pairs whose answers are saved together; a killed run loses at most these."""

_CANDIDATES = pa.schema(
    {"request": pa.int32(), "text": pa.string(), "finished": pa.bool_(), "score": pa.float64()}
)
"""Columns of a part: one row per candidate, in order; `request` is the number of its request."""
_BATCHES = pa.schema([("batch", pa.int32()), ("request", pa.int32())])

log = logging.getLogger(__name__)

ModelT = TypeVar("ModelT")


# --- Models that are opened when they are needed ---


class ModelChangedError(Exception):
    """A model differs from the one that an earlier run recorded for the same settings."""


class LazyModel(Generic[ModelT]):
    """A model that is opened at the first question, and described by an earlier run's record."""

    def __init__(
        self,
        open_model: Callable[[], ModelT],
        describe: Callable[[ModelT], dict[str, Any]],
        *,
        asked: Mapping[str, Any],
        record: Path,
    ) -> None:
        """Prepare to open the model; nothing is opened yet."""
        self._open, self._describe, self._record = open_model, describe, record
        self._asked = json.loads(json.dumps(asked))
        self._model: ModelT | None = None
        self._known: dict[str, Any] = {}
        """Record of the settings asked for, the description and the weights; empty until known."""

    @property
    def description(self) -> dict[str, Any]:
        """Description that identifies the model, which is opened only if no record has it."""
        if not self._known:
            try:
                there = read_record(self._record)
            except FileNotFoundError:
                there = {}
            except ValueError as error:
                log.warning("%s; the model is opened to write it anew", error)
                there = {}
            self._known = there if there.get("asked") == self._asked else {}
        if not self._known:
            self()
        found: dict[str, Any] = self._known["description"]
        return found

    @property
    def provenance(self) -> dict[str, Any]:
        """The description with the digest of the weights, which is not used to find answers."""
        description, weights = self.description, self._known["weights"]
        return {**description, **({"weights": weights} if weights else {})}

    def __call__(self) -> ModelT:
        """Open the model once; raise ModelChangedError if its description is not the record's."""
        if self._model is None:
            self._model, before = self._open(), self._known
            made = {
                "asked": self._asked,
                "description": self._describe(self._model),
                "weights": getattr(self._model, "weights", None),
            }
            self._known = json.loads(json.dumps(made))
            write_record(self._record, self._known)
            if before and before["description"] != self._known["description"]:
                log.info("%s: another model than in the run so far", self._record.stem)
                raise ModelChangedError(self._record.stem)
        return self._model


# --- The text generator ---


def rewrite_in_parts(
    generator: Callable[[], TextGenerator],
    requests: Sequence[ParaphraseRequest],
    *,
    batch_size: int,
    identity: Any,
    folder: Path,
    what: str,
    kept: int,
) -> list[list[Candidate]]:
    """Return the candidates for each request; saved batches are not asked for again."""
    asked = [asdict(request) for request in requests]
    mine = folder / digest_of([identity, batch_size, asked])[:16]
    found: list[list[Candidate]] = [[] for _ in requests]

    def deal() -> pa.Table:
        lengths = [generator().length(request.hypothesis) for request in requests]
        order = sorted(range(len(requests)), key=lambda i: (-lengths[i], requests[i].hypothesis))
        # The longest batch first, so that a lack of memory shows at once; the others at random, so
        # that the speed so far is an honest estimate of the speed to come.
        first, *others = (order[i : i + batch_size] for i in range(0, len(order), batch_size))
        random.Random(0).shuffle(others)
        rows = [
            {"batch": number, "request": request}
            for number, batch in enumerate([first, *others])
            for request in batch
        ]
        return pa.Table.from_pylist(rows, schema=_BATCHES)

    def ask(batch: Sequence[int]) -> pa.Table:
        answers = generator().candidates([requests[request] for request in batch])
        if len(answers) != len(batch):
            raise ValueError(
                f"expected candidates of the generator for each of {len(batch)} hypotheses, got "
                f"them for {len(answers)}"
            )
        rows = [
            {"request": request, **asdict(candidate)}
            for request, candidates in zip(batch, answers, strict=True)
            for candidate in candidates
        ]
        return pa.Table.from_pylist(rows, schema=_CANDIDATES)

    dealt = read_or_make(mine, "batches", deal)
    # Requests of a batch are adjacent.
    batches = dealt.group_by("batch", use_threads=False).aggregate([("request", "list")])
    batches = batches["request_list"].to_pylist()
    names = [f"{number:06}" for number in range(len(batches))]
    saved = {path.name.partition(".")[0] for path in sound_parts(mine)}
    there = sum(len(b) for b, name in zip(batches, names, strict=True) if name in saved)

    def ask_about_others() -> Iterator[tuple[str, pa.Table]]:
        from merge_metric.models.batch_threads import on_single_threads

        others = {n: batch for n, batch in zip(names, batches, strict=True) if n not in saved}
        device = getattr(generator(), "device", "")
        yield from zip(others, on_single_threads(ask, others.values(), device), strict=True)

    answers = ask_about_others()
    with tqdm(total=len(requests), initial=there, desc=what, unit="hypothesis") as bar:
        bar.set_postfix(kept=f"{kept:,}")
        for batch, name in zip(batches, names, strict=True):
            # Another process may have made parts meanwhile, whose answers are passed over.
            make = (table for other, table in answers if other == name).__next__
            table = read_or_make(mine, name, make)
            for row in table.to_pylist():
                found[row.pop("request")].append(Candidate(**row))
            bar.update(0 if name in saved else len(batch))
    return found


# --- The NLI model ---


def ask_in_parts(
    judge: Callable[[], Model],
    pairs: Sequence[Pair],
    *,
    identity: Any,
    folder: Path,
    what: str,
    share: Share = WHOLE,
) -> NDArray[np.float64]:
    """Return (n, 3) probabilities of distinct pairs; saved answers are not asked for again."""

    def ask(some: Sequence[Pair]) -> pa.Table:
        answers = np.empty((len(some), len(LABELS)))
        done = np.zeros(len(some), bool)
        for batch in judge().answer(some):
            positions, mine = batch.positions, [some[i] for i in batch.positions]
            answers[positions] = require_probabilities(mine, LABELS, batch.probabilities)
            done[positions] = True
            bar.update(len(positions))
        if not done.all():
            raise ValueError(
                f"expected an answer of the NLI model for each of {len(some):,} pairs, got "
                f"{done.sum():,}"
            )
        return pa.table({label: answers[:, i] for i, label in enumerate(LABELS)})

    mine = folder / digest_of([identity, PART, pairs])[:16]
    parts = []
    with tqdm(total=len(pairs), desc=what, unit="pair") as bar:
        for number, start in enumerate(range(0, len(pairs), PART)):
            if number % share.count != share.index:
                continue
            piece = pairs[start : start + PART]
            table = read_or_make(mine, f"{number:05}", partial(ask, piece))
            bar.update(start + len(piece) - bar.n)
            parts.append(np.stack([table[label].to_numpy() for label in LABELS], axis=1))
    return np.concatenate(parts) if parts else np.empty((0, len(LABELS)))


def ask_once(
    ask: Callable[[list[Pair]], NDArray[np.float64]],
    pairs: Sequence[Pair],
    known: MutableMapping[Pair, NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Return (n, 3) probabilities for pairs; ask about pairs not in `known`, and add them to it."""
    if new := [pair for pair in dict.fromkeys(pairs) if pair not in known]:
        known.update(zip(new, ask(new), strict=True))
    return np.array([known[pair] for pair in pairs]).reshape(-1, len(LABELS))
