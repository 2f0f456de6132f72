"""A masked LM with made-up answers, to measure everything else at any size."""

import json
import random
import shutil
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from generation.config import BUNDLED_MLM, bundled_path

MADE_UP: Final = "made-up"
"""Name of the masked LM in the manifest, in the dataset's columns and on its card."""
_SHARE: Final = 0.25
"""Share of words with more probable replacements; the other words have none."""
_OFFERED: Final = (
    "apple baby ball bank basket beach bear bed bird boat book bottle box brother bus cake "
    "camera car cat chair chicken church city coat cow cup desk doctor door farmer father flag "
    "flower friend garden glass guitar hat hill horse hotel house island jacket kitchen lady "
    "lake lamp lion mother mouse neighbor"
).split()
"""Words that stay nouns in place of any noun."""


def write_made_up_mlm(folder: Path) -> None:
    target = folder / MADE_UP
    shutil.copytree(bundled_path(f"demo/{BUNDLED_MLM}"), target, dirs_exist_ok=True)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    config["answers"] = MADE_UP
    (target / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def make_up_answers() -> None:
    """Let masked LMs in this process answer without a forward pass."""
    from generation.records import Scores
    from generation.suggestions.masked_lm import MaskedLM

    def answer(
        mlm: MaskedLM, queries: Sequence[Any], *, k: int
    ) -> Iterator[tuple[list[int], Scores]]:
        scores, inputs = Scores.empty(len(queries), k), list(mlm._inputs(queries))
        for item in inputs:
            tokens, probable = _answer(item.original, k, _ids(mlm))
            scores.tokens[item.row] = tokens
            scores.original[item.row] = item.original
            scores.original_logit[item.row] = 0.5 - probable
        mine = [item.row for item in inputs]
        scores.logits[mine] = -np.arange(k, dtype=np.float32)
        scores.log_normalizer[mine] = 2
        yield list(range(len(queries))), scores

    MaskedLM.answer = answer


@lru_cache(maxsize=1)
def _ids(mlm: Any) -> tuple[int, ...]:
    return tuple(mlm.vocabulary.texts.index(word) for word in _OFFERED)


@lru_cache(maxsize=100_000)
def _answer(original: int, k: int, offered: tuple[int, ...]) -> tuple[Any, int]:
    """Tokens in place of a word, and the number of tokens more probable than the word."""
    rng = random.Random(original)
    others = range(2000, 2000 + k)
    tokens = [*rng.sample(offered, len(offered)), *others][:k]
    return np.array(tokens, np.int32), len(offered) if rng.random() < _SHARE else 0
