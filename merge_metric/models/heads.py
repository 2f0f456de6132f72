"""Tasks that weights are loaded for: which class of transformers loads them, and what must fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A task that weights are loaded for."""

    described: str
    """A checkpoint that can be loaded for it, as messages say, with the article."""
    trained: str
    """The head that must have been trained, as messages say, with the article."""
    auto_class: str
    """Class of transformers that loads it."""
    encoder_decoder_class: str = ""
    """Class for encoder-decoders, where it is another one."""
    architectures: tuple[str, ...]
    """Endings of the architectures that a configuration may name."""
    gguf: bool = False
    """Whether GGUF files are read too."""


MASKED_LM: Final = Head(
    described="a masked LM",
    trained="a trained masked-LM head",
    auto_class="AutoModelForMaskedLM",
    architectures=("ForMaskedLM", "ForPreTraining", "WithLMHeadModel"),
)
CLASSIFIER: Final = Head(
    described="a sequence classifier",
    trained="a trained classification head",
    auto_class="AutoModelForSequenceClassification",
    architectures=("ForSequenceClassification",),
)
CAUSAL_LM: Final = Head(
    described="a causal language model",
    trained="a trained causal language model",
    auto_class="AutoModelForCausalLM",
    architectures=("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"),
    gguf=True,
)
TEXT_GENERATOR: Final = Head(
    described="a text generator (encoder-decoder or causal)",
    trained="a trained text generator",
    auto_class="AutoModelForCausalLM",
    encoder_decoder_class="AutoModelForSeq2SeqLM",
    architectures=("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel"),
    gguf=True,
)
HEADS: Final = (MASKED_LM, CLASSIFIER, CAUSAL_LM, TEXT_GENERATOR)
