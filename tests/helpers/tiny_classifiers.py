"""Small random sequence classifiers of every kind; they do not depend on our code."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    XLNetConfig,
)

from helpers.tiny_language_models import byte_level, gpt2, opt
from helpers.tiny_models import MAX_TOKENS, randomised, save, scratch, tiny_model

NAMED: Final[Mapping[int, str]] = {0: "entailment", 1: "neutral", 2: "contradiction"}
_SIZE: Final = 32


def _of_mlm(kind: str) -> tuple[PreTrainedConfig, Any]:
    folder = tiny_model(kind)
    config = AutoConfig.from_pretrained(folder, num_labels=3, initializer_range=0.3)
    return config, AutoTokenizer.from_pretrained(folder)


def _xlnet() -> tuple[PreTrainedConfig, Any]:
    """XLNet: the head reads the [CLS] at the end; padding is on the left."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_model("albert"), padding_side="left")
    ids = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[SEP]", "[CLS]")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A [SEP] [CLS]:2", pair="$A [SEP] $B:1 [SEP]:1 [CLS]:2", special_tokens=ids
    )
    config = XLNetConfig(
        vocab_size=len(tokenizer), d_model=_SIZE, n_layer=2, n_head=2, d_inner=2 * _SIZE,
        initializer_range=0.3, num_labels=3, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return config, tokenizer


def _causal(config: Callable[..., PreTrainedConfig], start: str | None = None, **more: Any) -> Any:
    """A causal LM's tokenizer, which has no token for padding, and configuration."""
    tokenizer = byte_level(start=start)
    ids = {"vocab_size": len(tokenizer), "bos_token_id": 0, "eos_token_id": 0}
    return config(num_labels=3, **ids, **more), tokenizer


_MLMS: Final = ("bert-uncased", "roberta", "albert", "electra", "distilbert", "deberta")
_KINDS: Final[Mapping[str, Callable[[], tuple[PreTrainedConfig, Any]]]] = {
    **{kind: partial(_of_mlm, kind) for kind in _MLMS},
    "xlnet": _xlnet,
    # The head reads the last end-of-sequence token, of which a pair has several.
    "bart": partial(_of_mlm, "bart"),
    "gpt2": partial(_causal, gpt2, n_positions=MAX_TOKENS, initializer_range=0.3),
    "opt": partial(
        _causal, opt, "<|end|>", max_position_embeddings=MAX_TOKENS, init_std=0.3, pad_token_id=1
    ),
}

KINDS: Final = tuple(_KINDS)


def folder_of(kind: str, labels: Sequence[str] = tuple(NAMED.values())) -> Path:
    return scratch("classifiers") / "-".join([kind, *labels])


@lru_cache
def tiny_classifier(kind: str, labels: Sequence[str] = tuple(NAMED.values())) -> Path:
    """Folder of one of `KINDS`, made on first use, for the Auto classes."""
    config, tokenizer = _KINDS[kind]()
    config.num_labels = len(labels)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: number for number, label in enumerate(labels)}
    folder = folder_of(kind, labels)
    model = randomised(config, KINDS.index(kind), AutoModelForSequenceClassification)
    save(model, tokenizer, folder)
    return folder


def one_by_one(folder: Path, pairs: Sequence[tuple[str, str]], limit: int) -> np.ndarray:
    """Probabilities of the model's own classes, with a separate forward pass for each pair."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    rows = []
    for premise, hypothesis in pairs:
        inputs = tokenizer(
            premise, hypothesis, truncation=True, max_length=limit, return_tensors="pt"
        )
        if "token_type_ids" not in tokenizer.model_input_names:
            inputs.pop("token_type_ids", None)
        with torch.inference_mode():
            rows.append(model(**inputs).logits[0].double().softmax(0).numpy())
    return np.array(rows)
