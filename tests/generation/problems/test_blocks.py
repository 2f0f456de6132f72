import random
from dataclasses import replace
from pathlib import Path

import pytest

from generation.problems import on_disk as module
from generation.problems.on_disk import block_sizes, read_block, sorted_problems
from generation.records import Seed


def seed(number: int) -> Seed:
    return Seed(
        seed_id=f"snli:{number}",
        source="snli",
        texts=(f"Premise {number}.", "Hypothesis “é”."),
        label="neutral",
        annotator_labels=("neutral", "entailment") if number % 2 else (),
    )


def write(path: Path, numbers: list[int]) -> None:
    with sorted_problems(path) as add:
        for number in numbers:
            add(seed(number))


@pytest.mark.slow
def test_blocks_are_sorted_and_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long problems make smaller blocks; the order in which problems come does not matter."""
    monkeypatch.setattr(module, "BLOCK", 16)
    numbers = random.Random(0).sample(range(10_000), 5_000)
    path, again = tmp_path / "problems.parquet", tmp_path / "again.parquet"
    write(path, numbers)
    assert block_sizes(path) == [16] * 312 + [8]
    blocks = [read_block(path, i) for i in range(313)]
    in_order = sorted(map(seed, numbers), key=lambda s: s.seed_id)
    assert [problem for block in blocks for problem in block] == in_order
    write(again, numbers[::-1])
    assert path.read_bytes() == again.read_bytes()
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(module, "_LETTERS", 80)
    write(path, numbers[:50])
    blocks = [read_block(path, i) for i in range(len(block_sizes(path)))]
    letters = [sum(len(text) for s in block for text in s.texts) for block in blocks]
    assert 40 < min(letters[:-1]) < max(letters) <= 80
    assert sum(map(len, blocks)) == 50


def test_ids_are_in_the_order_of_code_points(tmp_path: Path) -> None:
    """As Python sorts texts, and not as a locale does."""
    names = [
        "snli:é",
        "snli:\U0001f600",
        "snli:Z",
        "snli:a",
        "snli:a\0b",
        "snli:a b",
        "snli:\uffee",
    ]
    with sorted_problems(tmp_path / "p.parquet") as add:
        for name in names:
            add(replace(seed(1), seed_id=name))
    assert [s.seed_id for s in read_block(tmp_path / "p.parquet", 0)] == sorted(names)
