import hashlib
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from helpers.masked_queries import assert_identical

from generation.records import MaskedQuery, Scores
from generation.suggestions import questions as module
from generation.suggestions.questions import (
    KEY,
    Questions,
    key_of,
    keys_of,
    question_table,
)
from generation.suggestions.store import (
    read_scores,
    stored_vocabulary,
    suggestion_store,
    table_of,
    write_vocabulary,
)
from generation.suggestions.vocabulary import Vocabulary

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


K = 4
IDENTITY = {
    "name": "org/a-model", "revision": "abc123", "architecture": "BertForMaskedLM",
    "masking": "single", "suggestions_per_occurrence": K, "dtype": "float32", "device": "cpu",
}  # fmt: skip
VOCABULARY = Vocabulary(("", "girl", "café", "s", "."), np.array([0, 1, 1, 2, 1], np.int8))
MADE_UP = [
    MaskedQuery(sentence, span, masked)
    for number in range(6)
    for sentence in (f"The café № {number} – “good”.", f"A girl and a girl {number}.")
    for span, masked in (((4, 8), ((4, 8),)), ((2, 6), ((2, 6), (13, 17))))
]


def answer(queries: Sequence[MaskedQuery]) -> Scores:
    """Made-up scores that depend only on each query; every fourth query has none."""
    scores = Scores.empty(len(queries), K)
    for row, query in enumerate(queries):
        digest = hashlib.sha256(repr(query).encode()).digest()
        if digest[0] % 4 == 0:
            continue
        numbers = np.frombuffer(digest[:16], np.uint8)
        scores.original[row] = numbers[1] % 5
        scores.original_logit[row] = numbers[2] / 7
        scores.log_normalizer[row] = numbers[3] / 3
        scores.tokens[row] = numbers[4:8] % 5
        scores.logits[row] = np.sort(numbers[8:12] / np.float32(11))[::-1]
        scores.windowed[row] = numbers[12] % 2
    return scores


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    store = suggestion_store(tmp_path, {**IDENTITY, "windowed": 3})
    write_vocabulary(store, VOCABULARY)
    for some in (MADE_UP[:7], MADE_UP[7:]):
        store.keep(keys_of(some), table_of(answer(some)))
    again = suggestion_store(tmp_path, IDENTITY)
    assert stored_vocabulary(again).texts == VOCABULARY.texts
    assert stored_vocabulary(again).kinds.tobytes() == VOCABULARY.kinds.tobytes()
    for asked in (MADE_UP, MADE_UP[::-1]):
        assert_identical(read_scores(again, asked), answer(asked))
    assert len(read_scores(again, []).original) == 0


def test_other_suggestions_go_to_another_folder(tmp_path: Path) -> None:
    """A store of its own for each model, revision, type, device and setting of the questions."""
    others = [{**IDENTITY, name: 1} for name in IDENTITY if name != "name"]
    others.append({**IDENTITY, "name": "org/another-model"})
    assert len({suggestion_store(tmp_path, one).folder for one in (IDENTITY, *others)}) == 8
