"""What an NLI model says about pairs of sentences, each asked about once.

A pair's answer is a row of three probabilities, over `LABELS`. The label predicted is the
most probable one and, at a tie, the first of `LABELS`, as in predictions files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tqdm import tqdm

from generation.paraphrases.parts import read_or_make
from merge_dataset.files import digest_of
from merge_dataset.schema import LABELS

Pair = tuple[str, str]
"""Premise and hypothesis."""

PART: Final = 8192
"""Pairs whose answers are saved together: what a killed run loses at most."""


class Judge(Protocol):
    """The NLI model whose sensitivity is measured."""

    def describe(self) -> dict[str, Any]:
        """Everything that determines its answers; JSON-able, `name` and `revision` at least."""

    def probabilities(
        self, pairs: Sequence[Pair]
    ) -> Iterator[tuple[list[int], NDArray[np.float64]]]:
        """Batches of positions in `pairs` and probabilities over `LABELS`, (b, 3).

        Each position once, in whatever order is fastest.
        """


def entails(answers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether entailment is predicted.

    Args:
        answers: (n, 3) probabilities.

    >>> entails(np.array([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.3, 0.4, 0.3]])).tolist()
    [True, True, False]
    """
    predicted: NDArray[np.bool_] = answers.argmax(axis=1) == LABELS.index("entailment")
    return predicted


def ask(judge: Judge, pairs: Sequence[Pair], on_progress: Callable[[int], object]) -> Any:
    """A row of probabilities for each pair, (n, 3).

    Args:
        judge: The model.
        pairs: Distinct ones.
        on_progress: Called with the number of pairs done, as they are done.

    Raises:
        ValueError: the model gave something else than probabilities for each.
    """
    answers = np.full((len(pairs), len(LABELS)), np.nan)
    done = np.zeros(len(pairs), bool)
    for positions, rows in judge.probabilities(pairs):
        if np.shape(rows) != (len(positions), len(LABELS)):
            raise ValueError(
                f"expected probabilities of shape {(len(positions), len(LABELS))} from the NLI "
                f"model, got {np.shape(rows)}"
            )
        answers[positions], done[positions] = rows, True
        on_progress(len(positions))
    if not done.all():
        raise ValueError(
            f"expected an answer of the NLI model for each of {len(pairs):,} pairs, got "
            f"{done.sum():,}"
        )
    if not (good := np.isfinite(answers).all(axis=1)).all():
        premise, hypothesis = pairs[int((~good).argmax())]
        raise ValueError(
            f"expected probabilities from the NLI model, got {answers[~good][0].tolist()} for "
            f"the premise {premise!r} and hypothesis {hypothesis!r}"
        )
    return answers


def ask_in_parts(
    judge: Callable[[], Judge],
    pairs: Sequence[Pair],
    *,
    identity: Any,
    folder: Path,
    what: str,
) -> NDArray[np.float64]:
    """As `ask`, with the answers saved part by part; what is saved is not asked again.

    Args:
        judge: Opens the model; called only where answers are missing.
        pairs: Distinct ones.
        identity: What tells the model from others.
        folder: Where the parts lie, in a folder named after model and pairs.
        what: What the progress bar says.
    """
    mine = folder / digest_of([identity, PART, pairs])[:16]
    parts = []
    with tqdm(total=len(pairs), desc=what, unit="pair") as bar:
        for number, start in enumerate(range(0, len(pairs), PART)):
            piece = pairs[start : start + PART]
            make = partial(_answer_table, judge, piece, bar.update)
            table = read_or_make(mine / f"{number:05}.parquet", make)
            bar.update(start + len(piece) - bar.n)
            parts.append(np.stack([table[label].to_numpy() for label in LABELS], axis=1))
    return np.concatenate(parts) if parts else np.empty((0, len(LABELS)))


def _answer_table(
    judge: Callable[[], Judge], pairs: Sequence[Pair], on_progress: Callable[[int], object]
) -> pa.Table:
    answers = ask(judge(), pairs, on_progress)
    return pa.table({label: answers[:, i] for i, label in enumerate(LABELS)})


@dataclass(slots=True)
class Verdicts:
    """Answers to the pairs of rounds after rounds, no pair being asked about twice."""

    ask: Callable[[str, list[Pair]], NDArray[np.float64]]
    """A text for the progress bar and distinct pairs in, (n, 3) probabilities out."""
    hypotheses: frozenset[str]
    """Of the whole run: only pairs of two of them can come up again, as one is paraphrased
    and the other its paraphrase. The other pairs are forgotten."""
    known: dict[Pair, NDArray[np.float64]] = field(default_factory=dict)

    def of(self, what: str, pairs: Sequence[Pair]) -> NDArray[np.float64]:
        """Probabilities for pairs, (n, 3).

        Args:
            what: What the progress bar says.
            pairs: Not necessarily distinct ones.
        """
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self.known]
        found: Mapping[Pair, NDArray[np.float64]] = dict(
            zip(new, self.ask(what, new) if new else (), strict=True)
        )
        rows = [found[pair] if pair in found else self.known[pair] for pair in pairs]
        self.known |= {pair: row for pair, row in found.items() if self.hypotheses.issuperset(pair)}
        return np.array(rows).reshape(-1, len(LABELS))
