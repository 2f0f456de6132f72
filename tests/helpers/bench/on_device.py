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
) -> Callable[[list[int]], Any]:
    torch.set_num_threads(1)
    if not packed:
        fast_layers.can_pack = lambda device, dtype: False
    ours = Classifier.load(model, device=device, dtype=dtype)

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

    def answer(rows: Sequence[int]) -> Callable[[], list[Any]]:
        result: dict[int, Any] = {}
        order = sorted(rows, key=lambda i: len(texts[i]))
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            inputs = tokenizer([texts[i] for i in batch], padding=True, return_tensors="pt")
            inputs = inputs.to(device)
            with torch.inference_mode():
                states = mlm.base_model(**inputs)[0]
                best = mlm.cls(states[inputs["input_ids"] == tokenizer.mask_token_id]).topk(TOP)
            result |= zip(batch, zip(best.indices.cpu(), best.values.float().cpu(), strict=True),
                         strict=True)  # fmt: skip
        return lambda: [result[i][0].tolist() for i in rows]

    return answer


def padded_pairs(
    model: str, pairs: Sequence[tuple[str, str]], batch_size: int, device: str, dtype: str
) -> Callable[[Sequence[int]], Callable[[], list[Any]]]:
    tokenizer = AutoTokenizer.from_pretrained(model)
    classifier = AutoModelForSequenceClassification.from_pretrained(
        model, dtype=getattr(torch, dtype)
    )
    classifier = classifier.to(device).eval()

    def answer(rows: Sequence[int]) -> Callable[[], list[Any]]:
        result: dict[int, Any] = {}
        order = sorted(rows, key=lambda i: len(pairs[i][0]) + len(pairs[i][1]))
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            first, second = zip(*(pairs[i] for i in batch), strict=True)
            inputs = tokenizer(list(first), list(second), padding=True, return_tensors="pt")
            with torch.inference_mode():
                logits = classifier(**inputs.to(device)).logits
            result |= zip(batch, logits.double().softmax(-1).cpu().numpy(), strict=True)
        return lambda: [result[i].tolist() for i in rows]

    return answer
