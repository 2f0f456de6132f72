import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

TOP: Final = 200

Context = tuple[str, str, int]
"""A sentence, a word that occurs once in it, and the word's first character."""

Answer = Callable[[Sequence[int]], Callable[[], list[Any]]]
"""Numbers of contexts → function that returns their results, called after the clock stops."""


def masked_lm(model: str, contexts: Sequence[Context], dtype: str, device: str = "cpu") -> Answer:
    """Our masked LM: ids and logits, most probable first, and the original's logit."""
    import torch

    from generation.records import MaskedQuery
    from generation.suggestions.masked_lm import MaskedLM

    torch.set_num_threads(1)
    mlm = MaskedLM.load(model, device=device, dtype=dtype)
    spans = [(start, start + len(word)) for _, word, start in contexts]
    queries = [
        MaskedQuery(sentence, span, (span,))
        for (sentence, _, _), span in zip(contexts, spans, strict=True)
    ]

    def answer(rows: Sequence[int]) -> Callable[[], list[Any]]:
        scores = mlm.score([queries[i] for i in rows], k=TOP)
        columns = (scores.tokens, scores.logits, scores.original_logit)
        return lambda: list(zip(*(column.tolist() for column in columns), strict=True))

    return answer


def text_attack(
    model: str, contexts: Sequence[Context], home: str, max_length: int | None = None
) -> Answer:
    """TextAttack's `WordSwapMaskedLM`, as in BAE, with `home` as its cache: words."""
    stop_words = Path(home, "corpora", "stopwords", "english")
    stop_words.parent.mkdir(parents=True, exist_ok=True)
    stop_words.write_text("the\n", encoding="utf-8")
    Path(home, "post_install_check_3").touch()
    os.environ |= {"TA_CACHE_DIR": home, "NLTK_DATA": home}

    import torch
    from textattack.shared import AttackedText
    from textattack.transformations import WordSwapMaskedLM

    torch.set_num_threads(1)
    swap = WordSwapMaskedLM(
        method="bae",
        masked_language_model=model,
        max_candidates=TOP,
        min_confidence=0.0,
        **({} if max_length is None else {"max_length": max_length}),
    )

    def answer(rows: Sequence[int]) -> Callable[[], list[Any]]:
        places, found = [], []
        for i in rows:
            sentence, word, _ = contexts[i]
            text = AttackedText(sentence)
            places.append(text.words.index(word))
            found.append(swap(text, indices_to_modify=places[-1:]))
        return lambda: [
            [text.words[place] for text in texts]
            for place, texts in zip(places, found, strict=True)
        ]

    return answer


def pipeline(
    model: str,
    contexts: Sequence[Context],
    batch_size: int = 1,
    by_length: bool = False,
    device: str = "cpu",
    dtype: str = "float32",
) -> Answer:
    """Transformers' fill-mask pipeline: ids. Batches sorted by length have little padding."""
    import torch
    from transformers import pipeline

    torch.set_num_threads(1)
    kind = getattr(torch, dtype)
    fill = pipeline("fill-mask", model=model, device=device, dtype=kind, top_k=TOP)
    texts = masked_texts(contexts, fill.tokenizer.mask_token)

    def answer(rows: Sequence[int]) -> Callable[[], list[Any]]:
        order = _by_length(texts, rows, fill.tokenizer) if by_length else list(rows)
        answers = fill([texts[i] for i in order], batch_size=batch_size)
        found = dict(zip(order, answers, strict=True))
        return lambda: [[each["token"] for each in found[i]] for i in rows]

    return answer


def nlpaug(
    model: str, contexts: Sequence[Context], model_type: str, by_length: bool = False
) -> Answer:
    """The model in nlpaug's `ContextualWordEmbsAug`: tokens; patched to return the top 200."""
    import torch
    from nlpaug.augmenter.word import ContextualWordEmbsAug

    torch.set_num_threads(1)
    lm = ContextualWordEmbsAug(
        model_path=model, model_type=model_type, top_k=TOP, device="cpu", force_reload=True
    ).model
    pick = lm.pick
    lm.pick = lambda *arguments, **options: pick(*arguments, **(options | {"n": TOP}))
    texts = masked_texts(contexts, lm.tokenizer.mask_token)

    def answer(rows: Sequence[int]) -> Callable[[], list[Any]]:
        order = _by_length(texts, rows, lm.tokenizer) if by_length else list(rows)
        found = {}
        # Batch by batch, as for some kinds of models only the last batch is returned.
        for first in range(0, len(order), lm.batch_size):
            batch = order[first : first + lm.batch_size]
            found |= zip(batch, lm.predict([texts[i] for i in batch]), strict=True)
        return lambda: [found[i] for i in rows]

    return answer


def plain_loop(model: str, contexts: Sequence[Context]) -> Answer:
    """The obvious code without a library, sentence by sentence, `topk` at the mask: ids."""
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(model)
    mlm = AutoModelForMaskedLM.from_pretrained(model, dtype=torch.float32).eval()
    texts = masked_texts(contexts, tokenizer.mask_token)

    def answer(rows: Sequence[int]) -> Callable[[], list[Any]]:
        found = []
        for i in rows:
            inputs = tokenizer(texts[i], return_tensors="pt")
            mask = inputs["input_ids"][0].tolist().index(tokenizer.mask_token_id)
            with torch.inference_mode():
                found.append(mlm(**inputs).logits[0, mask].topk(TOP).indices.tolist())
        return lambda: found

    return answer


def masked_texts(contexts: Sequence[Context], mask: str) -> list[str]:
    return [s[:start] + mask + s[start + len(word) :] for s, word, start in contexts]


def _by_length(texts: Sequence[str], rows: Sequence[int], tokenizer: Any) -> list[int]:
    lengths = [len(ids) for ids in tokenizer([texts[i] for i in rows])["input_ids"]]
    return [i for _, i in sorted(zip(lengths, rows, strict=True))]
