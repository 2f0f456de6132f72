import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from helpers import tiny_generators, tiny_language_models
from helpers.answers import answers
from helpers.masked_queries import ask_all, score
from helpers.paraphrasing import searching
from helpers.tiny_classifiers import KINDS as CLASSIFIERS
from helpers.tiny_classifiers import tiny_classifier
from helpers.tiny_models import KINDS as MASKED_LMS
from helpers.tiny_models import sentences, tiny_model

from generation.paraphrases.rounds import ParaphraseRequest
from generation.paraphrases.text_generator import Generator
from generation.signals.likelihoods import CausalLM, item_of, pseudo_log_likelihoods
from generation.suggestions.masked_lm import MaskedLM
from merge_metric.models.checkpoints import Loaded
from merge_metric.models.classifier import Classifier
from merge_metric.models.language_model import LanguageModel, Words, WritingModel
from merge_metric.models.prompts import read_prompt
from merge_metric.models.templates import Example, Prompt

DEVICE = "cuda"
ATOL = 1e-4

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TEXTS = sentences(40)
PAIRS = [
    *zip(TEXTS[:15], TEXTS[15:30], strict=True),
    ("«Ünïcode» 🙂", " ".join(TEXTS[:12])),
    ("", "A dog."),
]
SHOTS = tuple(Example(pair, label) for label, pair in enumerate(PAIRS[12:15]))


def on_both(make: Callable[[Loaded], Any], helpers: Any, kind: str, model: Any) -> list[Any]:
    """Wrap a live model on the processor, and its copy on the GPU."""
    tokenizer = helpers.tiny_tokenizer(kind)
    places = (copy.deepcopy(model).to(device) for device in ("cpu", DEVICE))
    return [make(Loaded(place, tokenizer, kind, "1")) for place in places]


@pytest.mark.parametrize("kind", MASKED_LMS)
def test_masked_lms(kind: str) -> None:
    here, on_gpu = (MaskedLM.load(tiny_model(kind), device=device) for device in ("cpu", DEVICE))
    queries = ask_all(TEXTS)
    one, other = (score(mlm, queries, k=20) for mlm in (here, on_gpu))
    assert (one.original == other.original).all()
    assert (one.original >= 0).sum() > 100
    for name in ("logits", "original_logit", "log_normalizer"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=ATOL)
    assert (one.tokens == other.tokens).mean() > 0.99  # near ties
    np.testing.assert_allclose(
        *(pseudo_log_likelihoods(mlm, TEXTS)["pll"].to_numpy() for mlm in (here, on_gpu)), atol=1e-3
    )


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_classifiers(kind: str) -> None:
    models = (Classifier.load(tiny_classifier(kind), device=device) for device in ("cpu", DEVICE))
    np.testing.assert_allclose(*(answers(model, PAIRS) for model in models), atol=ATOL)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["bert-uncased", "roberta", "albert", "electra"])
def test_texts_without_padding(kind: str, dtype: str) -> None:
    """Opened at all, a model has read some texts both ways; here are its answers."""
    on_gpu = {"device": DEVICE, "dtype": dtype}
    atol = 0.05 if dtype == "bfloat16" else 0.01
    models = [Classifier.load(tiny_classifier(kind), **on_gpu, unpadded=n) for n in (False, True)]
    assert [model.describe().facts.get("unpadded") for model in models] == [None, True]
    np.testing.assert_allclose(*(answers(model, PAIRS) for model in models), atol=atol)
    mlms = [MaskedLM.load(tiny_model(kind), **on_gpu, unpadded=n) for n in (False, True)]
    assert [mlm.unpadded for mlm in mlms] == [False, True]
    one, other = (score(mlm, ask_all(TEXTS), k=20) for mlm in mlms)
    assert (one.original == other.original).all()
    own = (scores.original_logit - scores.log_normalizer for scores in (one, other))
    np.testing.assert_allclose(*own, atol=4 * atol)


@pytest.mark.parametrize("kind", tiny_language_models.KINDS)
def test_language_models(kind: str) -> None:
    model = tiny_language_models.tiny_lm(kind)
    prompt = Prompt(SHOTS, read_prompt("none").template, name="three")
    both = on_both(partial(LanguageModel, prompt=prompt), tiny_language_models, kind, model)
    np.testing.assert_allclose(*(answers(lm, PAIRS[:6]) for lm in both), atol=ATOL)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_likelihoods(kind: str) -> None:
    model = tiny_language_models.tiny_lm(kind)
    both = on_both(CausalLM, tiny_language_models, kind, model)
    items = [item_of(text, [], f"No {text}", []) for text in TEXTS]
    np.testing.assert_allclose(*(lm.changes(items)["pll"].to_numpy() for lm in both), atol=1e-3)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_answers_in_words(kind: str) -> None:
    make = partial(WritingModel, prompt=read_prompt("none"), words=Words(max_tokens=8))
    both = on_both(make, tiny_language_models, kind, tiny_language_models.tiny_lm(kind))
    text = []
    for model in both:
        texts = dict[int, str]()
        for batch in model.answer(PAIRS[:6]):
            texts |= dict(zip(batch.positions, batch.texts or (), strict=True))
        text.append(texts)
    assert text[0] == text[1]


@pytest.mark.parametrize("kind", tiny_generators.KINDS)
def test_paraphrases(kind: str) -> None:
    config = searching(num_beams=6, num_beam_groups=3, max_new_tokens=7)
    make = partial(Generator, config=config)
    both = on_both(make, tiny_generators, kind, tiny_generators.tiny_generator(kind))
    requests = [ParaphraseRequest(text, 1.0) for text in TEXTS[:8]]
    one, other = (generator.candidates(requests) for generator in both)
    for here, on_gpu in zip(one, other, strict=True):
        assert [item.text for item in here] == [item.text for item in on_gpu]
        scores = [[item.score for item in of] for of in (here, on_gpu)]
        np.testing.assert_allclose(*scores, rtol=ATOL, atol=ATOL)
