"""Ways to a wrong figure: each is refused, or said, or passes on purpose, and this says which."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.report_data import Problems

from faults import small_world
from faults.attack import Attack
from merge_metric import evaluate_model
from merge_metric.runs.predictions import with_metadata, write_predictions

pytestmark = pytest.mark.slow

Pairs = list[tuple[str, str]]
Row = dict[str, Any]
Answer = Callable[[Random, Pairs, list[int]], Any]
"""Makes the answers to pairs, whose gold labels it knows."""

CHANCE = "no better than chance on seeds"


@dataclass(frozen=True)
class Way:
    """Something that a model's wrapper may do wrong, or right."""

    what: str
    answer: Answer
    ends: Literal["refused", "said", "passes"]
    why: str
    """A part of the message; or why it passes."""


def good(random: Random, gold: list[int]) -> list[int]:
    """Answers of a model that is right on nine of ten."""
    return [g if random.random() < 0.9 else (g + random.randrange(1, 3)) % 3 for g in gold]


def shuffled(random: Random, gold: list[int]) -> list[int]:
    """Shuffle the answers of a good model."""
    answers = good(random, gold)
    random.shuffle(answers)
    return answers


WAYS = (
    Way("whether it is entailment, as booleans", lambda r, p, g: [r.random() < 0.5 for _ in p],
        "refused", "got the boolean"),
    Way("the same, as an array", lambda r, p, g: np.array([r.random() < 0.5 for _ in p]),
        "refused", "got the boolean"),
    Way("booleans between numbers", lambda r, p, g: [True, *[0] * (len(p) - 1)],
        "refused", "got the boolean"),
    Way("logits", lambda r, p, g: [[r.gauss(0, 3) for _ in range(3)] for _ in p],
        "refused", "of logits take the softmax"),
    Way("scores of one label", lambda r, p, g: [r.random() for _ in p],
        "refused", "got the label 0."),
    Way("labels from 1", lambda r, p, g: [3, *[r.randrange(1, 4) for _ in p[1:]]],
        "refused", "got the label 3"),
    Way("one answer too few", lambda r, p, g: [0] * (len(p) - 1), "refused", "array of shape"),
    Way("one answer for all", lambda r, p, g: 0, "refused", "array of shape ()"),
    Way("an unknown name", lambda r, p, g: ["entailment", *["not_entailment"] * (len(p) - 1)],
        "refused", "got the label 'not_entailment'"),
    Way("nothing for a pair", lambda r, p, g: [None, *[0] * (len(p) - 1)],
        "refused", "got the label None"),
    Way("a model of two labels", lambda r, p, g: [2 * r.randrange(2) for _ in p],
        "said", "never says neutral ("),
    Way("a good model of two labels", lambda r, p, g: [2 * (n == 2) for n in good(r, g)],
        "said", "never says neutral ("),
    Way("one label for all", lambda r, p, g: ["neutral"] * len(p),
        "said", "is it a model of fewer labels"),
    Way("answers in another order", lambda r, p, g: shuffled(r, g),
        "said", CHANCE),
    Way("answers sorted by something else",
        lambda r, p, g: [n for _, n in sorted(zip([f"{x}" for x in p], good(r, g), strict=True),
                                              key=lambda each: each[0][::-1])],
        "said", CHANCE),
    Way("answers a row too early", lambda r, p, g: [*good(r, g)[1:], 0],
        "said", "stands 1 row above it"),
    Way("answers a batch too late", lambda r, p, g: [0] * 32 + good(r, g)[:-32],
        "said", "stands 32 rows below it"),
    Way("labels in another order", lambda r, p, g: [(n + 1) % 3 for n in good(r, g)],
        "said", "under another order of labels"),
    Way("guesses", lambda r, p, g: [r.randrange(3) for _ in p],
        "said", "if the model is better than that"),
    Way("one-hot booleans", lambda r, p, g: np.eye(3, dtype=bool)[good(r, g)],
        "passes", "they say which label it is"),
    Way("whole numbers as floats", lambda r, p, g: [float(n) for n in good(r, g)],
        "passes", "they are the labels' numbers, as pandas writes them"),
    Way("a weak model", lambda r, p, g: [n if r.random() < 0.3 else r.randrange(3) for n in g],
        "passes", "it is right on half of the seeds, which is what its figures say"),
    Way("a model that seldom says neutral",
        lambda r, p, g: [0 if n == 1 and r.random() < 0.9 else n for n in good(r, g)],
        "passes", "it says each label"),
)  # fmt: skip


@cache
def _problems() -> Problems:
    """Four hundred seeds in no order of their labels, each with some variants."""
    made, random = Problems(), Random("wrong figures")
    for n in range(400):
        words = {("noun", "dog"): ("cat", "horse", "cow", "bird", "fish")[: 3 + n % 3]}
        made.add(f"{n:03d}", f"A [dog] {n}.", f"The [dog] {n}.", random.randrange(3), words)
    return made


@cache
def _gold() -> Mapping[tuple[str, str], int]:
    made = _problems()
    return {(r["premise"], r["hypothesis"]): r["label"] for r in (*made.seeds, *made.variants)}


def _make(folder: Path) -> None:
    _problems().write(folder / "merge-nli")


def test_wrappers_of_models(
    attack: Attack, once: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Values that are no labels are refused by their kind; what looks wrong is said once."""
    folder = once("wrong-figures", _make)
    for each in attack.tries("wrong figures, wrappers", 4 * len(WAYS)):
        way = WAYS[each.number % len(WAYS)]
        with each:
            random = each.random

            def model(pairs: Pairs, way: Way = way, random: Random = random) -> Any:
                return way.answer(random, pairs, [_gold()[pair] for pair in pairs])

            caplog.clear()
            if way.ends != "refused":
                _evaluate(model, folder)
                said = [message for message in caplog.messages if "warning: " in message]
                assert bool(said) == (way.ends == "said"), said
                assert len(set(said)) == len(said), said
                assert way.ends == "passes" or any(way.why in message for message in said), said
            else:
                with pytest.raises(ValueError, match=re.escape(way.why)):
                    _evaluate(model, folder)


def _evaluate(model: Callable[[Pairs], Any], folder: Path) -> None:
    # In one batch, so that a model may mix up all of its answers.
    evaluate_model(
        model, folder / "merge-nli", "snli", n_bootstrap=0, progress=False, batch_size=10**6
    )


# --- Files that were changed on the way ---


@dataclass(frozen=True)
class Change:
    """Something that happens to a predictions file, or to the dataset beside it."""

    what: str
    change: Callable[[Random, list[Row], Row], None]
    """Changes rows of a file, and its metadata."""
    says: str
    """A part of the message; empty where it passes."""


def _shift(rows: list[Row], by: int) -> None:
    answers = [row["prediction"] for row in rows]
    for n, row in enumerate(rows):
        row["prediction"] = answers[(n - by) % len(rows)]


def _shuffle(random: Random, rows: list[Row]) -> None:
    answers = [row["prediction"] for row in rows]
    random.shuffle(answers)
    for row, answer in zip(rows, answers, strict=True):
        row["prediction"] = answer


def _map(rows: list[Row], answers: tuple[int, int, int]) -> None:
    for row in rows:
        row["prediction"] = answers[row["prediction"]]


CHANGES = (
    Change("predictions of the next row", lambda r, rows, told: _shift(rows, -1),
           "stands 1 row above it"),
    Change("predictions some rows too late", lambda r, rows, told: _shift(rows, 7),
           "stands 7 rows below it"),
    Change("predictions in another order", lambda r, rows, told: _shuffle(r, rows), CHANCE),
    Change("labels in another order", lambda r, rows, told: _map(rows, (2, 0, 1)),
           "under another order of labels"),
    Change("two labels by hand", lambda r, rows, told: _map(rows, (0, 2, 2)),
           "never says neutral ("),
    Change("texts cut", lambda r, rows, told: told.update(truncated=r.randrange(20, 2000)),
           "were cut to 8 tokens"),
    Change("unknown words", lambda r, rows, told: told.update(
               unknown_tokens={"texts": 9, "tokens": 100, "unknown": r.randrange(4, 101),
                               "words": ["dog"]}),
           "are unknown to its tokenizer"),
    Change("a few texts cut", lambda r, rows, told: told.update(truncated=r.randrange(20)), ""),
    Change("rows in another order", lambda r, rows, told: r.shuffle(rows), ""),
    Change("nothing", lambda r, rows, told: None, ""),
)  # fmt: skip


def test_files_changed_on_the_way(
    attack: Attack,
    once: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """Each command that reads the file says it once, of JSON lines as far as these tell it."""
    dataset = str(once("wrong-figures", _make) / "merge-nli")
    for each in attack.tries("wrong figures, files", 4 * len(CHANGES)):
        change = CHANGES[each.number % len(CHANGES)]
        with each:
            made, told = _problems(), {"truncated": 0, "distinct_pairs": 1999, "max_tokens": 8}
            asked = [*made.seeds, *made.variants]
            assert len(asked) == told["distinct_pairs"]
            answers = good(each.random, [row["label"] for row in asked])
            names = ("variant_id", "seed_id", "label")
            rows = [
                {**{name: row[name] for name in names}, "prediction": answer}
                for row, answer in zip(asked, answers, strict=True)
            ]
            change.change(each.random, rows, told)
            path = tmp_path / f"{each.number}.parquet"
            write_predictions(path, with_metadata(pa.Table.from_pylist(rows), told))
            if told["truncated"] == 0 and "unknown_tokens" not in told and each.number % 2:
                path = path.with_suffix(".jsonl")
                path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
            commands = (
                ("score", "--n-bootstrap", "0"),
                ("analyse", "accuracy"),
                ("report", "--n-bootstrap", "0", "--out", f"{path}.md"),
            )
            command, *options = each.random.choice(commands)
            if command == "analyse":
                command, options = "analyse accuracy", []
            code, _, said = small_world.call(
                *command.split(), str(path), "--dataset", dataset, *options
            )
            assert code == 0, said
            warned = [line for line in said.splitlines() if "warning: " in line]
            assert len(warned) == bool(change.says), said
            assert change.says in said


def test_the_same_texts_in_other_subsamples(
    attack: Attack, once: Callable[..., Path], tmp_path: Path
) -> None:
    """Any change of the draw is said, and none where rows stand in another order."""
    folder = once("wrong-figures", _make) / "merge-nli"
    path = tmp_path / "p.parquet"
    code, _, said = small_world.call(
        "baseline", "majority", "--dataset", str(folder), "--out", str(path)
    )
    assert code == 0, said
    for each in attack.tries("wrong figures, draws", 12):
        with each:
            other = _problems().write(tmp_path / str(each.number) / "merge-nli")
            variants = other / "snli/nouns/variants.parquet"
            rows = pq.read_table(variants, partitioning=None).to_pylist()
            if each.number % 3:
                for row in each.random.sample(rows, each.random.randrange(1, 20)):
                    row["subsamples"] = [0, 1, 2]
            else:
                each.random.shuffle(rows)
            schema = pq.read_schema(variants)
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), variants)
            code, _, said = small_world.call(
                "score", str(path), "--dataset", str(other), "--n-bootstrap", "0"
            )
            assert code == 0, said
            assert ("these predictions are of another draw" in said) == bool(each.number % 3), said
