from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from helpers.paraphrase_oracle import form_of
from helpers.paraphrasing import INSTRUCTION, candidate
from hypothesis import given
from hypothesis import strategies as st

from generation.paraphrases.config import ParaphraseConfig
from generation.paraphrases.rounds import (
    Candidate,
    ParaphraseRequest,
    echoes,
    normalise,
    run_rounds,
    temperature_of,
)
from generation.variants.reasons import KEPT

GIRL = "A girl jumps."


def config(**changes: Any) -> ParaphraseConfig:
    return ParaphraseConfig(**({"model": "my-nli", "max_rounds": 1} | changes))


class Scripted:
    """Candidates by round, and verdicts; by default, a text is a paraphrase."""

    def __init__(self, *rounds: dict[str, list[Candidate]]) -> None:
        self.script = rounds
        self.requests: list[list[ParaphraseRequest]] = []
        self.pairs: list[list[tuple[str, str]]] = []

    def rewrite(self, number: int, requests: list[ParaphraseRequest]) -> list[list[Candidate]]:
        assert number == len(self.requests) + 1
        self.requests.append(requests)
        return [self.script[number - 1].get(request.hypothesis, []) for request in requests]

    def judge(self, number: int, pairs: list[tuple[str, str]]) -> np.ndarray:
        assert number == len(self.requests)
        self.pairs.append(pairs)
        rows = [
            (0.2, 0.7, 0.1)
            if ("(more)" in hypothesis or "(less)" in premise)
            else (0.9, 0.05, 0.05)
            for premise, hypothesis in pairs
        ]
        return np.array(rows).reshape(-1, 3)

    def run(self, config: ParaphraseConfig, *hypotheses: str) -> list[list[dict[str, Any]]]:
        result = run_rounds(hypotheses or (GIRL,), config, rewrite=self.rewrite, judge=self.judge)
        return list(result)


def reasons(texts: Sequence[str | Candidate], **changes: Any) -> list[str | None]:
    candidates = [c if isinstance(c, Candidate) else candidate(c) for c in texts]
    (tried,) = Scripted({GIRL: candidates}).run(config(**changes))
    return [row["reason"] for row in tried]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("", "empty"),
        ("“…”", "empty"),
        (candidate("A girl", finished=False), "unfinished"),
        ("a" * 401, "too_long"),
        (f"{INSTRUCTION} {GIRL}", "prompt_echoed"),
        ("I rephrase the FOLLOWING sentence", "prompt_echoed"),
        ("while preserving its original form", "prompt_echoed"),
        (GIRL, "copy"),
        ("  a GIRL — jumps", "copy"),
        ("\uff21 girl\u00a0jumps!", "copy"),
        (f'The original sentence is: "{GIRL}"', "quoted"),
        ("There a girl jumps.", "quoted"),
        ("A girl jumpsuit", KEPT),
        ("A girl leaps (more).", "not_entailed"),
        ("A girl leaps (less).", "not_entailing"),
        ("(more) (less)", "not_entailed"),
        ("a" * 400, KEPT),
    ],
)
def test_a_candidate_has_one_reason(given: str | Candidate, reason: str) -> None:
    assert reasons([given]) == [reason]


def test_temperatures_are_keyed() -> None:
    made = config(max_rounds=2)
    script = Scripted({}, {})
    script.run(made, "A.", "B.")
    result = {(number, r.hypothesis): r.temperature
             for number, requests in enumerate(script.requests, start=1)
             for r in requests}  # fmt: skip
    assert len(set(result.values())) == 4
    assert result == {(n, h): temperature_of(h, n, made) for n, h in result}
    assert temperature_of("A.", 1, config(rng_seed=1)) != result[1, "A."]
    alone = Scripted({})
    alone.run(config(), "B.")
    assert alone.requests[0][0].temperature == result[1, "B."]


@given(st.text(max_size=40))
def test_normalised_as_an_oracle_has_it(text: str) -> None:
    form = normalise(text)
    assert form == form_of(text)
    assert normalise(form) == form


@pytest.mark.parametrize(
    ("text", "hypothesis", "prompt", "expected"),
    [
        ("Rephrase the following sentence", "x", INSTRUCTION, True),
        ("the following sentence while", "x", INSTRUCTION, True),
        ("Rephrase the following text", "x", INSTRUCTION, False),
        ("He did it while preserving its original form.", "He did it.", INSTRUCTION, True),
        ("It was, while preserving its original form, new.",
         "It is new while preserving its original form.", INSTRUCTION, False),
        ("Paraphrase: x", "x", "Paraphrase: ", True),
        ("A paraphrase.", "The paraphrase.", "Paraphrase: ", False),
        ("Anything at all", "x", "", False),
        ("The answer is no.", "It is no.", "Say in other words: {hypothesis}\nAnswer:", False),
        ("Say in other words no.", "No.", "Say in other words: {hypothesis}\nAnswer:", True),
        ("the sentence a", "x", "The sentence {hypothesis} a girl jumps", False),
    ],
)  # fmt: skip
def test_echoes(text: str, hypothesis: str, prompt: str, expected: bool) -> None:
    """An echo has four words of one part of the instruction, or all of its longest part."""
    whole = prompt if "{hypothesis}" in prompt else prompt + "{hypothesis}"
    assert echoes(text, hypothesis, whole) is expected
