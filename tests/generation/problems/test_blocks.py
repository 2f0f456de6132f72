import random
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


@pytest.mark.parametrize("at_a_time", [1, 7, 100, 1000])  # 100 runs, 15, 1, none
def test_sorted_whatever_fits_into_memory(
    at_a_time: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", 16)
    numbers = random.Random(0).sample(range(10_000), 100)
    write(tmp_path / "whole.parquet", numbers)
    monkeypatch.setattr(module, "SORTED_AT_A_TIME", at_a_time)
    monkeypatch.setattr(module, "MERGED_AT_A_TIME", 3)
    path = tmp_path / "problems.parquet"
    write(path, numbers)
    assert block_sizes(path) == [16] * 6 + [4]
    found = [problem for i in range(7) for problem in read_block(path, i)]
    assert found == sorted(map(seed, numbers), key=lambda s: s.seed_id)
    assert path.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_long_problems_make_smaller_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, and the data sorted at a time, must fit into memory."""
    monkeypatch.setattr(module, "_LETTERS", 80)
    monkeypatch.setattr(module, "_LETTERS_SORTED", 300)
    numbers = random.Random(1).sample(range(10_000), 50)
    path = tmp_path / "problems.parquet"
    write(path, numbers)
    blocks = [read_block(path, i) for i in range(len(block_sizes(path)))]
    letters = [sum(len(text) for each in block for text in each.texts) for block in blocks]
    assert 40 < min(letters[:-1]) < max(letters) <= 80
    found = [problem for block in blocks for problem in block]
    assert found == sorted(map(seed, numbers), key=lambda s: s.seed_id)


def test_nothing_is_written_when_reading_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SORTED_AT_A_TIME", 3)
    path = tmp_path / "problems.parquet"
    write(path, [1])
    before = path.read_bytes()

    def fail() -> None:
        with sorted_problems(path) as add:
            for number in range(10):
                add(seed(number))
            raise ValueError("malformed")

    with pytest.raises(ValueError, match="malformed"):
        fail()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
