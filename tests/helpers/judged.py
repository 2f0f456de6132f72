"""A dataset with one bad masked LM, a sample of it, and answers of annotators."""

import csv
import random
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa

from helpers.dataset_files import seed_row, variant_row, write_source
from merge_dataset.annotation import Session, open_session, read_answers, read_session
from merge_dataset.annotation.sample import Item
from merge_dataset.schema import LABELS

BAD: Final = "facebook/bart-base"
MLMS: Final = (
    BAD, "FacebookAI/roberta-base", "albert/albert-base-v2", "google-bert/bert-base-cased",
)  # fmt: skip
SEEDS: Final = {"noun": 40, "verb": 20, "adjective": 10}
"""Class → number of seeds, each with twelve variants."""

_TEXTS: Final = {"premise": "A girl runs.", "hypothesis": "A girl moves."}


def write_dataset(folder: Path, **config: Any) -> Path:
    """Write a dataset in which one or two masked LMs validate each variant in each text."""
    rng = random.Random(1)
    seeds, variants = [], []
    for word_class, n in SEEDS.items():
        own = [seed_row(f"snli:{word_class}{i}", _TEXTS.values(), 0) for i in range(n)]
        seeds += own
        for seed, letter in product(own, "abcdefghijkl"):
            validated = {text: sorted(rng.sample(MLMS, rng.choice([1, 1, 2]))) for text in _TEXTS}
            variants.append(
                variant_row(seed, word_class, "girl", letter, validated, subsamples=[0])
            )
    return write_source(folder, seeds, variants, provenance={"config": config})


def write_session(folder: Path, dataset: Path, *, per_class: int = 100) -> Session:
    """Write a session on such a dataset, answered completely by ann and mostly by bo."""
    session = open_session(folder, dataset, per_class=per_class)
    rng = random.Random(2)
    answers: dict[str, list[dict[str, object]]] = {"ann": [], "bo": []}
    for variant, item in session.items.items():
        bad = any(mlms == [BAD] for mlms in item.mlms_by_field.values())
        truth = rng.choice([(2, 3), (3, 3), (1, 5)]) if bad else rng.choice([(5, 5), (5, 4)])
        for name in answers:
            if name == "ann" or rng.random() < 0.8:
                noise = (rng.choice([0, 0, 0, 0, 1, -1]) for _ in truth)
                scores = (min(5, max(1, s + n)) for s, n in zip(truth, noise, strict=True))
                text = dict(zip(("fluency", "reasoning"), scores, strict=True))
                answers[name].append({"variant_id": variant, **text})
    for name, rows in answers.items():
        fill_in(folder / f"answers/{name}.csv", rows)
    return session


def fill_in(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    """Write a filled table; with columns of the first row."""
    rows = list(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def answers_of(path: Path) -> dict[str, Any]:
    """Answers of a file by variant, as objects with fluency, reasoning and comment."""
    rows = read_answers(path).to_pylist()
    return {row["variant_id"]: SimpleNamespace(**row) for row in rows}


DATA: Final = Path(__file__).parents[1] / "data"
JUDGED: Final = (DATA / "judged_variants", DATA / "judged_variants_fresh")
"""Sessions with 330 and 255 variants that a language model judged."""


def write_judged(folder: Path) -> Path:
    """Write a dataset of only these sessions' variants, with their texts."""
    items = [item for path in JUDGED for item in read_session(path).items.values()]
    for source in dict.fromkeys(item.source for item in items):
        mine = [item for item in items if item.source == source]
        seeds, variants = {}, []
        for item in mine:
            label = LABELS.index(item.label)
            seed = seeds.setdefault(
                item.seed_id, seed_row(item.seed_id, item.seed_texts.values(), label)
            )
            names = (item.word_class, item.original, item.replacement)
            row = variant_row(seed, *names, item.mlms_by_field, subsamples=[0])
            variants.append(row | {"variant_id": item.variant_id, **item.variant_texts})
        write_source(folder, list(seeds.values()), variants)
    return folder


def make_item(word_class: str, *mlms: str, seed_id: str, **facts: Any) -> Item:
    """Make an item of SNLI of which only these facts matter."""
    texts: dict[str, Any] = {"label": "", "stratum": {}, "original": "", "replacement": ""}
    texts |= {f"{side}_{what}": {} for side in ("seed", "variant") for what in ("texts", "spans")}
    known = {"mlms": [*mlms], "mlms_by_field": {"premise": [*mlms]}, "chance": None}
    return Item("", seed_id, "snli", word_class, **texts | known | facts)


def answers_table(rows: Iterable[tuple[str, str, int, int]]) -> pa.Table:
    names = ("annotator", "variant_id", "fluency", "reasoning")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
