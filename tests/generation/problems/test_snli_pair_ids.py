import gzip
import json
import random
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from helpers.dataset_files import write_plain

from generation.config import Config, bundled_path
from generation.problems.sources import PAIR_IDS, ProblemReader, problem_digest
from generation.records import Seed
from merge_dataset.schema import LABELS

FILES = {"test": ("snli_test.jsonl", 9824), "validation": ("snli_dev.jsonl", 9842)}

KNOWN = ("This church choir sings to the masses as they sing joyous songs from the book at a "
         "church.", "The church is filled with song.", "entailment")  # fmt: skip
"""A problem of SNLI's test set: 2677109430.jpg#1r1e."""


def load(data: Path, source: str = "snli") -> list[Seed]:
    seeds: list[Seed] = []
    ProblemReader(Config(source=source, data=str(data))).read(seeds.append)
    return seeds


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").strip().split("\n")]


def pair_ids(files: Iterable[Path]) -> bytes:
    """Write pairID and digest of each labelled problem, sorted by pairID for compression."""
    lines_of = (file.read_text(encoding="utf-8").strip().split("\n") for file in files)
    rows = map(json.loads, chain.from_iterable(lines_of))
    lines = sorted(
        f"{row['pairID']}\t{problem_digest([row['sentence1'], row['sentence2']], label)}\n"
        for row in rows
        if (label := row["gold_label"]) in LABELS
    )
    return gzip.compress("".join(lines).encode(), mtime=0)


def hub_copy(rows: list[dict[str, Any]], path: Path) -> Path:
    """Write rows as on the Hub: texts and the label's number, −1 for no label."""
    numbers = {label: number for number, label in enumerate(LABELS)}
    names = {"premise": "sentence1", "hypothesis": "sentence2"}
    return write_plain(path, [
        {name: row[its] for name, its in names.items()}
        | {"label": numbers.get(row["gold_label"], -1)}
        for row in rows
    ])  # fmt: skip


def official(premise: str, hypothesis: str, label: str) -> dict[str, str]:
    return {"sentence1": premise, "sentence2": hypothesis, "gold_label": label}


def test_a_known_problem_has_its_id(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")
    premise, hypothesis, label = KNOWN
    rows = [
        official(premise, "The church sings.", label),
        official(f"{premise} ", hypothesis.replace(" is", "\tis"), label),
        official(premise, hypothesis, "neutral"),
        official(premise, hypothesis, label),
    ]
    path = hub_copy(rows, tmp_path / "a.jsonl")
    ids = [seed.seed_id for seed in load(path)]
    assert ids == ["snli:0", "snli:2677109430.jpg#1r1e", "snli:2", "snli:2677109430.jpg#1r1e~2"]
    assert caplog.messages == [
        "a.jsonl: 2 of 4 problems are none of SNLI's test and development set; their ids are the "
        "numbers of their rows",
        "a.jsonl: no annotators' votes are here; the official file, snli_1.0_test.jsonl, has them",
    ]
    assert [seed.seed_id for seed in load(path, "mine")] == [f"mine:{n}" for n in range(4)]


@pytest.mark.real
def test_the_ids_that_come_with_us_are_snlis(shared_data: Path) -> None:
    made = pair_ids(shared_data / name for name, _ in FILES.values())
    packed = bundled_path(PAIR_IDS).read_bytes()
    assert gzip.decompress(packed) == gzip.decompress(made)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("split", FILES)
def test_all_problems_join(split: str, shared_data: Path, tmp_path: Path) -> None:
    name, count = FILES[split]
    rows = rows_of(shared_data / name)
    expected = {(s.seed_id, *s.texts, s.label) for s in load(shared_data / name)}
    assert len(expected) == count
    for order in ("the Hub's", "shuffled"):
        if order == "shuffled":
            random.Random(0).shuffle(rows)
        result = load(hub_copy(rows, tmp_path / f"{order}.jsonl"))
        assert {(s.seed_id, *s.texts, s.label) for s in result} == expected, order
        assert len(result) == count
