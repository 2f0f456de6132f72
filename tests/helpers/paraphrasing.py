"""Text generators and NLI models with given answers, and problems for them."""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from generation.paraphrases.config import ParaphraseConfig
from generation.paraphrases.rounds import Candidate, ParaphraseRequest
from merge_metric.models.pair_model import Answers, Description

INSTRUCTION = "Rephrase the following sentence while preserving its original meaning:"


def searching(**settings: Any) -> ParaphraseConfig:
    return ParaphraseConfig(model="m", **settings)


class Interrupted(Exception):
    """Stands for any interruption of a run."""


@dataclass
class Budget:
    """Number of calls before the next interruption; None for no interruption."""

    left: int | None = None

    def spend(self) -> None:
        if self.left is not None:
            if not self.left:
                raise Interrupted
            self.left -= 1


@dataclass
class FakeGenerator:
    """A generator whose candidates are a function of the request."""

    write: Callable[[ParaphraseRequest], list[Candidate]]
    batch_size: int = 4
    device: str = ""
    name: str = "fake-t5"
    revision: str = "r1"
    budget: Budget = field(default_factory=Budget)
    batches: list[list[ParaphraseRequest]] = field(default_factory=list)

    def describe(self) -> Description:
        identity = {"name": self.name, "revision": self.revision, "architecture": "Fake",
                    "dtype": "float32", "device": "cpu", "batch_size": self.batch_size}  # fmt: skip
        return Description(identity=identity)

    def length(self, hypothesis: str) -> int:
        return len(hypothesis.split())

    def candidates(self, requests: Sequence[ParaphraseRequest]) -> list[list[Candidate]]:
        self.budget.spend()
        self.batches.append(list(requests))
        return [self.write(request) for request in requests]


@dataclass
class FakeJudge:
    """An NLI model whose answers are a function of the pair, in reversed batches of three."""

    verdict: Callable[[str, str], Sequence[float]]
    name: str = "fake-nli"
    revision: str = "r1"
    budget: Budget = field(default_factory=Budget)
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)

    def describe(self) -> Description:
        identity = {"kind": "classifier", "name": self.name, "revision": self.revision}
        return Description(identity=identity)

    def answer(self, pairs: Sequence[tuple[str, str]], *, repeat: int = 0) -> Iterator[Answers]:
        order = list(range(len(pairs)))[::-1]
        for start in range(0, len(order), 3):
            self.budget.spend()
            batch = order[start : start + 3]
            self.asked.update(pairs[i] for i in batch)
            rows = np.array([self.verdict(*pairs[i]) for i in batch], np.float64)
            yield Answers.of(batch, rows)


Problem = tuple[str, str, str, str]
"""Id, premise, hypothesis, gold label."""


def write_problems(path: Path, problems: Sequence[Problem]) -> Path:
    """Write problems in SNLI's format; "-" is no label."""
    names = ("pairID", "sentence1", "sentence2", "gold_label")
    lines = (json.dumps(dict(zip(names, row, strict=True))) for row in problems)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def settings(folder: Path, data: Path, **changes: Any) -> ParaphraseConfig:
    """A configuration for problems in a file, with a run folder beside it."""
    values: dict[str, Any] = {
        "source": "snli", "data": str(data), "model": "fake-nli", "run": str(folder)
    }  # fmt: skip
    return ParaphraseConfig(**(values | changes))


def rng_of(*key: object) -> random.Random:
    return random.Random(hashlib.sha256(repr(key).encode()).digest())


def candidate(text: str, *, finished: bool = True) -> Candidate:
    return Candidate(text, finished, -1.0)


def random_problems(seed: int, count: int) -> list[Problem]:
    """A few different sentences, so that hypotheses and whole problems repeat."""
    rng = rng_of("problems", seed)
    sentences = [f"{who} {what}." for who in ("A girl", "Two men", "Éva")
                 for what in ("jumps", "sings a song", "sees the dog")]  # fmt: skip
    labels = ("entailment", "neutral", "contradiction", "-")
    return [
        (str(number), rng.choice(sentences), rng.choice(sentences),
         rng.choices(labels, (5, 5, 5, 1))[0])
        for number in range(count)
    ]  # fmt: skip


def random_writer(
    seed: int, others: Sequence[str]
) -> Callable[[ParaphraseRequest], list[Candidate]]:
    """Return a writer of good and bad candidates, the same for the same request."""

    def write(request: ParaphraseRequest) -> list[Candidate]:
        hypothesis = request.hypothesis
        rng = rng_of("candidates", seed, hypothesis, request.earlier)
        kinds: list[Callable[[], str]] = [
            lambda: "",
            lambda: " … ",
            lambda: hypothesis,
            lambda: f" {hypothesis.upper()}!",
            lambda: f"{INSTRUCTION} {hypothesis}",
            lambda: "ha " * 5000,
            lambda: rng.choice(others),
            lambda: rng.choice(request.earlier or ("Nobody.",)),
            lambda: f"As they say: {hypothesis}",
            *[lambda: f"{_backwards(hypothesis)}, {rng.randrange(12)} times over."] * 6,
            lambda: f"{_backwards(hypothesis)}  {rng.randrange(12)} TIMES OVER",
        ]
        return [
            Candidate(rng.choice(kinds)(), rng.random() < 0.9, rng.uniform(-3, 0))
            for _ in range(rng.randrange(6))
        ]

    return write


def _backwards(text: str) -> str:
    return " ".join(text[:-1].split()[::-1])


def random_verdict(seed: int) -> Callable[[str, str], Sequence[float]]:
    """Return a function of pairs: mostly entailment, sometimes tied with another label."""

    def verdict(premise: str, hypothesis: str) -> Sequence[float]:
        answers = [(0.8, 0.1, 0.1), (0.4, 0.4, 0.2), (0.4, 0.2, 0.4), (0.2, 0.4, 0.4),
                   (0.1, 0.2, 0.7), (1 / 3, 1 / 3, 1 / 3)]  # fmt: skip
        return rng_of("verdict", seed, premise, hypothesis).choice(answers)

    return verdict
