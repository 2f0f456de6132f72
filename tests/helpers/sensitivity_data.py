"""Datasets with paraphrases, and predictions with probabilities, to compute by hand."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helpers.dataset_files import write_problems
from merge_dataset.schema import PARAPHRASE

LETTERS = "ENC"


def sentence(seed: str, number: int = 0) -> str:
    words = ["A", "girl", f"called {seed.partition(':')[2]}", "sees", "the dog", "."]
    return " ".join(words[number % 3 :] + ["now"] * number)


def text_rows(source: str, lines: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for place, line in enumerate(lines):
        gold, _, answers = line.split()
        seed = f"{source}:{place}"
        shared = {"seed_id": seed, "source": source, "label": LETTERS.index(gold)}
        shared |= {"premise": f"The girl {place} sees a dog."}
        rows.append(shared | {"variant_id": seed, "hypothesis": sentence(seed)})
        for number in range(1, len(answers) + 1):
            text = sentence(seed, number)
            rows.append(
                shared
                | {"variant_id": f"{seed}/{PARAPHRASE}/{number}", "hypothesis": text}
                | {"word_class": PARAPHRASE, "replacement": text, "subsamples": [0]}
            )
    return rows


def write_lines(folder: Path, source: str, lines: Sequence[str]) -> Path:
    return write_problems(folder, text_rows(source, lines))


def answer_rows(source: str, lines: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a predictions file: the answers in `lines`, with random probabilities."""
    rows = []
    for place, line in enumerate(lines):
        gold, own, answers = line.split()
        seed = f"{source}:{place}"
        ids = [seed, *(f"{seed}/{PARAPHRASE}/{n}" for n in range(1, len(answers) + 1))]
        for name, letter in zip(ids, own + answers, strict=True):
            row = {"variant_id": name, "seed_id": seed}
            row |= {"label": LETTERS.index(gold), "prediction": LETTERS.index(letter)}
            rows.append(row | {"probabilities": distribution(LETTERS.index(letter), name)})
    return rows


def distribution(answer: int, key: str) -> list[float]:
    """Random probabilities with the maximum at `answer`, the same for the same key."""
    rng = random.Random(key)
    weights = [rng.random() + (1.5 if label == answer else 0) for label in range(3)]
    return [weight / sum(weights) for weight in weights]
