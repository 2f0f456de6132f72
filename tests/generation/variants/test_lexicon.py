"""Words as numbers, the same for all masked LMs (D6)."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from generation.suggestions.vocabulary import OTHER, WHOLE, Vocabulary
from generation.variants.words import CASINGS, Lexicon, match_case


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
    """Across tokens and MLMs, and only those that differ in case alone; numbers are in order."""
    lexicon = Lexicon.of({mlm: vocabulary(*mine) for mlm, mine in texts.items()})
    assert list(lexicon.words) == sorted({text.lower() for mine in texts.values() for text in mine})
    for mlm, mine in texts.items():
        read = [lexicon.words[number] for number in lexicon.of_token[mlm].tolist()]
        assert read == [text.lower() for text in mine]


def test_forms_are_words_in_every_casing() -> None:
    """The form of a casing and a word is what `match_case` makes of it."""
    lexicon = Lexicon.of({"a": vocabulary("girl", "été"), "b": vocabulary("Straße", "Girl")})
    originals = {"lower": "boy", "title": "Boy", "upper": "BOY"}
    for casing, name in enumerate(CASINGS):
        for word, text in enumerate(lexicon.words):
            (form,) = lexicon.form(np.array([casing]), np.array([word])).tolist()
            expected = match_case(text, originals[name])
            assert lexicon.forms[form] == lexicon.arrow_forms[form].as_py() == expected


def test_unknown_words_have_no_number() -> None:
    """A word of a problem that no MLM can suggest is of no account."""
    lexicon = Lexicon.of({"a": vocabulary("girl", "boy")})
    assert lexicon.known(["girl", "zebra", "boy"]) == [1, 0]
