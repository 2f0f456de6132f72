import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from generation.records import MaskedQuery, Scores
from generation.suggestions.masked_lm import MaskedLM
from merge_metric.models.fast_layers import vectors_at


def ask(sentence: str, word: str, occurrence: int = 0) -> MaskedQuery:
    """Make a query: words that may replace one occurrence of `word`."""
    span = [m.span() for m in re.finditer(rf"\b{re.escape(word)}\b", sentence)][occurrence]
    return MaskedQuery(sentence, span, (span,))


def ask_all(texts: list[str]) -> list[MaskedQuery]:
    return [
        MaskedQuery(text, match.span(), (match.span(),))
        for text in texts
        for match in re.finditer(r"\w+", text)
    ]


def assert_identical(here: Scores, elsewhere: Scores) -> None:
    for field in fields(Scores):
        one, other = getattr(here, field.name), getattr(elsewhere, field.name)
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes(), field.name


@contextmanager
def seen_inputs(mlm: MaskedLM) -> Iterator[list[list[list[int]]]]:
    seen: list[list[list[int]]] = []

    def look(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append(kwargs.get("input_ids", *args).tolist())

    def look_at_texts(places: Any, trunk: Any, texts: Any) -> torch.Tensor:
        seen.append([list(ids) for ids in texts])
        return vectors_at(places, trunk, texts)

    hook = mlm._model.base_model.register_forward_pre_hook(look, with_kwargs=True)
    with patch("merge_metric.models.fast_layers.vectors_at", look_at_texts):
        yield seen
    hook.remove()


def score(mlm: MaskedLM, queries: Sequence[MaskedQuery], *, k: int) -> Scores:
    """A masked LM's answers in the order of the questions."""
    batches = list(mlm.answer(queries, k=k))
    rows = [row for rows, _ in batches for row in rows]
    columns = {
        field.name: np.concatenate([getattr(scores, field.name) for _, scores in batches])
        for field in fields(Scores)
    }
    return Scores(**columns).take(np.argsort(rows).tolist())
