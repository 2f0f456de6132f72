from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from helpers.replacement_tables import Replacement, Variant, variant_table
from hypothesis import given
from hypothesis import strategies as st

from generation.records import Seed, Span, substitute
from generation.records import variant_rows as variant_columns
from merge_dataset.schema import NLI, arrow_schema


@st.composite
def texts_with_spans(draw: st.DrawFn) -> tuple[str, list[Span]]:
    """Draw a text with sorted spans that do not overlap, some adjacent, some empty."""
    text = draw(st.text(max_size=30))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    spans = [(a, b) for a, b in pairwise(cuts) if draw(st.booleans())]
    return text, spans


@given(texts_with_spans(), st.text(max_size=6))
def test_substitute_against_slices_from_the_right(case: tuple[str, list[Span]], word: str) -> None:
    text, spans = case
    expected = text
    for start, end in reversed(spans):
        expected = expected[:start] + word + expected[end:]
    new, new_spans = substitute(text, spans, word)
    assert new == expected
    assert [new[start:end] for start, end in new_spans] == [word] * len(spans)
    assert all(end - start == len(word) for start, end in new_spans)
    assert list(new_spans) == sorted(new_spans)


SEEDS = {
    seed.seed_id: seed
    for seed in (
        Seed(seed_id="snli:2", source="snli", texts=("A girl sees a girl.", "A girl runs."),
            label="contradiction", annotator_labels=("contradiction", "neutral")),
        Seed(seed_id="snli:10", source="snli", texts=("Small dogs bark.", "They are Small dogs."),
            label="entailment"),
    )
}  # fmt: skip

SPANS: dict[tuple[str, str], tuple[list[Span], list[Span]]] = {
    ("snli:2", "girl"): ([(2, 6), (14, 18)], [(2, 6)]),
    ("snli:10", "dogs"): ([(6, 10)], [(15, 19)]),
}


def variant(
    seed_id: str, word: str, text: str, subsamples: tuple[int, ...], **more: Any
) -> Variant:
    settings: dict[str, Any] = {
        "premise_mlms": ("b",), "hypothesis_mlms": ("a", "b"), "log_odds": 0.5, **more,
    }  # fmt: skip
    return Variant(
        Replacement(
            seed_id=seed_id, source="snli", word=word, word_class="noun", replacement=text,
            **settings,
        ),
        subsamples,
    )  # fmt: skip


VARIANTS = [
    variant("snli:2", "girl", "woman", (0, 3)),
    variant("snli:2", "girl", "boy", (1,), premise_mlms=("c",), hypothesis_mlms=()),
    variant("snli:10", "dogs", "cats", (2,)),
]


def variant_rows(
    variants: Sequence[Variant],
    seeds: Mapping[str, Seed],
    spans: Mapping[tuple[str, str], tuple[Sequence[Span], Sequence[Span]]],
) -> pa.Table:
    edits = [
        [(of_text, item.replacement.replacement) for of_text in spans[key]]
        for item in variants
        for key in [(item.replacement.seed_id, item.replacement.word)]
    ]
    return variant_columns(variant_table(variants), seeds, edits)


def test_variant_rows() -> None:
    """One row per variant: texts with the word replaced, its spans, and its masked LMs."""
    table = variant_rows(VARIANTS, SEEDS, SPANS)
    assert table.schema == arrow_schema()
    rows = table.to_pylist()
    assert [row["variant_id"] for row in rows] == [
        "snli:10/noun/dogs/cats", "snli:2/noun/girl/boy", "snli:2/noun/girl/woman",
    ]  # fmt: skip
    assert rows[2] == {
        "variant_id": "snli:2/noun/girl/woman",
        "seed_id": "snli:2",
        "source": "snli",
        "premise": "A woman sees a woman.",
        "hypothesis": "A woman runs.",
        "label": 2,
        "word_class": "noun",
        "original": "girl",
        "replacement": "woman",
        "premise_spans": [[2, 7], [15, 20]],
        "hypothesis_spans": [[2, 7]],
        "mlms": ["a", "b"],
        "premise_mlms": ["b"],
        "hypothesis_mlms": ["a", "b"],
        "log_odds": 0.5,
        **dict.fromkeys(NLI.signals),
        "mlm_count": 2,
        "subsamples": [0, 3],
        "annotator_labels": [2, 1],
    }
    assert (rows[1]["mlms"], rows[1]["hypothesis_mlms"]) == (["c"], [])
    assert rows[0]["hypothesis"] == "They are Small cats."
