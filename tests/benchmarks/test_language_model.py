"""Language models with six examples, which our prefix cache and all peers but one read once."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from helpers.bench.contender import Contender, in_turn, spread
from helpers.bench.prefix_peers import llama_cpp, transformers
from helpers.bench.problems import read_seeds
from helpers.bench.results import Measurement, compare, sides_of
from helpers.gguf_files import load_lm, smollm2, write_in_float32
from helpers.processes import python_of
from helpers.tiny_language_models import byte_level

from merge_metric.models.checkpoints import Loaded
from merge_metric.models.language_model import TOLERANCE, LanguageModel
from merge_metric.models.prompts import common_prefix, read_prompt

pytestmark = pytest.mark.benchmark

AT_LEAST: Final = 5
"""Least speed-up over our code without a cache of the examples; over peers with one, it is 1."""
HALF: Final = 0.05
"""Largest difference from the probabilities of float32 weights in llama.cpp, which rounds
keys and values to 16 bits."""


def random_llama(prefix_cache: bool) -> LanguageModel:
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    tokenizer = byte_level()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=384, intermediate_size=1024, num_hidden_layers=6,
        num_attention_heads=6, num_key_value_heads=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    loaded = Loaded(model, tokenizer, "random", "")
    return LanguageModel(loaded, prompt=read_prompt("snli"), prefix_cache=prefix_cache)


def real_smollm2(prefix_cache: bool) -> LanguageModel:
    prompt = read_prompt("snli", start="<|endoftext|>")
    return LanguageModel(load_lm(smollm2()), prompt=prompt, prefix_cache=prefix_cache)


MODELS: Final = {"random Llama, 6 × 384": random_llama, "SmolLM2-135M": real_smollm2}


def ask(model: str, prefix_cache: bool) -> Callable[[list[tuple[str, str]]], Callable[[], Any]]:
    import torch

    torch.set_num_threads(1)
    lm = MODELS[model](prefix_cache)

    def answer(pairs: list[tuple[str, str]]) -> Callable[[], Any]:
        found = np.empty((len(pairs), 3))
        for rows, probabilities in lm.probabilities([(p, h) for p, h in pairs]):
            found[rows] = probabilities
        return found.tolist

    return answer


def test_peers(problem_file: Path, tmp_path: Path, rounds: int) -> None:
    """As fast as peers that read the examples once, or faster, and equal to those in float32."""
    weights, server_python = smollm2(), python_of("MERGE_NLI_SERVER_PYTHON")
    measurement = Measurement("language-model", "peers")
    seeds = read_seeds(problem_file)
    pairs = [(seeds[i].premise, seeds[i].hypothesis) for i in spread(range(len(seeds)), 16)]
    tokens = real_smollm2(prefix_cache=False)._tokens
    prompts = tokens.encode(pairs)
    shared = len(common_prefix(prompts))
    write_in_float32(weights, tmp_path / "float32.gguf")
    asked = {
        "prefix": prompts[0][:shared],
        "questions": [ids[shared:] for ids in prompts],
        "letters": tokens.letters,
    }
    name = "SmolLM2-135M"
    ours = Contender("ours, prefix cached", ask, {"model": name, "prefix_cache": True})
    theirs = [
        Contender(said, load, {"gguf": str(gguf), **asked}, python)
        for said, load, gguf, python in (
            ("llama.cpp, its 4-bit weights", llama_cpp, weights, server_python),
            ("llama.cpp, float32", llama_cpp, tmp_path / "float32.gguf", server_python),
            ("transformers, batches after a prefix", transformers, weights, sys.executable),
        )
    ]
    with ExitStack() as running:
        for contender in (ours, *theirs):
            running.enter_context(contender)
        ours.ask(pairs=pairs)
        requests = [partial(ours.ask, pairs=pairs), *(each.ask for each in theirs)]
        replies = in_turn(rounds, *requests)
    side, *others = sides_of((ours, *theirs), replies, len(pairs))
    found = [np.array(each[0].answer) for each in replies]
    apart = [float(abs(each - found[0]).max()) for each in found]
    row = partial(compare, f"language model with six examples, {name}, beside peers", side)
    rows = [
        row(peer, unit="pair", at_least=1, agreement=f"probabilities differ by {most:.0e} at most")
        for peer, most in zip(others, apart[1:], strict=True)
    ]
    measurement.write(sorted(rows, key=lambda row: float(np.median(row.ratios))))
    assert apart[2] < HALF
    assert apart[3] < TOLERANCE


@pytest.mark.parametrize(("model", "count"), [*zip(MODELS, (96, 32), strict=True)])
def test_the_prefix_cache(model: str, count: int, problem_file: Path, rounds: int) -> None:
    if MODELS[model] is real_smollm2:
        smollm2()  # skips if the model is missing
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
    sides = sides_of(contenders, replies, count)
    found, expected = (np.array(each[0].answer) for each in replies)
    measurement.write(
        [
            compare(f"language model with six examples, {model}", *sides, unit="pair",
                at_least=AT_LEAST,
                agreement=f"probabilities differ by {abs(found - expected).max():.0e} at most"),
        ]
    )  # fmt: skip
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))
