"""Log-likelihoods against loops over tokens, and their store."""

import csv
import math
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.fit_quality import GEMMA, SIGNALS
from helpers.gguf_files import gemma, load_lm, smollm2
from helpers.judged import JUDGED
from helpers.tiny_language_models import (
    CONTEXT,
    next_token_probabilities,
    tiny_lm,
    tiny_tokenizer,
)
from helpers.tiny_language_models import KINDS as LM_KINDS
from helpers.tiny_models import KINDS, MAX_TOKENS, sentences, tiny_model
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, LlamaConfig

from generation.signals import likelihoods
from generation.signals.likelihoods import (
    CausalLM,
    item_of,
    pseudo_log_likelihoods,
)
from generation.suggestions.masked_lm import MaskedLM
from merge_dataset.annotation import read_session
from merge_metric.models.checkpoints import Loaded
from merge_metric.models.fast_layers import keeps_apart, pack_linear_layers

TEXTS = [
    *sentences()[:6],
    "A snowman and a postman, fireman or chairman.",
    'The café said "unhurriedly": don\'t!',
    "Half-hearted birds (doghouse) sing 23 songs… today",
    "Dog.",
    "x",
]
"""Texts with words of several pieces, clitics, hyphens, numbers, brackets and other marks."""


@cache
def tiny_mlm(kind: str) -> MaskedLM:
    return MaskedLM.load(tiny_model(kind), device="cpu")


@cache
def slow_parts(kind: str) -> tuple[Any, Any]:
    folder = tiny_model(kind)
    return AutoTokenizer.from_pretrained(folder), AutoModelForMaskedLM.from_pretrained(folder)


def slow_pll(kind: str, text: str) -> float:
    """PLL-word-l2r by its definition: one token at a time, with a forward pass for each."""
    tokenizer, model = slow_parts(kind)
    encoding = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    ids, words = encoding["input_ids"], encoding.word_ids()
    offsets = encoding["offset_mapping"]

    def in_one_word(i: int, j: int) -> bool:
        """Whether tokens i < j are in one word, only of letters and digits or without any."""
        inside = [text[start:end].strip() for start, end in offsets[i : j + 1]]
        kinds = {part.isalnum() for part in inside if part}
        # White space goes with letters.
        kinds |= {True for part in inside if not part}
        return words[i] is not None and words[i] == words[j] and len(kinds) == 1

    special = encoding["special_tokens_mask"]
    head, tail = special.index(0), special[::-1].index(0)
    room = MAX_TOKENS - head - tail
    total = 0.0
    for i, token in enumerate(ids):
        if special[i]:
            continue
        masked = list(ids)
        for j in range(i, len(ids)):
            if j == i or in_one_word(i, j):
                masked[j] = tokenizer.mask_token_id
        place = i
        if len(ids) > MAX_TOKENS:
            first = min(max(i - room // 2, head), len(ids) - tail - room)
            masked = masked[:head] + masked[first : first + room] + masked[len(ids) - tail :]
            place = i - first + head
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([masked])).logits[0, place]
        total += float(logits.log_softmax(-1)[token])
    return total


@pytest.mark.slow(but=["roberta"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_token_the_slow_way(kind: str) -> None:
    result = pseudo_log_likelihoods(tiny_mlm(kind), TEXTS)
    assert not result["windowed"].to_numpy().any()
    assert result["pll"].to_pylist() == pytest.approx([slow_pll(kind, t) for t in TEXTS], abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert-cased", "roberta", "albert"])
def test_long_texts_are_scored_in_windows(kind: str) -> None:
    long = " ".join(sentences()[:12])
    result = pseudo_log_likelihoods(tiny_mlm(kind), [TEXTS[0], long])
    assert result["windowed"].to_pylist() == [False, True]
    assert result["pll"].to_pylist() == pytest.approx(
        [slow_pll(kind, TEXTS[0]), slow_pll(kind, long)], abs=2e-3
    )


@pytest.mark.slow(but=("bert-uncased",))
@pytest.mark.parametrize("kind", ["bert-uncased", "roberta", "deberta"])
def test_batches_do_not_matter(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mlm = tiny_mlm(kind)
    together = pseudo_log_likelihoods(mlm, TEXTS)["pll"].to_numpy()
    alone = [pseudo_log_likelihoods(mlm, [text])["pll"].to_numpy()[0] for text in TEXTS]
    assert together.tolist() == alone
    for batch_tokens in (1, 40, 4096):
        monkeypatch.setattr(mlm, "batch_tokens", batch_tokens)
        backwards = pseudo_log_likelihoods(mlm, TEXTS[::-1])
        assert backwards["pll"].to_numpy()[::-1].tolist() == alone


def test_each_distinct_masked_text_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    mlm = tiny_mlm("bert-cased")
    long = " ".join(sentences()[:12])
    texts = [
        "A man and a dog.",
        "A dog and a dog.",
        long,
        *(long + f" A {word}." for word in "xyz"),
    ]
    alone = [pseudo_log_likelihoods(mlm, [text])["pll"].to_numpy()[0] for text in texts]
    encodings = mlm.encode(texts)
    masked = [item for pair in zip(texts, encodings, strict=True)
              for item in likelihoods._masked(*pair, mlm)]  # fmt: skip
    run, asked = MaskedLM._run, []

    def counted(self: MaskedLM, batch: list[Any]) -> torch.Tensor:
        asked.extend((i.ids, i.position) for i in batch)
        return run(self, batch)

    monkeypatch.setattr(MaskedLM, "_run", counted)
    # Small steps, so that each window reuses an earlier one.
    monkeypatch.setattr(likelihoods, "_TOKENS_AT_ONCE", 40)
    assert pseudo_log_likelihoods(mlm, texts)["pll"].to_pylist() == alone
    distinct = {(ids, position) for ids, position, _ in masked}
    assert len(set(asked)) == len(distinct) < len(masked) / 2
    assert len(asked) < 1.1 * len(distinct)


EDITS = [
    ("A girl jumps.", "A dog jumps."),
    ("A girl jumps.", "A girl sees."),
    ("A girl jumps.", "Snow jumps."),
    ("Two dogs run in the snow.", "Two dogs run in the air."),
    ("A girl jumps.", "A dog jumps."),
    ("A dog sees a dog in the snow.", "An old horse sees an old horse in the snow."),
    ("A girl", "A girls"),
]
"""Texts before and after: one place or two, at the start and the end, of one token or more."""
ITEMS = [item_of(old, [], new, []) for old, new in EDITS]


@cache
def lm_of(kind: str) -> CausalLM:
    return CausalLM(
        Loaded(pack_linear_layers(deepcopy(tiny_lm(kind))), tiny_tokenizer(kind), kind, "0")
    )


def slow_change(kind: str, old: str, new: str, most: int = CONTEXT) -> float:
    """Sum log P of the tokens that differ and the next two, each given all before it."""
    lm, tokenizer = lm_of(kind), tiny_tokenizer(kind)
    ids = [tokenizer(text, add_special_tokens=False).input_ids for text in (old, new)]
    same = next(n for n in range(999) if len({tuple(side[: n + 1]) for side in ids}) == 2)
    after, shortest = 0, min(map(len, ids)) - same
    while after < shortest and ids[0][-1 - after] == ids[1][-1 - after]:
        after += 1
    totals = []
    for side in ids:
        end = min(len(side) - after + 2, len(side), same + most // 2)
        first = max(0, same + 1 - most // 2)
        totals.append(
            sum(
                math.log(
                    next_token_probabilities(tiny_lm(kind), [lm._start, *side[first:n]])[side[n]]
                )
                for n in range(same, end)
            )
        )
    return totals[1] - totals[0]


@pytest.mark.parametrize("width", [48, 64])
def test_widths_of_layers_change_no_bit(width: int) -> None:
    """Where SiLU rounds the last numbers of a batch otherwise, texts are run one by one."""
    config = LlamaConfig(
        vocab_size=len(tiny_tokenizer("llama")), hidden_size=32, intermediate_size=width,
        num_hidden_layers=2, num_attention_heads=4, initializer_range=0.2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = pack_linear_layers(AutoModelForCausalLM.from_config(config).eval())
    assert keeps_apart(model) == (width == 64)
    lm = CausalLM(Loaded(model, tiny_tokenizer("llama"), "llama", "0"))
    texts = sentences(160)
    items = [item_of(old, [], new, []) for old, new in pairwise(texts)]
    alone = [lm.changes([item])["pll"].to_pylist()[0] for item in items]
    assert lm.changes(items)["pll"].to_pylist() == alone


@pytest.mark.slow(but=["llama"])
@pytest.mark.parametrize("kind", sorted(LM_KINDS.keys() - {"llama-words"}))
def test_changes_are_of_sums_of_log_probabilities(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = lm_of(kind)
    result = lm.changes(ITEMS)
    expected = [slow_change(kind, *pair) for pair in EDITS]
    np.testing.assert_allclose(result["pll"].to_numpy(), expected, atol=1e-4)
    assert not result["windowed"].to_numpy().any()
    # To the bit: alone, in other batches, and by more threads.
    alone = [lm.changes([item])["pll"].to_pylist()[0] for item in ITEMS]
    assert result["pll"].to_pylist() == alone
    monkeypatch.setattr(lm, "_most", min(lm._most, 9))
    assert lm.changes(ITEMS[::-1])["pll"].to_pylist() == alone[::-1]
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert lm.changes(ITEMS)["pll"].to_pylist() == alone
    finally:
        torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "ending"), [(smollm2, ""), (gemma, GEMMA)])
def test_real_models_give_what_judged_variants_have(model: Callable[[], Path], ending: str) -> None:
    lm = CausalLM(load_lm(model(), dtype="float32"))
    items = read_session(JUDGED[1]).items
    with (JUDGED[1] / SIGNALS).open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))[::30]
    expected = {
        item_of(text, [], items[row["variant_id"]].variant_texts[field], []): float(change)
        for row in rows
        for field, text in items[row["variant_id"]].seed_texts.items()
        if (change := row[f"{field}_pll_change{ending}"])
    }
    assert len(expected) > 10
    result = lm.changes(list(expected))["pll"].to_numpy()
    np.testing.assert_allclose(result, list(expected.values()), atol=2e-3)


def test_tokens_far_from_a_replacement_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lm_of("llama"), "max_tokens", 12)
    before = "A girl jumps and a dog runs and no one sees a "
    pairs = [
        (f"{before}horse.", f"{before}dog."),
        ("A girl.", "A dog."),
        ("A dog runs and no one sees a dog.", "A horse runs and no one sees a horse."),
    ]
    result = lm_of("llama").changes([item_of(old, [], new, []) for old, new in pairs])
    assert result["windowed"].to_pylist() == [True, False, True]
    expected = [slow_change("llama", *pair, most=12) for pair in pairs]
    np.testing.assert_allclose(result["pll"].to_numpy(), expected, atol=1e-4)
