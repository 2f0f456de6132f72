"""Suggestions on disk: the same bits, a store for each model and settings."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from helpers.masked_queries import assert_identical

from generation.records import MaskedQuery, Scores
from generation.suggestions.questions import keys_of
from generation.suggestions.store import (
    read_scores,
    stored_vocabulary,
    suggestion_store,
    table_of,
    write_vocabulary,
)
from generation.suggestions.vocabulary import Vocabulary

K = 4
IDENTITY = {
    "name": "org/a-model", "revision": "abc123", "architecture": "BertForMaskedLM",
    "masking": "single", "suggestions_per_occurrence": K, "dtype": "float32", "device": "cpu",
}  # fmt: skip
VOCABULARY = Vocabulary(("", "girl", "café", "s", "."), np.array([0, 1, 1, 2, 1], np.int8))
QUERIES = [
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
    for some in (QUERIES[:7], QUERIES[7:]):
        store.keep(keys_of(some), table_of(answer(some)))
    again = suggestion_store(tmp_path, IDENTITY)
    assert stored_vocabulary(again).texts == VOCABULARY.texts
    assert stored_vocabulary(again).kinds.tobytes() == VOCABULARY.kinds.tobytes()
    for asked in (QUERIES, QUERIES[::-1]):
        assert_identical(read_scores(again, asked), answer(asked))
    assert len(read_scores(again, []).original) == 0


def test_other_suggestions_go_to_another_folder(tmp_path: Path) -> None:
    """A store of its own for each model, revision, type, device and setting of the questions."""
    others = [{**IDENTITY, name: 1} for name in IDENTITY if name != "name"]
    others.append({**IDENTITY, "name": "org/another-model"})
    assert len({suggestion_store(tmp_path, one).folder for one in (IDENTITY, *others)}) == 8
