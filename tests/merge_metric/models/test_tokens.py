"""Tokens looked up word by word against the tokenizer's own, on many kinds of texts."""

from functools import cache
from typing import Any

import pytest
from helpers.tiny_models import KINDS, tiny_model
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.normalizers import BertNormalizer
from tokenizers.processors import BertProcessing, TemplateProcessing
from transformers import AutoTokenizer

from merge_metric.models.tokens import PairTokens, word_tokens

OF_BERT = ("bert-uncased", "bert-cased", "other normaliser", "BertProcessing")

ODD = (
    "girl", "Girls", "snowman", "x" * 101, "well-known", "don't", "3.50", "$", "~", "|x|", "[MASK]",
    "[UNK", "]", "café", "cafe\u0301", "\u0130stanbul", "ﬁre", "日本", "ก็", "a\u200bb", "e\u0301",
    "\u00a0", "\t", "\n", "\x00", "\x7f", "\x0b", "“", "’", "ß", "Σ", "🙂", "\u2028",
)  # fmt: skip
texts = st.lists(
    st.sampled_from(ODD) | st.text(st.characters(max_codepoint=127), max_size=8) | st.text(),
    max_size=6,
).flatmap(lambda parts: st.sampled_from([" ".join(parts), "".join(parts)]))


def tokenizer_of(name: str) -> Tokenizer:
    kind = name if name in KINDS else "bert-uncased"
    tokenizer = AutoTokenizer.from_pretrained(tiny_model(kind)).backend_tokenizer
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if name == "other normaliser":
        tokenizer.normalizer = BertNormalizer(
            clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False
        )
    if name == "BertProcessing":
        tokenizer.post_processor = BertProcessing(
            *(("[SEP]", tokenizer.token_to_id("[SEP]")), ("[CLS]", tokenizer.token_to_id("[CLS]")))
        )
    return tokenizer


@cache
def both(name: str) -> tuple[Tokenizer, PairTokens]:
    tokenizer = tokenizer_of(name)
    words = word_tokens(tokenizer)
    assert words is not None
    return tokenizer, words


@pytest.mark.parametrize("name", OF_BERT)
@given(first=texts, second=texts)
def test_tokens_are_the_tokenizers(name: str, first: str, second: str) -> None:
    tokenizer, words = both(name)
    if (tokens := words(first, second)) is not None:
        expected = tokenizer.encode(first, second)
        assert tokens == (expected.ids, expected.type_ids)


def test_what_is_known() -> None:
    _, words = both("bert-cased")
    assert words("A girl's well-known $3.50 [sic] ~ _ | song: don't!", "") is not None
    for text in ("A café.", "A\tgirl.", "A\x00girl.", "A [MASK] runs.", "’"):
        assert words("A girl.", text) is words(text, "A girl.") is None


@pytest.mark.parametrize("change", ["normalised token", "normaliser", "processor", "order"])
def test_changed_tokenizers_are_left_alone(change: str) -> None:
    tokenizer: Any = tokenizer_of("bert-uncased")
    if change == "normalised token":
        tokenizer.add_tokens([AddedToken("Snowball", normalized=True)])
    elif change == "normaliser":
        tokenizer.normalizer = None
    elif change == "order":
        tokenizer.post_processor = TemplateProcessing("$A", "$B:1 $A:0", [])
    else:
        tokenizer.post_processor = None
    assert word_tokens(tokenizer) is None
