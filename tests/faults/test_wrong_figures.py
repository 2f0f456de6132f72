"""Causes of wrong figures: each is refused, reported, or passes on purpose, as stated here."""

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
from merge_metric.frame.predictions import with_metadata, write_predictions

pytestmark = pytest.mark.slow

Pairs = list[tuple[str, str]]
Row = dict[str, Any]
Answer = Callable[[Random, Pairs, list[int]], Any]
"""Makes the answers to pairs from their gold labels."""

CHANCE = "no better than chance on seeds"
NAMES = ("entailment", "neutral", "contradiction")


@dataclass(frozen=True)
class Way:
    what: str
    answer: Answer
    ends: Literal["refused", "said", "passes"]
    why: str
    """Part of the message, or the reason to let it pass."""


def good(random: Random, gold: list[int]) -> list[int]:
    """Answers of a model with an accuracy of nine in ten."""
    return [g if random.random() < 0.9 else (g + random.randrange(1, 3)) % 3 for g in gold]


def shuffled(random: Random, gold: list[int]) -> list[int]:
    answers = good(random, gold)
    random.shuffle(answers)
    return answers


def steady(random: Random, pairs: Pairs, gold: list[int]) -> list[int]:
    """Answer a seed's variants as the seed, whose hypothesis ends in the same number."""
    of_seed = {
        h.split()[-1]: n for (_, h), n in zip(pairs[:400], good(random, gold[:400]), strict=True)
    }
    return [of_seed[h.split()[-1]] for _, h in pairs]


WAYS = (
    Way("whether it is entailment, as booleans", lambda r, p, g: [r.random() < 0.5 for _ in p],
        "refused", "got the label True"),
    Way("logits", lambda r, p, g: [[r.gauss(0, 3) for _ in range(3)] for _ in p],
        "refused", "of logits take the softmax"),
    Way("scores of one label", lambda r, p, g: [r.random() for _ in p],
        "refused", "got the label 0."),
    Way("one answer too few", lambda r, p, g: [0] * (len(p) - 1), "refused", "array of shape"),
    Way("an unknown name", lambda r, p, g: ["entailment", *["not_entailment"] * (len(p) - 1)],
        "refused", "got the label 'not_entailment'"),
    Way("a model of two labels", lambda r, p, g: [2 * r.randrange(2) for _ in p],
        "said", "never says neutral ("),
    Way("one label for all", lambda r, p, g: ["neutral"] * len(p),
        "said", "is it a model of fewer labels"),
    Way("answers in another order", lambda r, p, g: shuffled(r, g),
        "said", CHANCE),
    Way("answers a row too early", lambda r, p, g: [*good(r, g)[1:], 0],
        "said", "stands 1 row above it"),
    Way("answers a batch too late", lambda r, p, g: [0] * 32 + good(r, g)[:-32],
        "said", "stands 32 rows below it"),
    Way("labels in another order", lambda r, p, g: [(n + 1) % 3 for n in good(r, g)],
        "said", "under another order of labels"),
    Way("guesses", lambda r, p, g: [r.randrange(3) for _ in p],
        "said", "if the model is better than that"),
    Way("probabilities of two labels", lambda r, p, g: [[0.5, 0.5] for _ in p],
        "refused", "array of shape"),
    Way("no number for a pair", lambda r, p, g: [[float("nan")] * 3, *[[1, 0, 0]] * (len(p) - 1)],
        "refused", "models may overflow"),
    Way("half a label", lambda r, p, g: [0.5, *[0.0] * (len(p) - 1)],
        "refused", "got the label 0.5"),
    Way("numbers as text", lambda r, p, g: [str(n) for n in g], "refused", "got the label '"),
    Way("answers by pair", lambda r, p, g: dict(zip(p, g, strict=True)),
        "refused", "array of shape ()"),
    Way("answers that are still to come", lambda r, p, g: (n for n in g),
        "refused", "array of shape ()"),
    Way("answers from last to first", lambda r, p, g: good(r, g)[::-1], "said", CHANCE),
    Way("answers of two processes, one after the other",
        lambda r, p, g: [*good(r, g)[::2], *good(r, g)[1::2]], "said", CHANCE),
    Way("the same batch for all", lambda r, p, g: [g[i % 32] for i in range(len(g))],
        "said", CHANCE),
    Way("premise and hypothesis swapped",
        lambda r, p, g: [_gold().get((b, a), r.randrange(3)) for a, b in p], "said", CHANCE),
    Way("two labels swapped", lambda r, p, g: [2 - n for n in good(r, g)],
        "said", "under another order of labels"),
    Way("names in capitals", lambda r, p, g: [NAMES[n].upper() for n in good(r, g)],
        "passes", "names are read in any case"),
    Way("probabilities of half precision",
        lambda r, p, g: (np.eye(3)[good(r, g)] * 0.9 + 1 / 30).astype(np.float16),
        "passes", "their sum is 1 but for rounding"),
    Way("the seed's answer to its variants", lambda r, p, g: steady(r, p, g),
        "passes", "nothing tells it from a model that is steady"),
    Way("variants in another order, seeds right", lambda r, p, g: [*g[:400], *shuffled(r, g[400:])],
        "passes", "a model that variants confuse is what is looked for"),
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
    folder = once("wrong-figures", _make)
    for attempt in attack.tries("wrong figures, wrappers", 4 * len(WAYS), least=len(WAYS)):
        way = WAYS[attempt.number % len(WAYS)]
        why = "" if way.ends != "passes" else f": {way.why}"
        with attempt.of(f"wrong figures: a function gives {way.what}", f"{way.ends}{why}"):
            random = attempt.random

            def model(pairs: Pairs, way: Way = way, random: Random = random) -> Any:
                return way.answer(random, pairs, [_gold()[pair] for pair in pairs])

            caplog.clear()
            if way.ends != "refused":
                _evaluate(model, folder)
                text = [message for message in caplog.messages if "warning: " in message]
                assert bool(text) == (way.ends == "said"), text
                assert len(set(text)) == len(text), text
                assert way.ends == "passes" or any(way.why in message for message in text), text
            else:
                with pytest.raises(ValueError, match=re.escape(way.why)):
                    _evaluate(model, folder)


def _evaluate(model: Callable[[Pairs], Any], folder: Path) -> None:
    # One batch, so that a model can shuffle all of its answers.
    evaluate_model(
        model, folder / "merge-nli", "snli", n_bootstrap=0, progress=False, batch_size=10**6
    )


# --- Files that were changed on the way; what is refused is in the golden record ---


@dataclass(frozen=True)
class Change:
    what: str
    change: Callable[[Random, list[Row], Row], None]
    """Changes the rows of a file and its metadata."""
    says: str
    ends: Literal["said", "passes"] = "said"
    why: str = ""


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
    Change("predictions in another order", lambda r, rows, told: _shuffle(r, rows), CHANCE),
    Change("labels in another order", lambda r, rows, told: _map(rows, (2, 0, 1)),
           "under another order of labels"),
    Change("texts cut", lambda r, rows, told: told.update(truncated=r.randrange(20, 2000)),
           "were cut to 8 tokens"),
    Change("unknown words", lambda r, rows, told: told.update(
               unknown_tokens={"texts": 9, "tokens": 100, "unknown": r.randrange(4, 101),
                               "words": ["dog"]}),
           "are unknown to its tokenizer"),
    Change("answers of another model", lambda r, rows, told: told.update(answered_as=["m-mini"]),
           "the server says they are of m-mini"),
    Change("prompts cut", lambda r, rows, told: told.update(
               prompts_cut={"prompt_tokens": 64, "prompt_words": 300}),
           "the server seems to cut them"),
    Change("answers without letters", lambda r, rows, told: told.update(
               answers_without_letters=r.randrange(20, 2000)), "had none of the letters"),
    Change("no answer", lambda r, rows, told: rows[r.randrange(400, 1999)].update(prediction=None),
           "", "passes", "an answer that names no label counts as wrong"),
    Change("a few texts cut", lambda r, rows, told: told.update(truncated=r.randrange(20)), "",
           "passes", "below one in a hundred figures hardly change"),
    Change("a few answers without letters", lambda r, rows, told: told.update(
               answers_without_letters=r.randrange(20)), "",
           "passes", "below one in a hundred figures hardly change"),
    Change("answers without a letter or two", lambda r, rows, told: told.update(
               answers_partial=r.randrange(2000)), "",
           "passes", "a letter that is not among the most probable tokens is not predicted"),
    Change("rows in another order", lambda r, rows, told: r.shuffle(rows), "",
           "passes", "rows are joined by their names"),
    Change("nothing", lambda r, rows, told: None, "", "passes", "all is well"),
)  # fmt: skip


def test_files_changed_on_the_way(
    attack: Attack, once: Callable[..., Path], tmp_path: Path
) -> None:
    """Each command that reads the file reports the change once, for JSON lines if it can."""
    dataset = str(once("wrong-figures", _make) / "merge-nli")
    for attempt in attack.tries("wrong figures, files", 4 * len(CHANGES), least=len(CHANGES)):
        change = CHANGES[attempt.number % len(CHANGES)]
        why = f": {change.why}" if change.why else ""
        with attempt.of(f"wrong figures: a file with {change.what}", f"{change.ends}{why}"):
            made, told = _problems(), {"name": "m", "distinct_pairs": 1999, "max_tokens": 8}
            asked = [*made.seeds, *made.variants]
            assert len(asked) == told["distinct_pairs"]
            answers = good(attempt.random, [row["label"] for row in asked])
            names = ("variant_id", "seed_id", "label")
            rows = [
                {**{name: row[name] for name in names}, "prediction": answer}
                for row, answer in zip(asked, answers, strict=True)
            ]
            change.change(attempt.random, rows, told)
            path = tmp_path / f"{attempt.number}.parquet"
            if len(told) == 3 and attempt.number % 2:
                path = path.with_suffix(".jsonl")
                path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
            else:
                write_predictions(path, with_metadata(pa.Table.from_pylist(rows), told))
            commands = (
                f"score {path} --dataset {dataset} --n-bootstrap 0",
                f"analyse accuracy {path} --dataset {dataset}",
                f"report {path} --dataset {dataset} --n-bootstrap 0 --out {path}.md",
            )
            code, _, text = small_world.call(*attempt.random.choice(commands).split())
            assert code == 0, text
            warned = [line for line in text.splitlines() if "warning: " in line]
            assert len(warned) == (change.ends == "said"), text
            assert change.says in text


def test_the_same_texts_in_other_subsamples(
    attack: Attack, once: Callable[..., Path], tmp_path: Path
) -> None:
    folder = once("wrong-figures", _make) / "merge-nli"
    path = tmp_path / "p.parquet"
    small_world.do(f"baseline majority --dataset {folder} --out {path}")
    ends = "said, but for rows in another order, which are the same draw"
    for attempt in attack.tries("wrong figures: a dataset of another draw", 12, ends, least=2):
        with attempt:
            other = _problems().write(tmp_path / str(attempt.number) / "merge-nli")
            variants = other / "snli/nouns/variants.parquet"
            rows = pq.read_table(variants, partitioning=None).to_pylist()
            if attempt.number % 3:
                for row in attempt.random.sample(rows, attempt.random.randrange(1, 20)):
                    row["subsamples"] = [0, 1, 2]
            else:
                attempt.random.shuffle(rows)
            schema = pq.read_schema(variants)
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), variants)
            code, _, text = small_world.call(
                "score", str(path), "--dataset", str(other), "--n-bootstrap", "0"
            )
            assert code == 0, text
            assert ("these predictions are of another draw" in text) == bool(attempt.number % 3), (
                text
            )
