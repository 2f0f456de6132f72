"""Changes of log-likelihood by replacements, whose texts share their beginnings with others."""

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pytest
from helpers.bench.contender import Contender
from helpers.bench.prefix_peers import llama_cpp_likelihoods, whole_texts
from helpers.bench.results import Measurement, Row, race
from helpers.gguf_files import load_lm, smollm2

from generation.signals.likelihoods import FOLLOWING, CausalLM, item_of
from merge_metric.models.prompts import common_prefix

pytestmark = pytest.mark.benchmark

WORDS: Final = ("house", "teacher", "river", "red", "walks", "quickly")
SENTENCES: Final = 100
TOLERANCE: Final = {"transformers": 1e-3, "llama.cpp": 0.5}
"""Peer → largest difference in nats; llama.cpp rounds activations to 8 bits."""


def changes(items: list[str]) -> Callable[[], Callable[[], Any]]:
    import torch

    torch.set_num_threads(1)
    lm = CausalLM(load_lm(smollm2()))

    def answer() -> Callable[[], Any]:
        return lm.changes(items)["pll"].to_pylist

    return answer


def test_likelihoods(labelled: list[dict[str, str]], rounds: int) -> None:
    """Each text has its middle word replaced by each of six words: 600 edited texts, 100 seeds."""
    both = [text for row in labelled for text in (row["sentence1"], row["sentence2"])]
    seeds = [text.split() for text in dict.fromkeys(both) if len(text.split()) > 4][:SENTENCES]
    pairs = [
        (" ".join(seed), " ".join([*seed[: (at := len(seed) // 2)], word, *seed[at + 1 :]]))
        for seed in seeds
        for word in WORDS
    ]
    loaded = load_lm(smollm2())
    start = loaded.tokenizer.get_vocab()["<|endoftext|>"]
    scored: dict[tuple[tuple[int, ...], int, int], int] = {}
    asked = []
    for pair in pairs:
        sides = loaded.tokenizer(list(pair), add_special_tokens=False).input_ids
        same = len(common_prefix(sides))
        after = len(common_prefix([side[same:][::-1] for side in sides]))
        ends = (min(len(side), len(side) - after + FOLLOWING) for side in sides)
        keys = [((start, *s), same + 1, end + 1) for s, end in zip(sides, ends, strict=True)]
        asked.append([scored.setdefault(key, len(scored)) for key in keys])
    peer = {"gguf": str(smollm2()), "texts": list(scored)}
    contenders = [
        Contender("ours", changes, {"items": [item_of(old, [], new, []) for old, new in pairs]}),
        Contender("transformers", whole_texts, peer, sys.executable),
    ]
    if python := os.environ.get("MERGE_NLI_SERVER_PYTHON"):
        contenders.append(Contender("llama.cpp", llama_cpp_likelihoods, peer, python))
    ours, *theirs = race(contenders, len(pairs), rounds)
    row = partial(Row, "change of log-likelihood, SmolLM2-135M, 600 edited texts", ours.side)
    rows, apart = [], {}
    for other in theirs:
        values = np.array(other.answer)
        differences = np.array([values[new] - values[old] for old, new in asked]) - ours.answer
        apart[other.contender.name] = most = float(abs(differences).max())
        text = f"changes differ by {most:.0e} at most"
        rows.append(row(other.side, unit="text", at_least=2, agreement=text))
    Measurement("likelihoods", "smollm2").write(rows)
    assert all(most < TOLERANCE[name] for name, most in apart.items()), apart
