"""Putting a word in place of another, and the rows of the dataset."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from generation.records import Seed, Sentence, SharedWord, Span, Variant
from merge_dataset.schema import LABELS, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa


def substitute(text: str, spans: Sequence[Span], word: str) -> tuple[str, tuple[Span, ...]]:
    """p[o/r]: put `word` in place of each span.

    Args:
        text: A sentence.
        spans: Half-open character offsets, sorted, not overlapping.
        word: What stands there afterwards.

    Returns:
        The new sentence and the spans of `word` in it.

    >>> substitute("a boy and a boy", [(2, 5), (12, 15)], "poodle")
    ('a poodle and a poodle', ((2, 8), (14, 20)))
    """
    pieces, new_spans, done, length = [], [], 0, 0
    for start, end in spans:
        pieces += [text[done:start], word]
        length += start - done
        new_spans.append((length, length + len(word)))
        length += len(word)
        done = end
    return "".join([*pieces, text[done:]]), tuple(new_spans)


def scramble(word: str, key: str) -> str:
    """Shuffle a word's letters, the same way for the same key (ablation `scrambled`, D13).

    The outcome differs from the word wherever its letters allow it.

    >>> sorted(scramble("poodle", "x")) == sorted("poodle")
    True
    """
    if len(set(word)) < 2:
        return word
    rng = random.Random(f"{key}\n{word}")
    while True:
        letters = sorted(((rng.random(), letter) for letter in word), key=lambda pair: pair[0])
        shuffled = "".join(letter for _, letter in letters)
        if shuffled != word:
            return shuffled


def spans_of(sentence: Sentence, positions: Iterable[int]) -> list[Span]:
    """Character offsets of tokens."""
    return [sentence.tokens[position].span for position in positions]


def seed_rows(seeds: Iterable[Seed]) -> pa.Table:
    """The split `seeds`: replacement columns empty, `variant_id` the seed's own id."""
    lists = ("premise_spans", "hypothesis_spans", "mlms", "premise_mlms", "hypothesis_mlms")
    empty: dict[str, list[Any]] = {name: [] for name in (*lists, "subsamples")}
    none = dict.fromkeys(("word_class", "original", "replacement", "log_odds"))
    rows = [{**_seed_columns(seed), "variant_id": seed.seed_id, **empty, **none} for seed in seeds]
    return _table(rows, sort_by="seed_id")


def variant_rows(
    variants: Iterable[Variant],
    seeds: Mapping[str, Seed],
    spans: Mapping[tuple[str, str], tuple[Sequence[Span], Sequence[Span]]],
) -> pa.Table:
    """The split `variants`, sorted by `variant_id`.

    Args:
        variants: What was drawn.
        seeds: By id.
        spans: (seed_id, word) → where the word stands in premise and hypothesis.
    """
    rows = []
    for variant in variants:
        r = variant.replacement
        seed = seeds[r.seed_id]
        in_premise, in_hypothesis = spans[r.seed_id, r.word]
        premise, premise_spans = substitute(seed.premise, in_premise, r.replacement)
        hypothesis, hypothesis_spans = substitute(seed.hypothesis, in_hypothesis, r.replacement)
        rows.append(
            {
                **_seed_columns(seed),
                "variant_id": f"{r.seed_id}/{r.word_class}/{r.word}/{r.replacement}",
                "premise": premise,
                "hypothesis": hypothesis,
                "word_class": r.word_class,
                "original": r.word,
                "replacement": r.replacement,
                "premise_spans": premise_spans,
                "hypothesis_spans": hypothesis_spans,
                "mlms": sorted({*r.premise_mlms, *r.hypothesis_mlms}),
                "premise_mlms": r.premise_mlms,
                "hypothesis_mlms": r.hypothesis_mlms,
                "log_odds": r.log_odds,
                "subsamples": variant.subsamples,
            }
        )
    return _table(rows, sort_by="variant_id")


def word_spans(
    premise: Sentence, hypothesis: Sentence, word: SharedWord
) -> tuple[list[Span], list[Span]]:
    """Where a shared word stands in premise and hypothesis."""
    return spans_of(premise, word.premise), spans_of(hypothesis, word.hypothesis)


def _seed_columns(seed: Seed) -> dict[str, Any]:
    return {
        "seed_id": seed.seed_id,
        "source": seed.source,
        "premise": seed.premise,
        "hypothesis": seed.hypothesis,
        "label": LABELS.index(seed.label),
        "annotator_labels": [LABELS.index(label) for label in seed.annotator_labels],
    }


def _table(rows: list[dict[str, Any]], *, sort_by: str) -> pa.Table:
    import pyarrow as pa

    rows.sort(key=lambda row: str(row[sort_by]))
    return pa.Table.from_pylist(rows, schema=arrow_schema())
