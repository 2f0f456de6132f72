"""Plain models from which the Hub's layouts are made, as the installed transformers saves them."""

import io
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    XLNetConfig,
)

from helpers.dataset_files import files_of
from helpers.hub import files as of
from helpers.hub.files import tensors_of, written
from helpers.problem_folder import many_problems
from helpers.tiny_classifiers import one_by_one, tiny_classifier
from helpers.tiny_language_models import tiny_lm, tiny_tokenizer
from helpers.tiny_models import MAX_TOKENS, randomised, save, scratch, sentences

LABELS: Final = {"e": "entailment", "n": "neutral", "c": "contradiction"}


def plain_classifier(kind: str, order: str = "e,n,c") -> Callable[[], Path]:
    """Return a function that makes a classifier whose answers include every class."""
    names = tuple(LABELS[letter] for letter in order.split(","))
    return partial(_balanced, kind, names)


@lru_cache(None)
def _balanced(kind: str, labels: tuple[str, ...]) -> Path:
    plain = of_pieces(kind, labels) if kind in _PIECES else tiny_classifier(kind, labels)
    return balanced(plain, scratch("-".join(["balanced", kind, *labels])))


def balanced(plain: Path, folder: Path) -> Path:
    """Shift a classifier's last bias so that its classes are about equally frequent."""
    pairs = [problem[:2] for problem in many_problems(40, 0).values()]
    tensors = tensors_of(plain)
    name = next((name for name in tensors if _LAST_BIAS.search(name)), None)
    if name is None:  # GPT-2 and OPT have none
        return plain
    shift = np.log(one_by_one(plain, pairs, MAX_TOKENS)).mean(axis=0)
    tensors[name] = tensors[name] - torch.tensor(shift, dtype=torch.float32)
    return written(files_of(plain) | of.safetensors_of(tensors), folder)


_LAST_BIAS: Final = re.compile(
    r"^(logits_proj|classifier(\.out_proj)?|classification_head\.out_proj)\.bias$"
)


_TRAINERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "albert": {
        "pad_id": 0, "pad_piece": "<pad>", "unk_id": 1, "bos_id": -1, "eos_id": -1,
        "control_symbols": ["[CLS]", "[SEP]"], "user_defined_symbols": ["[MASK]"],
        "normalization_rule_name": "nmt_nfkc_cf",
    },
    "xlnet": {
        "unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": 5, "pad_piece": "<pad>",
        "control_symbols": ["<cls>", "<sep>", "<mask>"],
        "user_defined_symbols": ["<eod>", "<eop>"],
    },
    "deberta": {
        "pad_id": 0, "pad_piece": "[PAD]", "bos_id": 1, "bos_piece": "[CLS]", "eos_id": 2,
        "eos_piece": "[SEP]", "unk_id": 3, "unk_piece": "[UNK]",
    },
}  # fmt: skip
"""Options of the trainer with the numbers of the special pieces."""


_PIECES: Final[Mapping[str, tuple[str, Callable[[], PreTrainedConfig]]]] = {
    "albert-pieces": (
        "spiece.model", lambda: AutoConfig.from_pretrained(tiny_classifier("albert"))
    ),
    "xlnet-pieces": ("spiece.model", lambda: XLNetConfig(
        d_model=32, n_layer=2, n_head=2, d_inner=64, initializer_range=0.3, pad_token_id=5)),
    "deberta-pieces": (
        "spm.model", lambda: AutoConfig.from_pretrained(tiny_classifier("deberta"))
    ),
}  # fmt: skip


@lru_cache
def pieces_files(kind: str) -> dict[str, bytes]:
    """Tokenizer files of a repository with only SentencePiece, and a vocabulary of whole words."""
    from sentencepiece import SentencePieceTrainer

    file = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(sentences()), model_writer=file, vocab_size=400,
        hard_vocab_limit=False, minloglevel=2, num_threads=1,
        **_TRAINERS[kind.removesuffix("-pieces")],
    )  # fmt: skip
    files = {_PIECES[kind][0]: file.getvalue()}
    if kind == "deberta-pieces":
        config = {
            "do_lower_case": False, "vocab_type": "spm", "tokenizer_class": "DebertaV2Tokenizer",
        }  # fmt: skip
        files |= {
            "added_tokens.json": of.as_json({"[MASK]": 330}),
            "special_tokens_map.json": of.as_json({"mask_token": "[MASK]", "cls_token": "[CLS]"}),
            "tokenizer_config.json": of.as_json(config),
        }
    return files


@lru_cache(None)
def _pieces_tokenizer(kind: str) -> Any:
    config = _PIECES[kind][1]()
    type_only = {"config.json": of.as_json({"model_type": config.model_type})}
    folder = written(pieces_files(kind) | type_only, scratch(f"{kind}-tokenizer"))
    return AutoTokenizer.from_pretrained(folder)


@lru_cache(None)
def of_pieces(kind: str, labels: tuple[str, ...] = ()) -> Path:
    """A plain model with the tokenizer of a SentencePiece model; without labels, a masked LM."""
    tokenizer, config = _pieces_tokenizer(kind), _PIECES[kind][1]()
    config.vocab_size, config.pad_token_id = len(tokenizer), tokenizer.pad_token_id
    if labels:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: number for number, label in enumerate(labels)}
    auto = AutoModelForSequenceClassification if labels else AutoModelForMaskedLM
    model = randomised(config, 7, auto)
    folder = scratch("-".join([kind, *labels]))
    save(model, tokenizer, folder)
    # Of the version of the layouts: ALBERT and XLNet have had types of tokens until transformers 5.
    written(of.config_of(folder), folder)
    return folder


@lru_cache(None)
def plain_lm(kind: str) -> Path:
    folder = scratch(f"lm-{kind}")
    save(tiny_lm(kind), tiny_tokenizer(kind), folder)
    return folder


@lru_cache(None)
def rounded(plain: Callable[[], Path], dtype: torch.dtype = torch.float16) -> Path:
    """The plain model with weights that a shorter type represents exactly."""
    folder = scratch(f"{plain().name}-{str(dtype).removeprefix('torch.')}")
    tensors = {name: item.to(dtype).float() for name, item in tensors_of(plain()).items()}
    return written(files_of(plain()) | of.safetensors_of(tensors), folder)
