"""Language models with six examples, which our prefix cache and the peers read once."""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from helpers.bench.contender import Contender, spread
from helpers.bench.prefix_peers import llama_cpp, llama_cpp_likelihoods, transformers, whole_texts
from helpers.bench.results import Measurement, Race, Row
from helpers.gguf_files import load_lm, smollm2, write_in_float32
from helpers.processes import python_of

from generation.signals.likelihoods import FOLLOWING, CausalLM, item_of
from merge_metric.models.language_model import TOLERANCE, LanguageModel
from merge_metric.models.prompts import common_prefix, read_prompt

pytestmark = pytest.mark.benchmark

HALF: Final = 0.05
"""Largest difference from the probabilities of float32 weights in llama.cpp, which rounds
keys and values to 16 bits."""


def model() -> LanguageModel:
    return LanguageModel(load_lm(smollm2()), prompt=read_prompt("snli", start="<|endoftext|>"))


def ask() -> Callable[[list[tuple[str, str]]], Callable[[], Any]]:
    import torch

    torch.set_num_threads(1)
    lm = model()

    def answer(pairs: list[tuple[str, str]]) -> Callable[[], Any]:
        result = np.empty((len(pairs), 3))
        for answers in lm.answer([(p, h) for p, h in pairs]):
            result[answers.positions] = answers.probabilities
        return result.tolist

    return answer


def test_peers(labelled: list[dict[str, str]], tmp_path: Path, race: Race) -> None:
    """As fast as peers that read the examples once, or faster, and equal to those in float32."""
    weights, server_python = smollm2(), python_of("MERGE_NLI_SERVER_PYTHON")
    measurement = Measurement("language-model", "peers")
    rows = [labelled[i] for i in spread(range(len(labelled)), 16)]
    pairs = [(row["sentence1"], row["sentence2"]) for row in rows]
    tokens = model()._tokens
    prompts = tokens.encode(pairs)
    shared = len(common_prefix(prompts))
    write_in_float32(weights, tmp_path / "float32.gguf")
    asked = {
        "prefix": prompts[0][:shared],
        "questions": [ids[shared:] for ids in prompts],
        "letters": tokens.letters,
    }
    contenders = [Contender("ours, prefix cached", ask, request={"pairs": pairs})] + [
        Contender(text, load, {"gguf": str(gguf), **asked}, python)
        for text, load, gguf, python in (
            ("llama.cpp, its 4-bit weights", llama_cpp, weights, server_python),
            ("llama.cpp, float32", llama_cpp, tmp_path / "float32.gguf", server_python),
            ("transformers, batches after a prefix", transformers, weights, sys.executable),
        )
    ]
    ours, *theirs = race(contenders, len(pairs))
    apart = [float(abs(np.array(item.answer) - ours.answer).max()) for item in (ours, *theirs)]
    what = "language model with six examples, SmolLM2-135M, beside peers"
    row = partial(Row, what, ours.side, unit="pair", at_least=1)
    compared = [
        row(peer.side, agreement=f"probabilities differ by {most:.0e} at most")
        for peer, most in zip(theirs, apart[1:], strict=True)
    ]
    measurement.write(sorted(compared, key=lambda row: float(np.median(row.ratios))))
    assert apart[2] < HALF
    assert apart[3] < TOLERANCE


WORDS: Final = ("house", "teacher", "river", "red", "walks", "quickly")
SENTENCES: Final = 100
NATS: Final = {"transformers": 1e-3, "llama.cpp": 2}
"""Peer → largest difference in nats of changes that vary by 7.

llama.cpp rounds activations to 8 bits: half of its changes differ by 0.2 or less, of 600 the
farthest by 1.2.
"""


def changes(items: list[str]) -> Callable[[], Callable[[], Any]]:
    import torch

    torch.set_num_threads(1)
    lm = CausalLM(load_lm(smollm2()))

    def answer() -> Callable[[], Any]:
        return lm.changes(items)["pll"].to_pylist

    return answer


def test_likelihoods(labelled: list[dict[str, str]], race: Race) -> None:
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
    ours, *theirs = race(contenders, len(pairs))
    row = partial(Row, "change of log-likelihood, SmolLM2-135M, 600 edited texts", ours.side)
    rows, apart = [], {}
    for other in theirs:
        values = np.array(other.answer)
        differences = np.array([values[new] - values[old] for old, new in asked]) - ours.answer
        apart[other.contender.name] = most = float(abs(differences).max())
        text = f"changes differ by {most:.0e} at most"
        rows.append(row(other.side, unit="text", at_least=2, agreement=text))
    Measurement("likelihoods", "smollm2").write(rows)
    assert all(most < NATS[name] for name, most in apart.items()), apart
