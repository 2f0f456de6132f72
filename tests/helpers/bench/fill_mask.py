from collections.abc import Callable, Sequence
from typing import Any, Final

TOP: Final = 200

Context = tuple[str, str, int]
"""A sentence, a word that occurs once in it, and the word's first character."""

Answer = Callable[[Sequence[int]], Callable[[], list[Any]]]
"""Numbers of contexts → function that returns their results, called after the clock stops."""


def masked_lm(
    model: str,
    contexts: Sequence[Context],
    dtype: str,
    device: str = "cpu",
    unpadded: bool = False,
) -> Answer:
    """Our masked LM: ids and logits, most probable first, and the original's logit."""
    import torch

    from generation.records import MaskedQuery
    from generation.suggestions.masked_lm import MaskedLM
    from helpers.masked_queries import score

    torch.set_num_threads(1)
    mlm = MaskedLM.load(model, device=device, dtype=dtype, unpadded=unpadded)
    spans = [(start, start + len(word)) for _, word, start in contexts]
    queries = [
        MaskedQuery(sentence, span, (span,))
        for (sentence, _, _), span in zip(contexts, spans, strict=True)
    ]

    def answer(rows: Sequence[int]) -> Callable[[], list[Any]]:
        scores = score(mlm, [queries[i] for i in rows], k=TOP)
        columns = (scores.tokens, scores.logits, scores.original_logit)
        return lambda: list(zip(*(column.tolist() for column in columns), strict=True))

    return answer


def pipeline(model: str, contexts: Sequence[Context], batch_size: int) -> Answer:
    """Transformers' fill-mask pipeline: ids. Texts are sorted by length, for little padding."""
    import torch
    from transformers import pipeline

    torch.set_num_threads(1)
    fill = pipeline("fill-mask", model=model, device="cpu", dtype=torch.float32, top_k=TOP)
    texts = masked_texts(contexts, fill.tokenizer.mask_token)

    def answer(rows: Sequence[int]) -> Callable[[], list[Any]]:
        lengths = [len(ids) for ids in fill.tokenizer([texts[i] for i in rows])["input_ids"]]
        order = [i for _, i in sorted(zip(lengths, rows, strict=True))]
        answers = fill([texts[i] for i in order], batch_size=batch_size)
        result = dict(zip(order, answers, strict=True))
        return lambda: [[item["token"] for item in result[i]] for i in rows]

    return answer


def masked_texts(contexts: Sequence[Context], mask: str) -> list[str]:
    return [s[:start] + mask + s[start + len(word) :] for s, word, start in contexts]
