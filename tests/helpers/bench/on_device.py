from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

from helpers.bench.fill_mask import TOP, Answer, Context, masked_texts
from merge_metric.models import fast_layers
from merge_metric.models.classifier import Classifier

SIDE: Final = 8192


def over_pairs(
    model: str,
    pairs: list[tuple[str, str]],
    device: str = "cpu",
    dtype: str = "float32",
    packed: bool = True,
    unpadded: bool = False,
) -> Callable[[list[int]], Any]:
    torch.set_num_threads(1)
    if not packed:
        fast_layers.can_pack = lambda device, dtype: False
    ours = Classifier.load(model, device=device, dtype=dtype, unpadded=unpadded)

    def answer(rows: list[int]) -> Callable[[], Any]:
        result = np.empty((len(rows), 3))
        for answers in ours.answer([tuple(pairs[i]) for i in rows]):
            result[answers.positions] = answers.probabilities
        return result.tolist

    return answer


def square_products(dtype: str) -> Callable[[], None]:
    kind = getattr(torch, dtype)
    left, right = torch.randn((2, SIDE, SIDE), device="cuda").to(kind)

    def answer() -> None:
        torch.mm(left, right)
        torch.cuda.synchronize()

    return answer


def padded_questions(
    model: str, contexts: Sequence[Context], batch_size: int, device: str, dtype: str
) -> Answer:
    tokenizer = AutoTokenizer.from_pretrained(model)
    mlm = AutoModelForMaskedLM.from_pretrained(model, dtype=getattr(torch, dtype)).to(device).eval()
    texts = masked_texts(contexts, tokenizer.mask_token)

    def ask(batch: Sequence[str]) -> list[Any]:
        inputs = tokenizer(batch, padding=True, return_tensors="pt").to(device)
        states = mlm.base_model(**inputs)[0]
        best = mlm.cls(states[inputs["input_ids"] == tokenizer.mask_token_id]).topk(TOP)
        best.values.float().cpu()
        return best.indices.tolist()

    return _by_length(ask, texts, batch_size)


def padded_pairs(
    model: str, pairs: Sequence[tuple[str, str]], batch_size: int, device: str, dtype: str
) -> Answer:
    tokenizer = AutoTokenizer.from_pretrained(model)
    classifier = AutoModelForSequenceClassification.from_pretrained(
        model, dtype=getattr(torch, dtype)
    )
    classifier = classifier.to(device).eval()

    def ask(batch: Sequence[tuple[str, str]]) -> list[Any]:
        first, second = map(list, zip(*batch, strict=True))
        inputs = tokenizer(first, second, padding=True, return_tensors="pt")
        return classifier(**inputs.to(device)).logits.double().softmax(-1).tolist()

    return _by_length(ask, pairs, batch_size)


def _by_length(ask: Callable[[Any], list[Any]], items: Sequence[Any], size: int) -> Answer:
    """Ask in batches that are sorted by length."""

    def answer(rows: Sequence[int]) -> Callable[[], list[Any]]:
        result: dict[int, Any] = {}
        order = sorted(rows, key=lambda i: len("".join(items[i])))
        with torch.inference_mode():
            for start in range(0, len(order), size):
                batch = order[start : start + size]
                result |= zip(batch, ask([items[i] for i in batch]), strict=True)
        return lambda: [result[i] for i in rows]

    return answer
