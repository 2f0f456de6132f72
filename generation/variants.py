"""Putting a word in place of another, and the rows of the dataset."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from generation.records import Seed, Sentence, SharedWord, Span
from merge_dataset.schema import LABELS, SIGNALS, arrow_schema


def substitute(text: str, spans: Sequence[Span], word: str) -> tuple[str, tuple[Span, ...]]:
    """p[o/r]: put `word` in place of each span.

    Args:
        text: A sentence.
        spans: Half-open character offsets, sorted, not overlapping.
        word: What stands there afterwards.

    Returns:
        The new sentence and the spans of `word` in it.

    >>> substitute("a boy and a boy", [(2, 5), (12, 15)], "poodle")
    ('a poodle and a poodle', ((2, 8), (15, 21)))
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
    ordered = sorted(seeds, key=lambda seed: seed.seed_id)
    columns = {
        "variant_id": [seed.seed_id for seed in ordered],
        "seed_id": [seed.seed_id for seed in ordered],
        "source": [seed.source for seed in ordered],
        "premise": [seed.premise for seed in ordered],
        "hypothesis": [seed.hypothesis for seed in ordered],
        "label": [LABELS.index(seed.label) for seed in ordered],
        "annotator_labels": [
            [LABELS.index(label) for label in seed.annotator_labels] for seed in ordered
        ],
    }
    schema = arrow_schema()
    empty: dict[str, list[Any]] = {
        field.name: [[] if pa.types.is_list(field.type) else None] * len(ordered)
        for field in schema
    }
    return pa.table({**empty, **columns}, schema=schema)


def variant_rows(
    variants: pa.Table,
    seeds: Mapping[str, Seed],
    spans: Mapping[tuple[str, str], tuple[Sequence[Span], Sequence[Span]]],
) -> pa.Table:
    """The split `variants`, sorted by `seed_id`, then by `variant_id`.

    Args:
        variants: What was drawn, as `sampling.draw` gives it.
        seeds: By id.
        spans: (seed_id, word) → where the word stands in premise and hypothesis.
    """
    names = ("seed_id", "word_class", "word", "replacement")
    seed_ids, word_classes, words, texts = (variants[name].to_pylist() for name in names)
    mine = [seeds[seed_id] for seed_id in seed_ids]
    where = [spans[key] for key in zip(seed_ids, words, strict=True)]
    premise, hypothesis = (
        [substitute(getattr(seed, side), places[n], text)
         for seed, places, text in zip(mine, where, texts, strict=True)]
        for n, side in enumerate(("premise", "hypothesis"))
    )  # fmt: skip
    validated = [variants[f"{side}_mlms"].to_pylist() for side in ("premise", "hypothesis")]
    of_seeds = seed_rows(seeds.values())
    rows = of_seeds.take(pc.index_in(variants["seed_id"], value_set=of_seeds["seed_id"]))
    columns = {
        **{name: rows[name] for name in rows.column_names},
        "variant_id": list(map("/".join, zip(seed_ids, word_classes, words, texts, strict=True))),
        "premise": [text for text, _ in premise],
        "hypothesis": [text for text, _ in hypothesis],
        "word_class": variants["word_class"],
        "original": variants["word"],
        "replacement": variants["replacement"],
        "premise_spans": [new for _, new in premise],
        "hypothesis_spans": [new for _, new in hypothesis],
        "mlms": [sorted({*p, *h}) for p, h in zip(*validated, strict=True)],
        "premise_mlms": variants["premise_mlms"],
        "hypothesis_mlms": variants["hypothesis_mlms"],
        **{name: variants[name] for name in ("log_odds", *SIGNALS)},
        "subsamples": variants["subsamples"],
    }
    table = pa.table(columns, schema=rows.schema)
    order = [(name, "ascending") for name in ("seed_id", "variant_id")]
    return table.sort_by(order).combine_chunks()


def word_spans(
    premise: Sentence, hypothesis: Sentence, word: SharedWord
) -> tuple[list[Span], list[Span]]:
    """Where a shared word stands in premise and hypothesis."""
    return spans_of(premise, word.premise), spans_of(hypothesis, word.hypothesis)
