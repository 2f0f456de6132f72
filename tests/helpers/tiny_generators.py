"""Small random text generators of every kind, which end about as likely as they continue."""

from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import AddedToken
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    LlamaConfig,
    PreTrainedTokenizerFast,
    T5Config,
)

from helpers.tiny_language_models import byte_level, gpt2, metaspace
from helpers.tiny_models import save

CONTEXT: Final = 256
CHAT: Final = (
    "{% for message in messages %}<|end|>[{{ message.role }}]\n{{ message.content }}\n"
    "{% endfor %}{% if add_generation_prompt %}[assistant]\n{% endif %}"
)

KINDS: Final = ("t5", "llama", "llama-chat", "gpt2")
"""The tokenizers of causal models have one special token. T5's has more, and fewer tokens than
the model has rows."""


@lru_cache
def _trained(kind: str) -> PreTrainedTokenizerFast:
    tokenizer = metaspace(end=True) if kind == "t5" else byte_level()
    if kind == "t5":
        tokenizer.add_tokens([AddedToken("<extra_id_0>", special=True)])
        tokenizer.pad_token = "<unk>"
    if kind == "llama-chat":
        tokenizer.chat_template = CHAT
    return tokenizer


def tiny_tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """A copy of the tokenizer, which a test may change."""
    return deepcopy(_trained(kind))


def _config(kind: str, vocabulary: int, end: int) -> Any:
    if kind == "t5":
        return T5Config(
            vocab_size=vocabulary + 5, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
            feed_forward_proj="gated-gelu", tie_word_embeddings=False, pad_token_id=0,
            eos_token_id=end, decoder_start_token_id=0,
        )  # fmt: skip
    if kind == "gpt2":
        ids = {"bos_token_id": end, "eos_token_id": end}
        return gpt2(vocab_size=vocabulary, n_positions=CONTEXT, **ids)
    return LlamaConfig(
        vocab_size=vocabulary, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=48, max_position_embeddings=CONTEXT,
        initializer_range=0.3, bos_token_id=end, eos_token_id=end, pad_token_id=None,
    )  # fmt: skip


@lru_cache
def tiny_generator(kind: str, seed: int = 0) -> Any:
    """A model of one of `KINDS`, in float64 on the CPU, so that rounding is negligible."""
    tokenizer = tiny_tokenizer(kind)
    config = _config(kind, len(tokenizer), tokenizer.eos_token_id)
    auto = AutoModelForSeq2SeqLM if kind == "t5" else AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + 2)
        model = auto.from_config(config).eval().double()
    with torch.no_grad():
        head = model.get_output_embeddings().weight
        head *= 0.3 if kind == "t5" else 1
        head[tokenizer.eos_token_id] *= 2
    return model


@lru_cache
def saved_generator(kind: str, folder: Path) -> Path:
    save(tiny_generator(kind), tiny_tokenizer(kind), folder)
    return folder


def next_log_probs(
    model: Any, prompt: list[int], tokens: tuple[int, ...], temperature: float
) -> list[float]:
    """Log-probabilities after a prompt and new tokens: one forward pass, no cache, no mask."""
    with torch.inference_mode():
        if model.config.is_encoder_decoder:
            start = model.config.decoder_start_token_id
            output = model(
                input_ids=torch.tensor([prompt]),
                decoder_input_ids=torch.tensor([[start, *tokens]]),
                use_cache=False,
            )
        else:
            output = model(input_ids=torch.tensor([[*prompt, *tokens]]), use_cache=False)
        scaled = output.logits[0, -1].double() / temperature
    return scaled.log_softmax(-1).tolist()
