"""Putting a word in place of another, and the rows of the dataset."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from generation.records import Seed, Sentence, SharedWord, Span
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
    columns = {**_seed_columns(ordered), "variant_id": [seed.seed_id for seed in ordered]}
    return _table(columns, len(ordered))


def variant_rows(
    variants: pa.Table,
    seeds: Mapping[str, Seed],
    spans: Mapping[tuple[str, str], tuple[Sequence[Span], Sequence[Span]]],
) -> pa.Table:
    """The split `variants`, sorted by `variant_id`.

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
    columns = {
        **_seed_columns(mine),
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
        "log_odds": variants["log_odds"],
        "subsamples": variants["subsamples"],
    }
    return _table(columns, len(variants)).sort_by("variant_id").combine_chunks()


def word_spans(
    premise: Sentence, hypothesis: Sentence, word: SharedWord
) -> tuple[list[Span], list[Span]]:
    """Where a shared word stands in premise and hypothesis."""
    return spans_of(premise, word.premise), spans_of(hypothesis, word.hypothesis)


def _seed_columns(seeds: Sequence[Seed]) -> dict[str, Any]:
    return {
        "seed_id": [seed.seed_id for seed in seeds],
        "source": [seed.source for seed in seeds],
        "premise": [seed.premise for seed in seeds],
        "hypothesis": [seed.hypothesis for seed in seeds],
        "label": [LABELS.index(seed.label) for seed in seeds],
        "annotator_labels": [
            [LABELS.index(label) for label in seed.annotator_labels] for seed in seeds
        ],
    }


def _table(columns: Mapping[str, Any], rows: int) -> pa.Table:
    """The columns in the order and types of the schema; what is not there is empty."""
    import pyarrow as pa

    schema = arrow_schema()
    for field in schema:
        if field.name not in columns:
            empty: list[Any] = [[] if pa.types.is_list(field.type) else None] * rows
            columns = {**columns, field.name: empty}
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)
