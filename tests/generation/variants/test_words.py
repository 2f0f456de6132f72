"""Words: casing, shuffled letters, and common numbers for all masked LMs (D6)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.suggestions.vocabulary import OTHER, WHOLE, Vocabulary
from generation.variants.equation import Lexicon, match_case
from generation.variants.perturbations import scramble


@pytest.mark.parametrize(
    ("original", "expected"),
    [
        ("boy", "girl"), ("Boy", "Girl"), ("BOY", "GIRL"), ("TV", "GIRL"), ("A", "Girl"),
        ("a", "girl"), ("iPhone", "girl"), ("McDonald", "girl"), ("bOY", "girl"), ("Été", "Girl"),
        ("ÉTÉ", "GIRL"),
    ],
)  # fmt: skip
def test_casing_shapes(original: str, expected: str) -> None:
    """Lower, Title and UPPER are kept; a single capital is Title, a mixture is lower."""
    assert match_case("girl", original) == expected


WORDS = st.text("abcdefgé", min_size=1, max_size=10)


@given(WORDS, st.text(max_size=5))
def test_scramble_shuffles_the_letters(word: str, key: str) -> None:
    scrambled = scramble(word, key)
    assert sorted(scrambled) == sorted(word)
    assert (scrambled == word) == (len(set(word)) == 1)
    assert scramble(word, key) == scrambled


def vocabulary(*texts: str) -> Vocabulary:
    kinds = [WHOLE if text else OTHER for text in texts]
    return Vocabulary(texts, np.array(kinds, np.int8))


VOCABULARIES = st.dictionaries(
    st.sampled_from("abc"),
    st.lists(st.sampled_from(["", "girl", "Girl", "GIRL", "été", "ß", "!", "boy"]), min_size=1),
    min_size=1,
)


@given(VOCABULARIES)
def test_equal_words_have_equal_numbers(texts: dict[str, list[str]]) -> None:
    lexicon = Lexicon.of({mlm: vocabulary(*mine) for mlm, mine in texts.items()})
    words = list(lexicon.numbers)
    assert words == sorted({text.lower() for mine in texts.values() for text in mine})
    assert list(lexicon.numbers.values()) == list(range(len(words)))
    for mlm, mine in texts.items():
        read = [words[number] for number in lexicon.of_token[mlm].tolist()]
        assert read == [text.lower() for text in mine]
