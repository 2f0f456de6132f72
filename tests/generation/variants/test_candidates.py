import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generation.config import Config
from generation.records import MaskedQuery, Scores
from generation.suggestions import questions as questions_module
from generation.suggestions.questions import Questions, key_of, keys_of, question_table
from generation.suggestions.store import suggestion_store, table_of, write_vocabulary
from generation.suggestions.vocabulary import Vocabulary
from generation.variants.candidates import read_candidates, survivors_of, write_candidates
from generation.variants.equation import Survivors
from merge_dataset.answer_store import AnswerStore

K = 6
WORDS = ["girl", "boy", "Boy", "dog", "s", "."]
VOCABULARY = Vocabulary(("", *WORDS), np.array([0, 1, 1, 1, 1, 2, 1], np.int8))
QUERIES = [MaskedQuery(f"A girl {n}.", (2, 6), ((2, 6),)) for n in range(40)]


def answer(queries: Sequence[MaskedQuery]) -> Scores:
    """Answer with any words, the same for the same question; some questions have none."""
    scores = Scores.empty(len(queries), K)
    for row, query in enumerate(queries):
        rng = random.Random(key_of(query))
        if rng.random() < 0.2:
            continue
        scores.original[row] = rng.choice([1, 2, 4])
        scores.original_logit[row] = rng.uniform(-1, 1)
        scores.log_normalizer[row] = 3
        scores.tokens[row] = rng.sample(range(len(VOCABULARY.texts)), K)
        scores.logits[row] = sorted((rng.uniform(-2, 2) for _ in range(K)), reverse=True)
    return scores


IDENTITY = {
    "name": "m", "revision": "r", "architecture": "BertForMaskedLM", "masking": "single",
    "suggestions_per_occurrence": K, "dtype": "float32", "device": "cpu",
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[AnswerStore, Questions]:
    """A store that answers the run's questions, and other questions."""
    monkeypatch.setattr(questions_module, "BLOCK", 10)
    return filled(tmp_path, IDENTITY, answer)


def filled(
    folder: Path, identity: dict[str, Any], score: Callable[[Sequence[MaskedQuery]], Scores]
) -> tuple[AnswerStore, Questions]:
    store = suggestion_store(folder / "store", identity)
    write_vocabulary(store, VOCABULARY)
    every, mine = (
        Questions.write(folder / name, [question_table(queries)], made_from="")
        for name, queries in (("every", QUERIES), ("mine", QUERIES[:30]))
    )
    for block in every.blocks:
        store.keep(keys_of(every.of(block)), table_of(score(every.of(block))))
    return store, mine


def by_row(survivors: Survivors) -> list[tuple[object, ...]]:
    bounds = zip(survivors.starts[:-1], survivors.starts[1:], strict=True)
    return [
        (
            bool(survivors.in_vocabulary[row]), survivors.tokens[start:end].tolist(),
            survivors.log_odds[start:end].tolist(), survivors.rejected[row].tolist(),
        )
        for row, (start, end) in enumerate(bounds)
    ]  # fmt: skip


def written(
    folder: Path, run: tuple[AnswerStore, Questions], config: Config
) -> Callable[[Sequence[MaskedQuery]], Survivors]:
    store, questions = run
    write_candidates(folder, store, questions, config)
    return lambda queries: read_candidates(folder, questions.rows(queries))


@pytest.mark.parametrize("probability_filter", [True, False])
def test_candidates_are_those_the_filters_leave(
    probability_filter: bool, run: tuple[AnswerStore, Questions], tmp_path: Path
) -> None:
    config = Config(probability_filter=probability_filter)
    candidates = written(tmp_path / "c", run, config)
    for asked in (QUERIES[:30], QUERIES[17:3:-2] + QUERIES[5:9], []):
        expected = survivors_of(answer(asked), VOCABULARY, config)
        assert by_row(candidates(asked)) == by_row(expected)
    assert any(tokens for _, tokens, *_ in by_row(candidates(QUERIES[:30])))


def test_nothing_may_be_left(run: tuple[AnswerStore, Questions], tmp_path: Path) -> None:
    store, _ = run
    none = Vocabulary(VOCABULARY.texts, np.zeros(len(VOCABULARY.texts), np.int8))
    write_vocabulary(store, none)
    assert written(tmp_path / "c", run, Config())(QUERIES[:30]).tokens.tolist() == []
    write_vocabulary(store, VOCABULARY)
    with pytest.raises(ValueError, match="1 are missing; run: merge-nli suggest"):
        written(tmp_path / "d", run, Config())(QUERIES[:31])
