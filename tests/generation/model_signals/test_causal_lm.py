"""Log-likelihoods by causal LMs, against one forward pass per token."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.tiny_language_models import next_token_probabilities, tiny_lm, tiny_tokenizer

from generation.model_signals.causal_lm import CausalLM

TEXTS = ["A girl jumps.", "Two dogs run in the snow.", "A girl jumps.", "No one sees a horse."]


def lm_of(kind: str) -> CausalLM:
    return CausalLM(tiny_lm(kind), tiny_tokenizer(kind), name=kind, revision="0")


def slow_log_likelihood(kind: str, text: str, width: int) -> float:
    """Sum log P(token) given at most so many tokens before it, counted as windows have it."""
    lm, tokenizer = lm_of(kind), tiny_tokenizer(kind)
    ids = tokenizer(text, add_special_tokens=False).input_ids
    total = 0.0
    for place, token in enumerate(ids):
        # The first window that has the token.
        start = max(0, math.ceil((place + 1 - width) / (width // 2))) * (width // 2)
        before = [lm._start, *ids[start:place]]
        total += math.log(next_token_probabilities(tiny_lm(kind), before)[token])
    return total


@pytest.mark.slow(but=["llama"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "llama-bytes", "mistral"])
def test_scores_are_sums_of_log_probabilities(kind: str) -> None:
    """Every token after the start token counts, however many texts there are."""
    lm = lm_of(kind)
    done: list[int] = []
    found = lm.log_likelihoods(TEXTS, on_progress=done.append)
    expected = [slow_log_likelihood(kind, text, lm.max_tokens - 1) for text in TEXTS]
    np.testing.assert_allclose(found.pll, expected, rtol=1e-5)
    assert not found.windowed.any()
    assert sum(done) == len(TEXTS)
    assert found.pll[0] == found.pll[2]
    for n, text in enumerate(TEXTS):
        assert lm.log_likelihoods([text]).pll.tolist() == [found.pll[n]]


def test_long_texts_are_scored_within_windows() -> None:
    """Each token once, with half a window before it at least."""
    lm = lm_of("llama")
    lm.max_tokens = 9
    text = "A girl jumps and a dog runs and no one sees a horse in the snow."
    found = lm.log_likelihoods([text, "A girl."])
    assert found.windowed.tolist() == [True, False]
    expected = [slow_log_likelihood("llama", each, 8) for each in (text, "A girl.")]
    np.testing.assert_allclose(found.pll, expected, rtol=1e-5)


def test_start_token_is_needed() -> None:
    """The message says what to name instead."""
    tokenizer = tiny_tokenizer("llama")
    tokenizer.bos_token = tokenizer.eos_token = None
    with pytest.raises(ValueError, match=r"^x: expected a tokenizer with a token .* --mlm$"):
        CausalLM(tiny_lm("llama"), tokenizer, name="x", revision="0")
