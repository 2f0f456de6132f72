"""Rounds of rewriting: what is asked for, and what becomes of each candidate.

Nothing here knows where candidates and answers come from, or where they are kept.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

from generation.paraphrases.candidates import Candidate, Request
from generation.paraphrases.config import ParaphraseConfig
from generation.paraphrases.entailment import Pair, entails
from generation.paraphrases.prompts import clean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NOT_ENTAILED: Final = "not_entailed"
NOT_ENTAILING: Final = "not_entailing"
SURPLUS: Final = "surplus"
REASONS: Final = (
    "empty",
    "unfinished",
    "too_long",
    "prompt_echoed",
    "copy",
    "quoted",
    "duplicate",
    NOT_ENTAILED,
    NOT_ENTAILING,
    SURPLUS,
)
"""Why a candidate is dropped: the first of these that holds. Nothing is left of `empty` when
it is normalised; `unfinished` ones were cut at the most new tokens; `too_long` ones have more
than ten characters for each of these; a `prompt_echoed` has words of the instruction, see
`echoes`; in a `quoted` one the hypothesis stands as it is, with more around it, which rewrites
nothing ("The original sentence is: …"); `duplicate`s are of any earlier candidate of the
hypothesis, whatever became of that; the NLI model does not predict entailment from the
hypothesis to a `not_entailed` candidate, nor from a `not_entailing` one to the hypothesis;
`surplus` are paraphrases beyond the k that are kept."""

KEPT: Final = "kept"

_RUN: Final = 4
"""So many words of the instruction in a row are its echo."""


@dataclass(slots=True)
class Tried:
    """A candidate and what became of it."""

    hypothesis: str
    round: int
    """From 1."""
    rank: int
    """Its place among the candidates of that round."""
    text: str
    raw_text: str
    """As it came, before `prompts.clean`."""
    temperature: float
    score: float
    reason: str | None = None
    """One of `REASONS`, or `KEPT`; None until that is known."""
    entailed: float | None = None
    """The probability of entailment by the hypothesis, where the NLI model was asked."""
    entailing: float | None = None
    """That of the hypothesis by this."""


@dataclass(slots=True)
class _History:
    """What a hypothesis has seen so far."""

    raw: tuple[str, ...] = ()
    normalised: set[str] = field(default_factory=set)
    kept: int = 0


def normalise(text: str) -> str:
    """A text by which duplicates are told: no case, punctuation, or width of spaces.

    >>> normalise("  A girl—smiling—JUMPS! "), normalise("¿…?")
    ('a girl smiling jumps', '')
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join("".join(map(_spaced, folded)).split())


@cache
def _spaced(character: str) -> str:
    """A space in place of punctuation, separators and control characters."""
    return " " if unicodedata.category(character)[0] in "PZC" else character


def temperature_of(hypothesis: str, number: int, config: ParaphraseConfig) -> float:
    """A temperature of the range, the same for the same `rng_seed`, hypothesis and round."""
    key = f"{config.rng_seed}\0{number}\0{hypothesis}"
    draw = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) / 2**64
    low, high = config.temperature_min, config.temperature_max
    return min(low + draw * (high - low), high)


def echoes(text: str, hypothesis: str, prompt: str) -> bool:
    """Whether a text has four words in a row of the instruction that the hypothesis lacks.

    Where no part of the instruction has so many, as many as the longest one has.

    >>> prompt = "Rephrase the following sentence: {hypothesis}"
    >>> echoes("Rephrase the following sentence: A girl.", "A girl.", prompt)
    True
    >>> echoes("Rephrase the following: A girl.", "A girl.", prompt)
    False
    """
    length, instruction = _instruction_runs(prompt)
    found = instruction & _runs(normalise(text).split(), length)
    return bool(found and found - _runs(normalise(hypothesis).split(), length))


@cache
def _instruction_runs(prompt: str) -> tuple[int, set[tuple[str, ...]]]:
    """How many words make an echo, and all that do."""
    parts = [normalise(part).split() for part in prompt.split("{hypothesis}")]
    length = min(_RUN, max(map(len, parts)))
    return length, {run for part in parts for run in _runs(part, length)}


def _runs(words: Sequence[str], length: int) -> set[tuple[str, ...]]:
    """All runs of so many words; none of no words."""
    last = len(words) - length + 1
    return {tuple(words[i : i + length]) for i in range(last)} if length else set()


def run_rounds(
    hypotheses: Sequence[str],
    config: ParaphraseConfig,
    *,
    rewrite: Callable[[int, list[Request]], list[list[Candidate]]],
    judge: Callable[[int, list[Pair]], NDArray[np.float64]],
) -> Iterator[list[Tried]]:
    """Rewrite hypotheses until k paraphrases of each are kept, or `max_rounds` are over.

    A round without a new paraphrase of some hypothesis does not end the search for it.

    Args:
        hypotheses: Distinct ones.
        config: The settings.
        rewrite: Round and requests in, candidates of each out.
        judge: Round and pairs in, probabilities (n, 3) out.

    Yields:
        All candidates of a round, in the order of the hypotheses.
    """
    histories = {hypothesis: _History() for hypothesis in hypotheses}
    for number in range(1, config.max_rounds + 1):
        short = [h for h, history in histories.items() if history.kept < config.k]
        if not short:
            return
        requests = [
            Request(h, temperature_of(h, number, config), earlier=histories[h].raw) for h in short
        ]
        tried = [
            each
            for request, candidates in zip(requests, rewrite(number, requests), strict=True)
            for each in _look_at(request, candidates, number, histories, config)
        ]
        _judge([each for each in tried if each.reason is None], number, histories, config, judge)
        yield tried


def _look_at(
    request: Request,
    candidates: Sequence[Candidate],
    number: int,
    histories: dict[str, _History],
    config: ParaphraseConfig,
) -> Iterator[Tried]:
    """What can be said of candidates without the NLI model."""
    history = histories[request.hypothesis]
    history.raw += tuple(candidate.text for candidate in candidates)
    copy = normalise(request.hypothesis)
    for rank, candidate in enumerate(candidates):
        text = clean(candidate.text, request.hypothesis)
        form = normalise(text)
        tests = {
            "empty": not form,
            "unfinished": not candidate.finished,
            "too_long": len(text) > config.most_characters,
            "prompt_echoed": echoes(text, request.hypothesis, config.prompt),
            "copy": form == copy,
            "quoted": f" {copy} " in f" {form} ",
            "duplicate": form in history.normalised,
        }
        history.normalised.add(form)
        yield Tried(
            hypothesis=request.hypothesis,
            round=number,
            rank=rank,
            text=text,
            raw_text=candidate.text,
            temperature=request.temperature,
            score=candidate.score,
            reason=next((reason for reason, holds in tests.items() if holds), None),
        )


def _judge(
    new: list[Tried],
    number: int,
    histories: dict[str, _History],
    config: ParaphraseConfig,
    judge: Callable[[int, list[Pair]], NDArray[np.float64]],
) -> None:
    """Fill in the NLI model's answers for both directions, and what they come to."""
    there = [(each.hypothesis, each.text) for each in new]
    back = [(text, hypothesis) for hypothesis, text in there]
    answers = judge(number, [*there, *back])
    entailed = entails(answers).tolist()
    for i, each in enumerate(new):
        history = histories[each.hypothesis]
        each.entailed, each.entailing = (float(answers[i + j, 0]) for j in (0, len(new)))
        if not entailed[i]:
            each.reason = NOT_ENTAILED
        elif not entailed[i + len(new)]:
            each.reason = NOT_ENTAILING
        elif history.kept == config.k:
            each.reason = SURPLUS
        else:
            each.reason = KEPT
            history.kept += 1
