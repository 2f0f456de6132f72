import re

import numpy as np
import pytest
from helpers.reference import slow_mlm
from helpers.tiny_models import KINDS, tiny_model

from generation.suggestions.vocabulary import ATTACHED, OTHER, WHOLE, Vocabulary, read_vocabulary

BYTE_LEVEL = ("roberta", "modernbert", "bart")
UNIGRAM = ("albert", "deberta")
MARKS = {kind: "Ġ" if kind in BYTE_LEVEL else "▁" if kind in UNIGRAM else "" for kind in KINDS}
"""Kind → mark of a whole word in its vocabulary."""


def vocabulary_of(kind: str) -> Vocabulary:
    tokenizer = slow_mlm(tiny_model(kind)).tokenizer
    return read_vocabulary(tokenizer.backend_tokenizer, tokenizer.all_special_ids)


def ids_of(kind: str) -> dict[str, int]:
    """Vocabulary entry, including its mark → id."""
    ids: dict[str, int] = slow_mlm(tiny_model(kind)).tokenizer.get_vocab()
    return ids


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_and_texts_agree_with_the_markers(kind: str) -> None:
    vocabulary, slow = vocabulary_of(kind), slow_mlm(tiny_model(kind))
    special = set(slow.tokenizer.all_special_ids)
    seen = set()
    for part, number in ids_of(kind).items():
        text, begins = slow.read(part)
        if number in special or not re.search(r"[^\W\d_]", text):
            continue
        expected = WHOLE if begins else ATTACHED
        assert (vocabulary.texts[number], vocabulary.kinds[number]) == (text, expected), part
        seen.add(expected)
    assert seen == {WHOLE, ATTACHED}


@pytest.mark.parametrize("kind", KINDS)
def test_ids_that_stand_for_no_text(kind: str) -> None:
    """Special ids have the kind `OTHER`, as have the extra ids of a padded output layer."""
    vocabulary = vocabulary_of(kind)
    special = slow_mlm(tiny_model(kind)).tokenizer.all_special_ids
    assert len(special) >= 5
    for number in special:
        assert (vocabulary.kinds[number], vocabulary.texts[number]) == (OTHER, "")
        assert not vocabulary.is_text(number)
        assert not vocabulary.is_alphabetic[number]
    vocabulary = vocabulary_of(kind)
    assert len(vocabulary.texts) == len(ids_of(kind)) == len(vocabulary.kinds)
    assert not vocabulary.is_text(len(vocabulary.texts))
    assert vocabulary.is_text(ids_of(kind)[MARKS[kind] + "girl"])


@pytest.mark.parametrize("kind", KINDS)
def test_what_fits_where_a_word_begins(kind: str) -> None:
    """If the original is a whole word, only whole words fit (D4)."""
    fitting = fitting_pieces(kind, MARKS[kind] + "girl")
    slow = slow_mlm(tiny_model(kind))
    begin = {part for part in ids_of(kind) if slow.read(part)[1]}
    assert MARKS[kind] + "dog" in fitting
    assert {part for part in fitting if slow.read(part)[0].isalpha()} == {
        part
        for part in begin
        if slow.read(part)[0].isalpha() and part not in slow.tokenizer.all_special_tokens
    }


def fitting_pieces(kind: str, original: str) -> set[str]:
    """Vocabulary entries that `fits` allows in place of another."""
    vocabulary, ids = vocabulary_of(kind), ids_of(kind)
    everything = np.arange(len(ids), dtype=np.int32)[None]
    fits = vocabulary.fits(everything, np.array([ids[original]], np.int32))[0]
    return {part for part, number in ids.items() if fits[number]}
