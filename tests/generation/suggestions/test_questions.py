import random
from pathlib import Path

import numpy as np
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
    monkeypatch.setattr(module, "BLOCK", 20)


def written(folder: Path, queries: list[MaskedQuery]) -> Questions:
    """Write questions from small tables; repeated ones are in other tables."""
    tables = (question_table(queries[start : start + 7]) for start in range(0, len(queries), 7))
    return Questions.write(folder, tables, made_from="x")


def test_every_question_is_in_a_block_once(tmp_path: Path) -> None:
    """A sentence is in one block."""
    questions = written(tmp_path / "q", QUERIES + QUERIES[::3])
    of_block = [questions.of(block) for block in questions.blocks]
    assert list(map(len, of_block)) == [21] * 8 + [12]
    assert [query for queries in of_block for query in queries] == sorted(QUERIES, key=key_of)
    assert len(questions) == len(QUERIES)
    sentences = [{query.sentence for query in queries} for queries in of_block]
    assert sum(map(len, sentences)) == len(set().union(*sentences))
    assert sorted(path.name for path in questions.folder.iterdir()) == [
        "blocks", "keys.bin", "questions.json"
    ]  # fmt: skip


@pytest.mark.parametrize(("size", "count"), [(1, 60), (20, 300), (300, 600)])
def test_order_and_repetition_do_not_matter(
    size: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal sets give equal files."""
    monkeypatch.setattr(module, "BLOCK", size)
    many = [
        MaskedQuery(f"A girl № {n} and a girl.", query.span, query.masked)
        for n in range(count) for query in QUERIES[:3]
    ]  # fmt: skip
    shuffled = random.Random(0).sample(many * 2, 2 * len(many))
    folders = [written(tmp_path / name, q).folder for name, q in (("a", many), ("b", shuffled))]
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
    questions = written(tmp_path / "q", list(made))
    assert questions.rows(list(made)).tolist() == np.argsort(np.argsort(numbers)).tolist()
