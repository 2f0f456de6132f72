"""A tiny masked LM with a vocabulary so small that all words of three pieces can be listed."""

from functools import lru_cache
from pathlib import Path

from transformers import BertConfig, BertTokenizer

from helpers.tiny_models import MAX_TOKENS, randomised, save, scratch

WORDS = "a the and near sees red dog cat man snow foot dogs".split()
PIECES = "##s ##man ##ball ##like ##cat".split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@lru_cache
def few_pieces(sharpness: float = 1.0) -> Path:
    """Make the folder; `sharpness` multiplies the output embeddings, and so the logits."""
    folder = scratch(f"few-pieces-{sharpness}")
    tokenizer = BertTokenizer(
        vocab={piece: number for number, piece in enumerate([*SPECIAL, *WORDS, *PIECES, "."])}
    )
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=MAX_TOKENS, initializer_range=0.3,
    )  # fmt: skip
    model = randomised(config, 0)
    model.get_output_embeddings().weight.data.mul_(sharpness)
    save(model, tokenizer, folder)
    return folder
