"""Masked contexts out of real sentences, the same for all models."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from helpers.bench.fill_mask import Context
from helpers.bench.models import REAL, SHAPES, model_folder
from helpers.reference import tag


def find_contexts(
    problems: Sequence[dict[str, str]], shared_models: Path, count: int
) -> list[Context]:
    """Distinct sentences, premises first, with their first noun that will do for all.

    It stands there once, not at the beginning, and is one token of every model.
    """
    folders = [model_folder(name, shared_models) for name in (*REAL, *SHAPES)]
    tokenizers = [Tokenizer.from_file(str(f / "tokenizer.json")) for f in folders if f]
    found = []
    for sentence in dict.fromkeys(p[side] for side in ("sentence1", "sentence2") for p in problems):
        words = re.findall(r"[\w'-]+", sentence)
        for token in tag(sentence):
            if (
                token.tag in {"NN", "NNS"}
                and token.start > 0
                and sentence.count(token.text) == words.count(token.text) == 1
                and all(len(t.encode(f" {token.text}", add_special_tokens=False)) == 1
                        for t in tokenizers)
            ):  # fmt: skip
                found.append((sentence, token.text, token.start))
                break
        if len(found) == count:
            break
    return found
