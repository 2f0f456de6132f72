import dataclasses
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.dataset_files import files_of as files_of_folder

from generation.records import MaskedQuery, Scores
from generation.suggestions import store as suggestions
from generation.suggestions.questions import EVERYTHING, KEY, Shard, key_of
from generation.suggestions.store import StoreIdentity, SuggestionStore
from generation.suggestions.vocabulary import Vocabulary

K = 4
PART_SIZE = 5
IDENTITY = StoreIdentity(
    name="org/a-model", revision="abc123", architecture="BertForMaskedLM", masking="single",
    suggestions_per_occurrence=K, dtype="float32", device="cpu",
)  # fmt: skip
VOCABULARY = Vocabulary(("", "girl", "café", "s", "."), np.array([0, 1, 1, 2, 1], np.int8))
QUERIES = [
    MaskedQuery(sentence, span, masked)
    for number in range(6)
    for sentence in (f"The café № {number} – “good”.", f"A girl and a girl {number}.")
    for span, masked in (((4, 8), ((4, 8),)), ((2, 6), ((2, 6), (13, 17))))
]
"""24 questions, which make five parts."""


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggestions, "PART_SIZE", PART_SIZE)


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


class Killed(Exception):
    """Raised to interrupt a run in these tests."""


def killed_after(pieces: int) -> Callable[[Sequence[MaskedQuery]], Scores]:
    """Return a scoring function that fails after a number of pieces."""
    done = 0

    def score(queries: Sequence[MaskedQuery]) -> Scores:
        nonlocal done
        if done == pieces:
            raise Killed
        done += 1
        return answer(queries)

    return score


def store_in(root: Path, identity: StoreIdentity = IDENTITY) -> SuggestionStore:
    return SuggestionStore.create(root, identity, VOCABULARY)


Score = Callable[[Sequence[MaskedQuery]], Scores]


def fill(store: SuggestionStore, queries: Sequence[MaskedQuery], score: Score = answer) -> None:
    store.fill([(EVERYTHING, queries)], score)


def filled(root: Path, queries: Sequence[MaskedQuery] = QUERIES) -> SuggestionStore:
    store = store_in(root)
    fill(store, queries)
    return store


def keys(queries: Iterable[MaskedQuery]) -> set[bytes]:
    return set(map(key_of, queries))


def files_of(store: SuggestionStore) -> dict[str, bytes]:
    return files_of_folder(store.path)


def bits(parts: Iterable[tuple[Sequence[bytes], Scores]]) -> dict[bytes, tuple[Any, ...]]:
    """Map the key of each question to its answer's bytes."""
    columns = [field.name for field in dataclasses.fields(Scores)]
    return {
        key: tuple(getattr(scores, name)[row].tobytes() for name in columns)
        for part_keys, scores in parts
        for row, key in enumerate(part_keys)
    }


def parts_of(store: SuggestionStore) -> list[Path]:
    return sorted((store.path / "parts").glob("*.parquet"))


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    store = filled(tmp_path)
    there = SuggestionStore.open(tmp_path, store.path.name)
    assert there.identity == IDENTITY
    assert bits(there.parts()) == bits([(list(map(key_of, QUERIES)), answer(QUERIES))])
    assert there.keys() == keys(QUERIES)
    for part_keys, scores in there.parts():
        assert scores.tokens.shape == scores.logits.shape == (len(part_keys), K)
        assert scores.tokens.dtype == scores.original.dtype == np.int32
        assert scores.logits.dtype == scores.log_normalizer.dtype == np.float32
        assert scores.windowed.dtype == np.bool_


def test_missing_questions_are_cut_into_parts(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    shuffled = random.Random(0).sample(QUERIES * 2, 2 * len(QUERIES))
    pieces = store.missing(EVERYTHING, shuffled)
    assert list(map(len, pieces)) == [5, 5, 5, 5, 4]
    asked = [query for piece in pieces for query in piece]
    assert asked == sorted(set(QUERIES), key=key_of)
    assert store.missing(EVERYTHING, []) == []
    store = store_in(tmp_path)
    before = store.missing(EVERYTHING, QUERIES)
    fill(store, [before[1][0], *before[3]], answer)
    after = store.missing(EVERYTHING, QUERIES)
    assert after == [before[0], before[1][1:], before[2], before[4]]
    fill(store, QUERIES, answer)
    assert store.missing(EVERYTHING, QUERIES) == []


@pytest.mark.parametrize("pieces", range(5))
def test_a_killed_run_resumes_to_the_same_files(pieces: int, tmp_path: Path) -> None:
    store = store_in(tmp_path / "killed")
    with pytest.raises(Killed):
        fill(store, QUERIES, killed_after(pieces))
    assert len(parts_of(store)) == pieces
    assert len(store.keys()) == pieces * PART_SIZE
    filled(tmp_path / "killed")
    assert files_of(store) == files_of(filled(tmp_path / "whole"))


def truncate(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    middle = len(data) // 3
    return data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :]


@pytest.mark.parametrize("damage", [truncate, flip, lambda data: b"", lambda data: data + b"\0"])
@pytest.mark.parametrize("number", [0, 3])
def test_a_damaged_part_is_made_again(
    damage: Callable[[bytes], bytes], number: int, tmp_path: Path
) -> None:
    store = filled(tmp_path)
    before, path = files_of(store), parts_of(store)[number]
    lost, _ = list(store.parts())[number]
    path.write_bytes(damage(path.read_bytes()))
    assert store.keys() == keys(QUERIES) - set(lost)
    assert bits(store.parts()).keys() == store.keys()
    assert sum(map(len, store.missing(EVERYTHING, QUERIES))) == len(lost)
    again: list[MaskedQuery] = []

    def counting(queries: Sequence[MaskedQuery]) -> Scores:
        again.extend(queries)
        return answer(queries)

    fill(store, QUERIES, counting)
    assert [key_of(query) for query in again] == lost
    assert files_of(store) == before


@pytest.mark.parametrize(
    "change",
    [
        {"name": "org/another-model"},
        {"revision": "abc124"},
        {"architecture": "RobertaForMaskedLM"},
        {"masking": "joint"},
        {"suggestions_per_occurrence": K + 1},
        {"dtype": "bfloat16"},
        {"device": "cuda"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_other_suggestions_go_to_another_folder(change: dict[str, Any], tmp_path: Path) -> None:
    other = dataclasses.replace(IDENTITY, **change)
    assert other.folder != IDENTITY.folder
    filled(tmp_path)
    store = store_in(tmp_path, other)
    assert store.keys() == set()
    assert len(store.missing(EVERYTHING, QUERIES)) == 5
    assert len(list(tmp_path.iterdir())) == 2


def test_shards_of_other_sizes_share_a_store(tmp_path: Path) -> None:
    store, scored = store_in(tmp_path), Counter[MaskedQuery]()

    def counting(queries: Sequence[MaskedQuery]) -> Scores:
        scored.update(queries)
        return answer(queries)

    for bits, count in ((1, 8), (0, 16), (3, len(QUERIES))):
        some = QUERIES[:count]
        store.fill(in_shards(some, bits), counting)
        for shard, queries in in_shards(some, bits):
            assert keys(queries) <= store.keys(shard)
            found = store.answers(shard, queries).tokens
            assert found.tobytes() == answer(queries).tokens.tobytes()
    assert scored == Counter(set(QUERIES))
    assert {path.name.split("-")[0] for path in parts_of(store)} == {"0", "1", "3"}


def test_an_accelerator_scores_several_parts_at_once(tmp_path: Path) -> None:
    sizes: list[int] = []

    def counting(queries: Sequence[MaskedQuery]) -> Scores:
        sizes.append(len(queries))
        return answer(queries)

    together, alone = store_in(tmp_path / "together"), store_in(tmp_path / "alone")
    together.fill(in_shards(QUERIES, 2), counting, at_once=12)
    assert sum(sizes) == len(QUERIES)
    assert all(size >= 12 for size in sizes[:-1])
    alone.fill(in_shards(QUERIES, 2), answer)
    assert files_of(together) == files_of(alone)


def in_shards(queries: Sequence[MaskedQuery], bits: int) -> list[tuple[Shard, list[MaskedQuery]]]:
    shards: dict[Shard, list[MaskedQuery]] = {}
    for query in queries:
        prefix = int.from_bytes(key_of(query)) >> (8 * KEY.itemsize - bits)
        shards.setdefault(Shard(bits, prefix), []).append(query)
    return sorted(shards.items(), key=lambda item: item[0].prefix)
