"""The rows of the dataset: texts with words put in place of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from generation.records import Seed, Span
from generation.variants.perturbations import TextEdits
from merge_dataset.schema import NLI, ProblemFormat, arrow_schema, variant_id


def substitute(
    text: str, spans: Sequence[Span], word: str | Sequence[str]
) -> tuple[str, tuple[Span, ...]]:
    """p[o/r]: put a word in place of each span, or to each a word of its own; return the new spans.

    Spans are half-open character offsets, sorted, not overlapping.

    >>> substitute("a boy and a boy", [(2, 5), (12, 15)], "poodle")
    ('a poodle and a poodle', ((2, 8), (15, 21)))
    >>> substitute("a boy and a dog", [(0, 1), (2, 5), (12, 15)], ["an", "owl", "cat"])
    ('an owl and a cat', ((0, 2), (3, 6), (13, 16)))
    """
    if isinstance(word, str) and len(spans) == 1:  # as below, and by far the most frequent
        ((start, end),) = spans
        return text[:start] + word + text[end:], ((start, start + len(word)),)
    words = [word] * len(spans) if isinstance(word, str) else word
    pieces, new_spans, done, length = [], [], 0, 0
    for (start, end), put in zip(spans, words, strict=True):
        pieces += [text[done:start], put]
        length += start - done
        new_spans.append((length, length + len(put)))
        length += len(put)
        done = end
    return "".join([*pieces, text[done:]]), tuple(new_spans)


def seed_rows(seeds: Iterable[Seed], problem_format: ProblemFormat = NLI) -> pa.Table:
    """The split `seeds`: replacement columns empty, `variant_id` the seed's own id."""
    labels = problem_format.labels
    ordered = sorted(seeds, key=lambda seed: seed.seed_id)
    columns = {
        "variant_id": [seed.seed_id for seed in ordered],
        "seed_id": [seed.seed_id for seed in ordered],
        "source": [seed.source for seed in ordered],
        **{
            field: [seed.texts[n] for seed in ordered]
            for n, field in enumerate(problem_format.fields)
        },
        "label": [labels.index(seed.label) for seed in ordered],
        "annotator_labels": [
            [labels.index(label) for label in seed.annotator_labels] for seed in ordered
        ],
    }
    schema = arrow_schema(problem_format)
    empty: dict[str, list[Any]] = {
        field.name: [[] if pa.types.is_list(field.type) else None] * len(ordered)
        for field in schema
    }
    return pa.table({**empty, **columns}, schema=schema)


def variant_rows(
    variants: pa.Table,
    seeds: Mapping[str, Seed],
    edits: Sequence[Sequence[TextEdits]],
    problem_format: ProblemFormat = NLI,
) -> pa.Table:
    """The split `variants`, sorted by `seed_id`, then by `variant_id`."""
    names = ("seed_id", "word_class", "word", "replacement")
    seed_ids, word_classes, words, texts = (variants[name].to_pylist() for name in names)
    mine = [seeds[seed_id] for seed_id in seed_ids]
    changed = [
        [
            substitute(seed.texts[n], *of_texts[n])
            for seed, of_texts in zip(mine, edits, strict=True)
        ]
        for n in range(len(problem_format.fields))
    ]
    validated = [variants[name].to_pylist() for name in problem_format.mlms]
    of_seeds = seed_rows(seeds.values(), problem_format)
    rows = of_seeds.take(pc.index_in(variants["seed_id"], value_set=of_seeds["seed_id"]))
    columns = {
        **{name: rows[name] for name in rows.column_names},
        "variant_id": list(map(variant_id, seed_ids, word_classes, words, texts)),
        **{
            field: [text for text, _ in new]
            for field, new in zip(problem_format.fields, changed, strict=True)
        },
        "word_class": variants["word_class"],
        "original": variants["word"],
        "replacement": variants["replacement"],
        **{
            name: [spans for _, spans in new]
            for name, new in zip(problem_format.spans, changed, strict=True)
        },
        "mlms": [sorted(set().union(*mlms)) for mlms in zip(*validated, strict=True)],
        **{name: variants[name] for name in problem_format.mlms},
        **{name: variants[name] for name in ("log_odds", *problem_format.signals)},
        "subsamples": variants["subsamples"],
    }
    table = pa.table(columns, schema=rows.schema)
    order = [(name, "ascending") for name in ("seed_id", "variant_id")]
    return table.sort_by(order).combine_chunks()
