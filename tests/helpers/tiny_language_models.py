"""Small random causal LMs with tokenizers of every kind; they do not depend on our code."""

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import UnigramTrainer
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    FalconH1Config,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    OPTConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

from helpers.tiny_models import byte_level_bpe, sentences

CONTEXT: Final = 640

_BLOCK: Final = (
    "Premise: {}\nHypothesis: {}\nA. Entailment\nB. Neutral\nC. Contradiction\nAnswer:{}{}\n\n"
)


def _corpus(space: str) -> list[str]:
    """Prompts as for the models; with an empty `space`, no letter follows a space."""
    made = sentences(900) if space else [sentence.lower() for sentence in sentences(900)]
    return [
        _BLOCK.format(premise, hypothesis, space, "ABC"[i % 3])
        for i, (premise, hypothesis) in enumerate(zip(made[::2], made[1::2], strict=False))
    ]


def byte_level(*, space: str = " ", start: str | None = None) -> PreTrainedTokenizerFast:
    """A tokenizer like GPT-2's; with a start token, like OPT's."""
    tokenizer = byte_level_bpe(_corpus(space), ["<|end|>"], 700)
    if start:
        tokenizer.post_processor = _template(f"{start} $A", tokenizer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|end|>", eos_token="<|end|>"
    )


def _template(single: str, tokenizer: Tokenizer) -> processors.TemplateProcessing:
    special = [(t, tokenizer.token_to_id(t)) for t in single.split() if not t.startswith("$")]
    return processors.TemplateProcessing(single=single, special_tokens=special)


def metaspace(*, letters: bool = True, end: bool = False) -> PreTrainedTokenizerFast:
    """A tokenizer like Llama 2's: SentencePiece's spaces, start and end tokens; maybe no "▁A"."""
    special = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = _metaspace()
    trainer = UnigramTrainer(
        vocab_size=900, show_progress=False, special_tokens=special, unk_token="<unk>",
        initial_alphabet=["\n"],
    )  # fmt: skip
    tokenizer.train_from_iterator(_corpus(" "), trainer)
    scores = dict(json.loads(tokenizer.to_str())["model"]["vocab"])
    wanted = {f"▁{letter}": -1.0 for letter in "ABC" if letters}
    pieces = {part: round(score, 1) for part, score in scores.items()} | wanted
    pieces = {p: s for p, s in pieces.items() if p in wanted or p not in {"▁A", "▁B", "▁C"}}
    known = [(part, 0.0) for part in special] + sorted(
        item for item in pieces.items() if item[0] not in special
    )
    tokenizer = Tokenizer(models.Unigram(known, unk_id=0))
    tokenizer.pre_tokenizer = _metaspace()
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = _template("<s> $A </s>" if end else "<s> $A", tokenizer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


def _metaspace() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("\n", "isolated"),
            pre_tokenizers.Metaspace(prepend_scheme="first"),
            pre_tokenizers.Punctuation(),
        ]
    )


def words_and_spaces() -> PreTrainedTokenizerFast:
    text = " ".join(_corpus(" "))
    split = pre_tokenizers.Split(" ", "isolated")
    breaks = pre_tokenizers.Split("\n", "isolated")
    pieces = pre_tokenizers.Sequence([breaks, split, pre_tokenizers.Punctuation()])
    vocabulary = {"<unk>": 0}
    for part, _ in pieces.pre_tokenize_str(text):
        vocabulary.setdefault(part, len(vocabulary))
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pieces
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def uncased_words() -> PreTrainedTokenizerFast:
    """A tokenizer without capital letters and with few small ones: B and C are both unknown."""
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "answer": 2}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


_SIZES: Final[Mapping[str, Any]] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": CONTEXT, "initializer_range": 0.2,
}  # fmt: skip


@dataclass(frozen=True)
class TinyLM:
    tokenizer: Callable[[], PreTrainedTokenizerFast]
    config: Callable[..., PreTrainedConfig]
    letters: tuple[tuple[str, ...], ...]
    """Tokens that count as A, B and C, read off the vocabulary by hand."""
    answer_after: str = ""
    """Spaces of the template that are separate tokens."""
    cached: bool = True
    """Whether the model's state consists of keys and values only."""


_BYTES: Final = (("ĠA", "A"), ("ĠB", "B"), ("ĠC", "C"))
_PIECES: Final = (("▁A", "A"), ("▁B", "B"), ("▁C", "C"))
_SEPARATE: Final = (("A",), ("B",), ("C",))

_llama: Final = partial(LlamaConfig, **_SIZES)
gpt2: Final = partial(
    GPT2Config, n_embd=32, n_layer=2, n_head=4, n_positions=CONTEXT, initializer_range=0.2
)
opt: Final = partial(
    OPTConfig, hidden_size=32, word_embed_proj_dim=32, ffn_dim=64, num_hidden_layers=2,
    num_attention_heads=4, max_position_embeddings=CONTEXT, init_std=0.2,
)  # fmt: skip
# Windows far shorter than the few-shot examples.
_mistral: Final = partial(MistralConfig, **_SIZES, sliding_window=24)
_gemma2: Final = partial(
    Gemma2Config, **_SIZES, head_dim=8, query_pre_attn_scalar=8, sliding_window=24
)
_bloom: Final = partial(BloomConfig, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.2)
_mamba: Final = partial(
    MambaConfig, hidden_size=32, num_hidden_layers=2, state_size=4, initializer_range=0.2
)
_falcon_h1: Final = partial(
    FalconH1Config, **_SIZES, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8,
    mamba_n_groups=1, mamba_chunk_size=8,
)  # fmt: skip

KINDS: Final[Mapping[str, TinyLM]] = {
    "gpt2": TinyLM(byte_level, gpt2, _BYTES),
    "opt": TinyLM(partial(byte_level, start="<|end|>"), opt, _BYTES),
    "llama": TinyLM(metaspace, _llama, _PIECES),
    "llama-separate": TinyLM(partial(metaspace, letters=False), _llama, _SEPARATE, " "),
    "llama-end": TinyLM(partial(metaspace, end=True), _llama, _PIECES),
    # "ĠA" is no token: the space is a separate token.
    "llama-bytes": TinyLM(partial(byte_level, space=""), _llama, _SEPARATE, " "),
    "llama-words": TinyLM(words_and_spaces, _llama, _SEPARATE, " "),
    "mistral": TinyLM(metaspace, _mistral, _PIECES),
    "gemma2": TinyLM(metaspace, _gemma2, _PIECES),
    "bloom": TinyLM(byte_level, _bloom, _BYTES),
    "mamba": TinyLM(byte_level, _mamba, _BYTES, cached=False),
    "falcon-h1": TinyLM(byte_level, _falcon_h1, _BYTES, cached=False),
}


@lru_cache
def _trained(kind: str) -> PreTrainedTokenizerFast:
    return KINDS[kind].tokenizer()


def tiny_tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """A copy of the tokenizer, which a test may change."""
    return deepcopy(_trained(kind))


@lru_cache
def tiny_lm(kind: str) -> Any:
    tokenizer = tiny_tokenizer(kind)
    config = KINDS[kind].config(
        vocab_size=len(tokenizer), pad_token_id=None, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(sorted(KINDS).index(kind))
        return AutoModelForCausalLM.from_config(config).eval()


def next_token_probabilities(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """Shape (vocabulary,), float64, from one forward pass over a whole prompt, no cache."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits
    return logits[0, -1].double().softmax(-1)
