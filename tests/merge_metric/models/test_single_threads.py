from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any

import pytest
import torch
from helpers.masked_queries import ask_all, assert_identical, score
from helpers.tiny_classifiers import KINDS as CLASSIFIERS
from helpers.tiny_classifiers import tiny_classifier
from helpers.tiny_models import KINDS, sentences, tiny_model

from generation.suggestions.masked_lm import MaskedLM
from merge_metric.demo import MODEL as DEMO_MODEL
from merge_metric.models.classifier import Classifier
from merge_metric.models.fast_layers import on_single_threads


@contextmanager
def threads_of_torch(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_results_are_in_order_of_single_threads_and_errors_are_raised() -> None:
    def compute(number: int) -> tuple[int, int]:
        sleep(0.002 * (number % 3))
        return 12 // number, torch.get_num_threads()

    for threads in (1, 3):
        with threads_of_torch(threads):
            result = list(on_single_threads(compute, range(1, 13), "cpu"))
            assert result == [(12 // n, 1) for n in range(1, 13)]
            results = on_single_threads(compute, (4, 0, 1), "cpu")
            assert next(results) == (3, 1)
            with pytest.raises(ZeroDivisionError):
                next(results)
            assert list(on_single_threads(lambda _: torch.get_num_threads(), [0], "cuda")) == [
                threads
            ]
            assert torch.get_num_threads() == threads


@pytest.mark.slow(but=("roberta", "deberta"))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_do_not_depend_on_threads(kind: str, dtype: str) -> None:
    queries = ask_all(sentences()[:20])
    mlm = MaskedLM.load(tiny_model(kind), device="cpu", dtype=dtype)
    with threads_of_torch(1):
        expected = score(mlm, queries, k=5)
    for threads in (2, 4):
        with threads_of_torch(threads):
            assert_identical(score(mlm, queries, k=5), expected)


@pytest.mark.slow(but=("bert-uncased", "bart", "demo"))
@pytest.mark.parametrize("kind", [*CLASSIFIERS, "demo"])
def test_probabilities_do_not_depend_on_threads(kind: str) -> None:
    texts = sentences()[:120]
    pairs = list(zip(texts, texts[::-1], strict=True))
    folder = tiny_classifier(kind) if kind in CLASSIFIERS else DEMO_MODEL  # as large as BERT-tiny
    model = Classifier.load(folder, device="cpu", batch_tokens=200)

    def answers(threads: int) -> Any:
        with threads_of_torch(threads):
            batches = list(model.answer(pairs))
        positions = [place for batch in batches for place in batch.positions]
        return positions, [batch.probabilities.tolist() for batch in batches]

    assert answers(4) == answers(2) == answers(1)
