import os
from collections.abc import Callable, Sequence
from pathlib import Path
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


def text_attack(model: str, contexts: Sequence[Context], home: str) -> Answer:
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
        method="bae", masked_language_model=model, max_candidates=TOP, min_confidence=0.0
    )

    def answer(rows: Sequence[int]) -> Callable[[], list[Any]]:
        places, result = [], []
        for i in rows:
            sentence, word, _ = contexts[i]
            text = AttackedText(sentence)
            places.append(text.words.index(word))
            result.append(swap(text, indices_to_modify=places[-1:]))
        return lambda: [
            [text.words[place] for text in texts]
            for place, texts in zip(places, result, strict=True)
        ]

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


def nlpaug(model: str, contexts: Sequence[Context], model_type: str) -> Answer:
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
        result = {}
        # Batch by batch, as for some kinds of models only the last batch is returned.
        for first in range(0, len(rows), lm.batch_size):
            batch = rows[first : first + lm.batch_size]
            result |= zip(batch, lm.predict([texts[i] for i in batch]), strict=True)
        return lambda: [result[i] for i in rows]

    return answer


def masked_texts(contexts: Sequence[Context], mask: str) -> list[str]:
    return [s[:start] + mask + s[start + len(word) :] for s, word, start in contexts]
