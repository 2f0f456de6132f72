"""Language models against the slow way: one whole prompt at a time, no cache."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.answers import answers
from helpers.gguf_files import load_lm, smollm2
from helpers.tiny_language_models import (
    CONTEXT,
    KINDS,
    next_token_probabilities,
    tiny_lm,
    tiny_tokenizer,
    uncased_words,
)
from helpers.tiny_models import sentences
from numpy.typing import NDArray

from merge_metric.frame.plausibility import tell_of_new_answers
from merge_metric.models import language_model
from merge_metric.models.checkpoints import Loaded
from merge_metric.models.fast_layers import PrefixCache
from merge_metric.models.language_model import TOLERANCE, LanguageModel
from merge_metric.models.prompts import PromptTokens, read_prompt
from merge_metric.models.templates import Example, Prompt

TEXTS = sentences(40)
EXAMPLES = (
    Example(("A girl plays.", "A girl is here."), 0),
    Example(("The dog runs outside.", "The dog is happy."), 1),
    Example(("A man reads a book.", "A man sings."), 2),
)
SHOTS = Prompt(EXAMPLES, read_prompt("none").template, name="three")
PAIRS = [
    *zip(TEXTS[:12], TEXTS[12:24], strict=True), ("A girl runs.", "A girl runs."), ("", ""),
    ("«Ünïcode» 🙂", "  two  spaces "), ("0", 'A "B" C'),
]  # fmt: skip


def model_of(kind: str, prompt: Prompt = SHOTS, **options: Any) -> LanguageModel:
    loaded = Loaded(tiny_lm(kind), tiny_tokenizer(kind), kind, "1")
    return LanguageModel(loaded, prompt=prompt, **options)


def slow_answers(
    kind: str, texts: Sequence[str], letters: Sequence[Sequence[str]], **how: Any
) -> NDArray[np.float64]:
    """Probabilities of the letters' tokens as the next token, normalised."""
    tokenizer, model = tiny_tokenizer(kind), tiny_lm(kind)
    rows = []
    for text in texts:
        ids = tokenizer(text, **how)["input_ids"]
        if ids[-1] == tokenizer.convert_tokens_to_ids("</s>"):  # no answer follows an end
            ids = ids[:-1]
        probabilities = next_token_probabilities(model, ids)
        shares = [
            sum(float(probabilities[tokenizer.convert_tokens_to_ids(token)]) for token in tokens)
            for tokens in letters
        ]
        rows.append(np.array(shares) / sum(shares))
    return np.stack(rows)


@lru_cache
def oracle(kind: str, prompt: Prompt = SHOTS) -> NDArray[np.float64]:
    texts = [prompt.text(*pair) + KINDS[kind].answer_after for pair in PAIRS]
    of_letters, result = slow_answers(kind, texts, KINDS[kind].letters), np.empty((len(PAIRS), 3))
    for row, pair in enumerate(PAIRS):
        result[row, list(prompt.template.order(*pair))] = of_letters[row]
    return result


@pytest.mark.slow(
    but=(
        "gpt2-True-100", "opt-False-None", "llama-True-None", "llama-separate-True-100",
        "llama-end-True-None",
    )
)  # fmt: skip
@pytest.mark.parametrize(
    ("prefix_cache", "batch_tokens"), [(True, None), (True, 100), (False, None)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_are_those_of_the_slow_way(
    kind: str, prefix_cache: bool, batch_tokens: int | None
) -> None:
    shuffled = replace(SHOTS, template=replace(SHOTS.template, shuffle=3))
    prompt = shuffled if batch_tokens else SHOTS
    model = model_of(kind, prompt, prefix_cache=prefix_cache, batch_tokens=batch_tokens)
    result, expected = answers(model, PAIRS), oracle(kind, prompt)
    assert np.ptp(expected, axis=0).max() > 0.005, "the model looks at the problem"
    np.testing.assert_allclose(result, expected, atol=TOLERANCE)
    np.testing.assert_array_equal(result.argmax(1), expected.argmax(1))
    assert (model._cache is not None) == (prefix_cache and KINDS[kind].cached)


@pytest.mark.slow(but=("gpt2", "llama"))
@pytest.mark.parametrize("kind", KINDS)
def test_other_questions_change_no_bit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(f"{p} {n}", h) for n in range(4) for p, h in PAIRS]
    expected, rng = answers(model_of(kind), pairs), random.Random(0)
    for tokens, window in ((1, 4096), (60, 4096), (4000, 7), (None, 7)):
        monkeypatch.setattr(language_model, "_BLOCK", window)
        model = model_of(kind, batch_tokens=tokens)
        for size in (len(pairs), 1, 3, 9):
            rows = rng.sample(range(len(pairs)), size)
            np.testing.assert_array_equal(answers(model, [pairs[n] for n in rows]), expected[rows])


CHAT = (
    "{% for message in messages %}"
    "{% if message.role not in ('user', 'assistant') %}{{ raise_exception('no such role') }}"
    "{% endif %}[{{ message.role }}]\n{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]\n{% endif %}"
)
"""A chat template without a place for a system message."""


def with_template(kind: str, template: str) -> Any:
    tokenizer = tiny_tokenizer(kind)
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_chats(kind: str) -> None:
    """Examples are turns; only the template adds special tokens."""
    block = "[user]\nPremise: {}\nHypothesis: {}\nA. Entailment\nB. Neutral\nC. Contradiction\n"
    block += "Answer:\n[assistant]\n"
    shown = "".join(block.format(*e.texts) + "ABC"[e.label] + "\n" for e in EXAMPLES)
    texts = [shown + block.format(*pair) for pair in PAIRS]
    expected = slow_answers(kind, texts, KINDS[kind].letters, add_special_tokens=False)
    loaded = Loaded(tiny_lm(kind), with_template(kind, CHAT), kind, "1")
    model = LanguageModel(loaded, prompt=SHOTS, chat_template=True)
    np.testing.assert_allclose(answers(model, PAIRS), expected, atol=TOLERANCE)
    assert model._cache is not None
    assert model.describe().identity["chat_template"] is True


def test_reasoning_is_switched_off() -> None:
    """Templates that would let the model think first are told not to."""
    template = CHAT + "{% if enable_thinking is defined and not enable_thinking %}quiet{% endif %}"
    tokens = PromptTokens(with_template("gpt2", template), SHOTS, chat=True)
    text = tiny_tokenizer("gpt2").decode(tokens.encode([("a", "b")])[0])
    assert text.endswith("[assistant]\nquiet")


def test_a_start_stands_in_place_of_the_tokenizers_own() -> None:
    given, own = (PromptTokens(tiny_tokenizer("llama"), prompt).encode(PAIRS[:1])[0]
                  for prompt in (replace(SHOTS, start="<s>"), SHOTS))  # fmt: skip
    assert given.count(own[0]) == own.count(own[0]) == 1
    assert given[0] == own[0]


def test_what_cannot_be_asked_for_letters() -> None:
    """A tokenizer without distinct B and C; chats with base models."""
    with pytest.raises(ValueError, match=r"expected a tokenizer in which the answers A, B, C are"):
        PromptTokens(uncased_words(), SHOTS)
    with pytest.raises(ValueError, match=r"tokenizer\.chat_template is not set"):
        model_of("gpt2", chat_template=True)
    # Before any work, an error for a prompt that is too long names the premise.
    generator = model_of("gpt2").answer([*PAIRS, ("very " * CONTEXT, "It is long.")])
    with pytest.raises(ValueError, match=rf"at most {CONTEXT} tokens.* 'very .*fewer or shorter"):
        next(generator)


@pytest.mark.parametrize(("kind", "layer"), [("mamba", "no past_key"), ("falcon-h1", "Linear")])
def test_models_with_another_state_run_without_the_cache(
    kind: str, layer: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = model_of(kind)
    for _ in range(2):
        answers(model, PAIRS[:2])
    messages = [r.message for r in caplog.records if "without the prefix cache" in r.message]
    assert len(messages) == 1
    assert layer in messages[0]


def test_a_cache_that_changes_answers_is_not_used(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest prompt is first run in both ways, so any cause is detected."""

    def damaged(self: PrefixCache, model: Any, ids: Sequence[int]) -> None:
        original(self, model, ids)
        self._states = [(keys * 1.5, values) for keys, values in self._states]

    original = PrefixCache.__init__
    monkeypatch.setattr(PrefixCache, "__init__", damaged)
    result = answers(model_of("gpt2"), PAIRS)
    np.testing.assert_allclose(result, oracle("gpt2"), atol=TOLERANCE)
    assert "with it, probabilities of the longest prompt differ by" in caplog.text


def test_few_letters_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    model = model_of("gpt2")
    n_parameters, n_cached = model._model.num_parameters(), len(model._tokens.shared)
    assert model.describe().facts == {"parameters": n_parameters}
    batches = list(model.answer(PAIRS))
    assert {batch.notes["prefix_cached_tokens"] for batch in batches} == {n_cached}
    letter_mass = float(np.concatenate([item.numbers["letter_mass"] for item in batches]).mean())
    ids = tiny_tokenizer("gpt2").convert_tokens_to_ids(["ĠA", "ĠB", "ĠC", "A", "B", "C"])
    encoded = (tiny_tokenizer("gpt2")(SHOTS.text(*pair))["input_ids"] for pair in PAIRS)
    rows = [next_token_probabilities(tiny_lm("gpt2"), item)[ids] for item in encoded]
    expected = float(torch.stack(rows).sum(1).mean())
    assert letter_mass == pytest.approx(expected, rel=1e-3)
    tell_of_new_answers(model.name, {"letter_mass": letter_mass})
    assert f"mean probability of only {100 * expected:.1f} %" in caplog.text


@pytest.mark.real
@pytest.mark.slow
def test_a_real_model_from_a_gguf_file(shared_data: Path) -> None:
    """SmolLM2 with SNLI's six examples: the cache changes no prediction."""
    lines = (shared_data / "snli_test.jsonl").read_text(encoding="utf-8").splitlines()[:400:50]
    pairs = [(row["sentence1"], row["sentence2"]) for row in map(json.loads, lines)]
    prompt = read_prompt("snli", start="<|endoftext|>")
    loaded = load_lm(smollm2())
    cached = LanguageModel(loaded, prompt=prompt)
    plain = LanguageModel(loaded, prompt=prompt, prefix_cache=False)
    result, expected = answers(cached, pairs), answers(plain, pairs)
    assert cached._cache is not None
    np.testing.assert_allclose(result, expected, atol=TOLERANCE)
    np.testing.assert_array_equal(result.argmax(1), expected.argmax(1))
    assert all((batch.numbers["letter_mass"] > 0.9).all() for batch in cached.answer(pairs))
    assert cached.describe().identity["name"] == "SmolLM2-135M-Instruct.Q4_1"
