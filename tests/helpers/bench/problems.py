"""Problems to measure with: real ones, and as many made ones as are wanted."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from generation.records import Seed

_PEOPLE: Final = ("man", "woman", "girl", "boy", "child", "player", "dog", "worker")
_DOING: Final = ("sleeps", "waits", "sings", "smiles", "runs", "eats", "jumps", "reads")
_HYPOTHESES: Final = (
    ("entailment", "{number}. The {who} {does}."),
    ("neutral", "{number}. The {who} is tired."),
    ("contradiction", "{number}. The {who} is not there."),
)


def read_seeds(file: Path) -> list[Seed]:
    """The labelled problems of a file in SNLI's format, named as the benchmarks name them."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [
        Seed(
            seed_id=f"bench:{row['pairID']}",
            source="bench",
            texts=(row["sentence1"], row["sentence2"]),
            label=row["gold_label"],
        )
        for row in rows
        if row["gold_label"] != "-"
    ]


def write_problems(file: Path, count: int) -> None:
    """Made problems in SNLI's format: three for each premise, the same ones every time.

    They are short and share one noun, so that a million can be measured; a number at their
    beginning makes all sentences differ, as a data set's do.
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
    rng = random.Random(0)
    for number in itertools.count():
        who, does = rng.choice(_PEOPLE), rng.choice(_DOING)
        for label, hypothesis in _HYPOTHESES:
            said = hypothesis.format(number=number, who=who, does=does)
            yield f"{number}. A {who} {does}.", said, label
