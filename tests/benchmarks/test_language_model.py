"""How much faster language models are with the few-shot examples' keys and values cached.

`make bench`. Both ways run in turn in one process, on the same problems, each with batches of
the same number of tokens.
"""

from __future__ import annotations

import json
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.gguf_files import smollm2
from helpers.tiny_language_models import byte_level
from helpers.tiny_models import sentences
from transformers import AutoModelForCausalLM, LlamaConfig

from merge_metric.predict.language_model import TOLERANCE, LanguageModel
from merge_metric.predict.prompts import read_prompt

pytestmark = pytest.mark.benchmark

ROUNDS = 3
AT_LEAST = 5
"""Times faster, with six examples."""

Load = Callable[[bool], LanguageModel]


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def random_llama(prefix_cache: bool) -> LanguageModel:
    """Random weights, as wide and as deep as takes a moment."""
    tokenizer = byte_level()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
    return LanguageModel(
        model,
        tokenizer,
        prompt=read_prompt("snli"),
        name="random",
        revision="",
        prefix_cache=prefix_cache,
    )


def real_smollm2(prefix_cache: bool) -> LanguageModel:
    """SmolLM2-135M-Instruct."""
    prompt = read_prompt("snli", start="<|endoftext|>")
    return LanguageModel.load(smollm2(), prompt=prompt, device="cpu", prefix_cache=prefix_cache)


def problems(shared_data: Path, count: int) -> list[tuple[str, str]]:
    """SNLI's where they are, else of the same kind."""
    file = shared_data / "snli_test.jsonl"
    if not file.is_file():
        texts = sentences(2 * count)
        return list(zip(texts[::2], texts[1::2], strict=True))
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [(row["sentence1"], row["sentence2"]) for row in rows[:: len(rows) // count]][:count]


def timed(model: LanguageModel, pairs: list[tuple[str, str]]) -> tuple[float, np.ndarray]:
    """Seconds of the one core, and probabilities in order."""
    found = np.empty((len(pairs), 3))
    start = time.process_time()
    for rows, probabilities in model.probabilities(pairs):
        found[rows] = probabilities
    return time.process_time() - start, found


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("load", "count"), [(random_llama, 96), (real_smollm2, 32)])
def test_the_prefix_cache(
    load: Load, count: int, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several times faster, and the same answers."""
    pairs = problems(shared_data, count)
    plain, cached = load(False), load(True)
    timed(cached, pairs[:2])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    timed(cached, pairs)
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    ratios, rates = [], []
    for _ in range(ROUNDS):
        slow, expected = timed(plain, pairs)
        fast, found = timed(cached, pairs)
        ratios.append(slow / fast)
        rates.append(len(pairs) / fast)
        np.testing.assert_allclose(found, expected, atol=TOLERANCE)
        np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))
    with capsys.disabled():
        print(
            f"\n{load.__name__}: {statistics.median(ratios):.1f} times faster with the cache "
            f"({min(ratios):.1f} to {max(ratios):.1f} over {ROUNDS} rounds), "
            f"{statistics.median(rates):.1f} pairs per second on one thread, "
            f"largest difference {abs(found - expected).max():.1g}, "
            f"{growth / 1024:.0f} MB more memory"
        )
    assert statistics.median(ratios) > AT_LEAST
