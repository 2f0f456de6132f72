"""Classes and tags as D8 compares them, by hand and against a slow verdict."""

from __future__ import annotations

import pytest
from helpers.set_algebra import class_verdict
from hypothesis import given
from hypothesis import strategies as st

from generation.variants.context import comparable


@pytest.mark.parametrize(
    ("tags", "originals", "coarse", "fine"),
    [
        (("NN",), ("NN",), None, None),
        (("NNS",), ("NN",), None, "other_class"),
        (("VBD",), ("VBG",), None, "other_class"),
        (("JJ",), ("NN",), "other_class", "other_class"),
        (("NNP",), ("NN",), "other_class", "other_class"),
        (("MD",), ("VB",), "other_class", "other_class"),
        (None, ("NN",), "tokenization", "tokenization"),
        (("NN", "NN"), ("NN", "NNS"), None, "other_class"),
        (("NN", "VB"), ("NN", "NN"), "other_class", "other_class"),
        # An occurrence outside the four classes keeps its very tag (D2).
        (("NN", "MD"), ("NN", "MD"), None, None),
        (("NN", "NNPS"), ("NN", "NNP"), "other_class", "other_class"),
    ],
)
def test_class_verdict(
    tags: tuple[str, ...] | None,
    originals: tuple[str, ...],
    coarse: str | None,
    fine: str | None,
) -> None:
    """Classes are compared place by place; `fine` compares the tags themselves."""
    for tag_match, verdict in (("coarse", coarse), ("fine", fine)):
        assert class_verdict(tags, originals, tag_match=tag_match) == verdict
        if tags is not None:
            compared = [
                [comparable(tag, tag_match=tag_match) for tag in both] for both in (tags, originals)
            ]
            assert (compared[0] == compared[1]) == (verdict is None)


TAGS = st.sampled_from(["NN", "NNS", "NNP", "VB", "VBD", "MD", "JJ", "RB", "IN"])


@given(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=3))
def test_fine_is_stricter_than_coarse(pairs: list[tuple[str, str]]) -> None:
    """Words that pass with the same tag pass with the same class."""
    tags, originals = zip(*pairs, strict=True)
    if class_verdict(tags, originals, tag_match="fine") is None:
        assert class_verdict(tags, originals, tag_match="coarse") is None
    assert class_verdict(tags, tags, tag_match="fine") is None
