"""The records that travel through the pipeline, tables of a run folder and rows of the dataset."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.schema import NLI, ProblemFormat, arrow_schema, variant_id, with_format

Span = tuple[int, int]
"""Half-open [start, end) character offsets in a sentence."""
TextEdits = tuple[Sequence[Span], str | Sequence[str]]
"""Spans of a text and the words to put there, as `substitute` takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """One original problem; in NLI ⟨p, h, l⟩."""

    seed_id: str
    """`<source>:<pairID>`, unique within a source."""
    source: str
    texts: tuple[str, ...]
    """The texts, one per field of its format; in NLI premise and hypothesis."""
    label: str
    """One of the format's labels."""
    annotator_labels: tuple[str, ...] = ()
    """The annotators' votes, as labels of the format; empty if the source has none."""

    @property
    def premise(self) -> str:
        """The first text, the premise of an NLI problem."""
        return self.texts[0]

    @property
    def hypothesis(self) -> str:
        """The second text, the hypothesis of an NLI problem."""
        return self.texts[1]


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a tagged sentence."""

    text: str
    start: int
    """Character offset of its first character in the sentence."""
    tag: str
    """Penn Treebank tag."""
    norm: str | None = None
    """Norm by a rule of the tokeniser ("n't" → "not"); None if the form alone determines it."""

    @property
    def span(self) -> Span:
        """The token's half-open character offsets."""
        return self.start, self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text of a problem, such as a premise, with its tokens in order."""

    text: str
    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class SharedWord:
    """A word form that some texts of a problem share with the same class (D1)."""

    word: str
    """The surface form, case as in the text."""
    word_class: str
    """One of `merge_dataset.schema.WORD_CLASSES`."""
    positions: tuple[tuple[int, ...], ...]
    """Indices, in each text, of every token with this form, whatever its class (D2)."""


@dataclass(frozen=True, slots=True)
class MaskedQuery:
    """One question to a masked LM: what may stand at `span` of `sentence`?"""

    sentence: str
    span: Span
    masked: tuple[Span, ...]
    """Spans hidden from the model, `span` among them; all occurrences with joint masking (D4)."""


@dataclass(frozen=True, slots=True)
class Scores:
    """A masked LM's answers to n queries, k suggestions each; row i answers query i."""

    original: NDArray[np.int32]
    """[n] Token ids of the original, −1 if it is not one token (D3)."""
    original_logit: NDArray[np.float32]
    """[n] Logit of the original; NaN if that is −1, as in `log_normalizer` and `logits`."""
    log_normalizer: NDArray[np.float32]
    """[n] log Σ exp(logits): log P = logit − log_normalizer, in nats."""
    tokens: NDArray[np.int32]
    """[n, k] Ids of the suggestions, most probable first; −1 if none."""
    logits: NDArray[np.float32]
    """[n, k] Logits of the suggestions."""
    windowed: NDArray[np.bool_]
    """[n] Whether the sentence was cut to a window around the mask."""

    @classmethod
    def empty(cls, n: int, k: int) -> Self:
        """Make scores of `n` queries, all marked as not in the vocabulary."""
        nan = np.float32(np.nan)
        return cls(
            original=np.full(n, -1, np.int32),
            original_logit=np.full(n, nan, np.float32),
            log_normalizer=np.full(n, nan, np.float32),
            tokens=np.full((n, k), -1, np.int32),
            logits=np.full((n, k), nan, np.float32),
            windowed=np.zeros(n, np.bool_),
        )

    @property
    def answered(self) -> NDArray[np.bool_]:
        """[n] Whether the original is one token (D3)."""
        return self.original >= 0

    def take(self, rows: Sequence[int] | slice) -> Self:
        """Select rows, in the order given."""
        columns = {field.name: getattr(self, field.name)[rows] for field in fields(self)}
        return type(self)(**columns)


Exclusion = dict[str, Any]
"""A row of `EXCLUSIONS`: a seed, word or (seed, class) that yields no variants, the reason, and the
number of replacements if that was decisive."""

REPLACEMENT_KEY = ("seed_id", "word_class", "word", "replacement")
"""Columns that identify replacements, in the order by which they are sorted."""
EXCLUSIONS = pa.schema(
    [
        *((name, pa.string()) for name in ("seed_id", "source", "word", "word_class", "reason")),
        ("replacements", pa.int64()),
    ]
)


def replacement_schema(problem_format: ProblemFormat = NLI) -> pa.Schema:
    """Return the columns of `replacements.parquet`."""
    of_variants = arrow_schema(problem_format)
    texts = ("seed_id", "source", "word", "word_class", "replacement")
    columns = [
        *((name, pa.string()) for name in texts),
        *((name, pa.list_(pa.string())) for name in problem_format.mlms),
        ("log_odds", pa.float32()),
        *((name, of_variants.field(name).type) for name in problem_format.signals),
    ]
    return with_format(pa.schema(columns), problem_format)


def sorted_replacements(table: pa.Table) -> pa.Table:
    """Sort replacements by seed, class, word and replacement, in one piece."""
    order = [(name, "ascending") for name in REPLACEMENT_KEY]
    # One chunk per column, as the bytes of a Parquet file depend on the chunks.
    return table.sort_by(order).combine_chunks()


def exclusion_table(exclusions: Iterable[Exclusion]) -> pa.Table:
    """Return one row per exclusion, sorted by seed, class and word."""
    names = ("seed_id", "word_class", "word", "reason")
    ordered = sorted(exclusions, key=lambda row: [row.get(name) or "" for name in names])
    return pa.Table.from_pylist(ordered, EXCLUSIONS)


def with_columns(table: pa.Table, new: Mapping[str, Any]) -> pa.Table:
    """Replace some columns of a table, and keep its schema."""
    columns = {name: new.get(name, table[name]) for name in table.column_names}
    return pa.table(columns, table.schema)


# --- Rows of the dataset ---


def substitute(
    text: str, spans: Sequence[Span], word: str | Sequence[str]
) -> tuple[str, tuple[Span, ...]]:
    """Compute p[o/r]: put a word, or one word each, in place of spans; return text and new spans.

    Spans are half-open character offsets, sorted, not overlapping.

    >>> substitute("a boy and a boy", [(2, 5), (12, 15)], "poodle")
    ('a poodle and a poodle', ((2, 8), (15, 21)))
    >>> substitute("a boy and a dog", [(0, 1), (2, 5), (12, 15)], ["an", "owl", "cat"])
    ('an owl and a cat', ((0, 2), (3, 6), (13, 16)))
    """
    words = [word] * len(spans) if isinstance(word, str) else word
    if len(spans) == 1:  # same as below, the most frequent case
        ((start, end),), (put,) = spans, words
        return text[:start] + put + text[end:], ((start, start + len(put)),)
    parts, new_spans, done, length = [], [], 0, 0
    for (start, end), put in zip(spans, words, strict=True):
        parts += [text[done:start], put]
        length += start - done
        new_spans.append((length, length + len(put)))
        length += len(put)
        done = end
    return "".join([*parts, text[done:]]), tuple(new_spans)


def seed_rows(seeds: Iterable[Seed], problem_format: ProblemFormat = NLI) -> pa.Table:
    """Make the split `seeds`: replacement columns are empty, `variant_id` is the seed's id."""
    labels, schema = problem_format.labels, arrow_schema(problem_format)
    empty: dict[str, Any] = {field.name: [] for field in schema if pa.types.is_list(field.type)}
    rows = [
        {
            **empty,
            "variant_id": seed.seed_id,
            "seed_id": seed.seed_id,
            "source": seed.source,
            **dict(zip(problem_format.fields, seed.texts, strict=True)),
            "label": labels.index(seed.label),
            "annotator_labels": [labels.index(label) for label in seed.annotator_labels],
        }
        for seed in sorted(seeds, key=lambda seed: seed.seed_id)
    ]
    return pa.Table.from_pylist(rows, schema)


def variant_rows(
    variants: pa.Table,
    seeds: Mapping[str, Seed],
    edits: Sequence[Sequence[TextEdits]],
    problem_format: ProblemFormat = NLI,
) -> pa.Table:
    """Make the split `variants`, sorted by `seed_id`, then by `variant_id`."""
    keys = list(zip(*(variants[name].to_pylist() for name in REPLACEMENT_KEY), strict=True))
    validated = [variants[name].to_pylist() for name in problem_format.mlms]
    of_seeds = seed_rows(seeds.values(), problem_format)
    rows = of_seeds.take(pc.index_in(variants["seed_id"], value_set=of_seeds["seed_id"]))
    copied = ("word_class", "replacement", "log_odds", "subsamples")
    names = (*copied, *problem_format.mlms, *problem_format.signals)
    new = {name: variants[name] for name in names}
    new["variant_id"] = [variant_id(*key) for key in keys]
    new["original"] = variants["word"]
    new["mlms"] = [sorted(set().union(*mlms)) for mlms in zip(*validated, strict=True)]
    for n, (field, spans) in enumerate(
        zip(problem_format.fields, problem_format.spans, strict=True)
    ):
        changed = [
            substitute(seeds[seed_id].texts[n], *of_texts[n])
            for (seed_id, *_), of_texts in zip(keys, edits, strict=True)
        ]
        new[field], new[spans] = [text for text, _ in changed], [at for _, at in changed]
    order = [(name, "ascending") for name in ("seed_id", "variant_id")]
    return with_columns(rows, new).sort_by(order).combine_chunks()


# --- Arithmetic on columns ---

_BITS: Final = 32


def pairs(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return [n] one key for two numbers, ordered by the first, then by the second.

    >>> split(pairs(np.array([3, 1]), np.array([4, 5])))
    (array([3, 1]), array([4, 5]))
    """
    return (first.astype(np.int64) << _BITS) | second


def split(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split keys of `pairs` into their two numbers."""
    return keys >> _BITS, keys & ((1 << _BITS) - 1)


def starts_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return [n + 1] the start offsets of rows of these sizes, laid end to end.

    >>> starts_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def ranges(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return [sizes.sum()] the numbers `start, start + 1, …`, of each size, one after the other.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = starts_of(sizes)
    shifts = np.repeat(starts - before[:-1], sizes)
    return np.arange(before[-1]) + shifts


def groups_of(table: pa.Table, names: Sequence[str]) -> NDArray[np.int64]:
    """Return [n] group numbers, equal for rows that agree in the named columns.

    >>> groups_of(pa.table({"a": ["x", "y", "x"], "b": ["s", "s", "s"]}), ("a", "b")).tolist()
    [0, 1, 0]
    """
    groups = np.zeros(len(table), np.int64)
    for name in names:
        column = table[name].combine_chunks().dictionary_encode()
        groups = groups * len(column.dictionary) + column.indices.to_numpy()
    return groups


def lists_of(names: pa.Array, members: NDArray[np.bool_]) -> pa.ListArray:
    """Return [n] lists of the `names`, [m], that each row of `members`, [n, m], has, in order."""
    offsets = starts_of(members.sum(1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(np.nonzero(members)[1])))
