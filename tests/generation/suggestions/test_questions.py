import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from generation.records import MaskedQuery
from generation.suggestions import questions as module
from generation.suggestions.questions import (
    KEY,
    Questions,
    key_of,
    question_table,
)

QUERIES = [
    MaskedQuery(f"A girl № {number} and a girl.", span, masked)
    for number in range(60)
    for span, masked in (((2, 6), ((2, 6),)), ((2, 6), ((2, 6), (15, 19))), ((15, 19), ((15, 19),)))
]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBLEMS_PER_BLOCK", 10)
    monkeypatch.setattr(module, "_BUFFERED", 1000)


def tables(queries: list[MaskedQuery]) -> Iterator[pa.Table]:
    """Yield tables of a few questions; repeated ones are in other tables and spilled files."""
    for start in range(0, len(queries), 7):
        yield question_table(queries[start : start + 7])


def written(folder: Path, queries: list[MaskedQuery], problems: int = 45) -> Questions:
    return Questions.write(folder, tables(queries), problems=problems, made_from="x")


def test_every_question_is_in_a_block_once(tmp_path: Path) -> None:
    """45 problems make at most eight blocks; a sentence is in one block."""
    questions = written(tmp_path / "q", QUERIES + QUERIES[::3])
    of_block = [questions.of(block) for block in questions.blocks]
    assert 4 < len(of_block) <= 8
    everything = [query for queries in of_block for query in queries]
    assert everything == sorted(QUERIES, key=key_of)
    assert len(questions) == len(QUERIES)
    assert questions.sizes == list(map(len, of_block))
    sentences = [{query.sentence for query in queries} for queries in of_block]
    assert sum(map(len, sentences)) == len(set().union(*sentences))


def test_many_questions_make_more_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long texts have more questions than a block of them could hold in memory."""
    monkeypatch.setattr(module, "_QUESTIONS_PER_BLOCK", 50)
    questions = written(tmp_path / "q", QUERIES, problems=1)
    assert questions.sizes == [48, 51, 51, 30]
    of_block = [query for block in questions.blocks for query in questions.of(block)]
    assert of_block == sorted(QUERIES, key=key_of)
    assert sorted(path.name for path in questions.folder.iterdir()) == [
        "blocks", "keys.bin", "questions.json"
    ]  # fmt: skip


def test_order_and_repetition_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal sets give equal files, also with blocks of the largest possible size."""
    largest = max(written(tmp_path / "sizes", QUERIES).sizes)
    monkeypatch.setattr(module, "_QUESTIONS_PER_BLOCK", largest)
    shuffled = random.Random(0).sample(QUERIES * 2, 2 * len(QUERIES))
    folders = [written(tmp_path / name, q).folder for name, q in (("a", QUERIES), ("b", shuffled))]
    a, b = (
        {p.relative_to(f): p.read_bytes() for p in f.rglob("*") if p.is_file()} for f in folders
    )
    assert a == b


def test_rows_number_all_questions(tmp_path: Path) -> None:
    questions = written(tmp_path / "q", QUERIES)
    map_blocks = [query for block in questions.blocks for query in questions.of(block)]
    assert questions.rows(map_blocks).tolist() == list(range(len(QUERIES)))
    some = random.Random(1).sample(QUERIES, 20)
    assert [map_blocks[row] for row in questions.rows(some)] == some
    questions = written(tmp_path / "q", QUERIES[:30])
    with pytest.raises(ValueError, match=r"expected 32 questions, 2 are missing; run: merge-nli"):
        questions.rows(QUERIES[:32])


def test_keys_with_trailing_zeros_stay_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [0, 1, 256, 65536, 1 << 120]
    made = {query: n.to_bytes(KEY.itemsize) for query, n in zip(QUERIES, numbers, strict=False)}
    monkeypatch.setattr(module, "key_of", made.__getitem__)
    questions = written(tmp_path / "q", list(made), problems=1)
    assert questions.rows(list(made)).tolist() == np.argsort(np.argsort(numbers)).tolist()
