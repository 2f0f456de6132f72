"""Problems to measure with: real ones, and as many made ones as are wanted."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from generation.config import bundled_path
from generation.records import Seed
from helpers.reference import tag

_SLOTS: Final = ("JJ", "NN", "VBG", "JJ", "NN", "NN")
_PREMISE: Final = "A {0} {1} is {2} a {3} {4} near the {5}."
_HYPOTHESES: Final = (
    ("entailment", "The {1} is {2} a {4}."),
    ("neutral", "The {0} {1} is {2} the {NN} for some {NNS}."),
    ("contradiction", "A {3} {4} is {VBG} the {1} in the {5}."),
)
"""Words drawn for the premise by number, others by Penn tag."""


def read_seeds(file: Path) -> list[Seed]:
    """The labelled problems of a file in SNLI's format, as the recipe `demo` names them."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [
        Seed(
            seed_id=f"demo:{row['pairID']}",
            source="demo",
            premise=row["sentence1"],
            hypothesis=row["sentence2"],
            label=row["gold_label"],
        )
        for row in rows
        if row["gold_label"] != "-"
    ]


def write_problems(file: Path, count: int) -> None:
    """Made problems in SNLI's format: three for each premise, the same ones every time.

    Their words are those of the demo's problems, some of which premise and hypothesis share.
    """
    with file.open("w", encoding="utf-8") as lines:
        for number, (premise, hypothesis, label) in enumerate(islice(_problems(), count)):
            row = {
                "pairID": f"made-{number}",
                "gold_label": label,
                "sentence1": premise,
                "sentence2": hypothesis,
            }
            print(json.dumps(row), file=lines)


def _problems() -> Iterator[tuple[str, str, str]]:
    """Premise, hypothesis, label, without end."""
    words, rng = _words(), random.Random(0)
    while True:
        drawn = [rng.choice(words[penn]) for penn in _SLOTS]
        premise = _PREMISE.format(*drawn)
        for label, hypothesis in _HYPOTHESES:
            others = {penn: rng.choice(choices) for penn, choices in words.items()}
            yield premise, hypothesis.format(*drawn, **others), label


def _words() -> dict[str, list[str]]:
    """The demo's words by Penn tag."""
    found: dict[str, set[str]] = {"NN": set(), "NNS": set(), "JJ": set(), "VBG": set()}
    for seed in read_seeds(bundled_path("demo/problems.jsonl")):
        for token in (*tag(seed.premise), *tag(seed.hypothesis)):
            if token.tag in found and token.text.islower() and token.text.isalpha():
                found[token.tag].add(token.text)
    return {penn: sorted(words) for penn, words in found.items()}
