"""SentencePiece models as ALBERT, XLNet and DeBERTa v3 have them, trained here in no time."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from helpers.tiny_models import sentences

_KINDS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
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
    }
)  # fmt: skip
"""Options of the trainer that give the special pieces their numbers."""


@lru_cache
def sentence_pieces(kind: str) -> bytes:
    """A SentencePiece model with whole words and with pieces."""
    from sentencepiece import SentencePieceTrainer

    file = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(sentences()),
        model_writer=file,
        vocab_size=400,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **_KINDS[kind],
    )
    return file.getvalue()
