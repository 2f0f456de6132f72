"""How much faster language models are with the few-shot examples' keys and values cached.

`make bench`. Both ways have batches of the same number of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from helpers.bench.contender import Contender, in_turn, spread
from helpers.bench.problems import read_seeds
from helpers.bench.results import Measurement, Side, compare
from helpers.gguf_files import load_lm, smollm2
from helpers.tiny_language_models import byte_level

from merge_metric.models.checkpoints import Loaded
from merge_metric.models.language_model import TOLERANCE, LanguageModel
from merge_metric.models.prompts import read_prompt

pytestmark = pytest.mark.benchmark

AT_LEAST: Final = 5
"""Times faster wanted, with six examples."""


def random_llama(prefix_cache: bool) -> LanguageModel:
    """Random weights, as wide and as deep as takes a moment."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    tokenizer = byte_level()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=2,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    loaded = Loaded(model, tokenizer, "random", "")
    return LanguageModel(loaded, prompt=read_prompt("snli"), prefix_cache=prefix_cache)


def real_smollm2(prefix_cache: bool) -> LanguageModel:
    """SmolLM2-135M-Instruct."""
    prompt = read_prompt("snli", start="<|endoftext|>")
    return LanguageModel(load_lm(smollm2()), prompt=prompt, prefix_cache=prefix_cache)


MODELS: Final = {"random Llama, 6 × 384": random_llama, "SmolLM2-135M": real_smollm2}


def ask(model: str, prefix_cache: bool) -> Callable[[list[tuple[str, str]]], Callable[[], Any]]:
    """Found are probabilities in order."""
    import torch

    torch.set_num_threads(1)
    lm = MODELS[model](prefix_cache)

    def answer(pairs: list[tuple[str, str]]) -> Callable[[], Any]:
        found = np.empty((len(pairs), 3))
        for rows, probabilities in lm.probabilities([(p, h) for p, h in pairs]):
            found[rows] = probabilities
        return found.tolist

    return answer


@pytest.mark.parametrize(("model", "count"), [*zip(MODELS, (96, 32), strict=True)])
def test_the_prefix_cache(model: str, count: int, problem_file: Path, rounds: int) -> None:
    """Several times faster, and the same answers."""
    if MODELS[model] is real_smollm2:
        smollm2()  # skips where there is none
    measurement = Measurement("language-model", model.split()[0].lower())
    seeds = read_seeds(problem_file)
    chosen = [seeds[i] for i in spread(range(len(seeds)), count)]
    pairs = [(seed.premise, seed.hypothesis) for seed in chosen]
    contenders = [
        Contender(name, ask, {"model": model, "prefix_cache": cache})
        for name, cache in (("ours, prefix cached", True), ("the whole prompt each time", False))
    ]
    with ExitStack() as running:
        for contender in contenders:
            running.enter_context(contender)
            contender.ask(pairs=pairs[:2])
        replies = in_turn(rounds, *(partial(c.ask, pairs=pairs) for c in contenders))
    sides = [Side.of(c.name, each, count) for c, each in zip(contenders, replies, strict=True)]
    found, expected = (np.array(each[0].answer) for each in replies)
    measurement.write(
        [
            compare(
                f"language model with six examples, {model}",
                *sides,
                unit="pair",
                at_least=AT_LEAST,
                agreement=f"probabilities differ by {abs(found - expected).max():.0e} at most",
            )
        ]
    )
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))
