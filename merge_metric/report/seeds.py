"""Seeds of a report: their texts, gold labels, annotators' votes and every model's answers.

Read from the dataset folder, thinned where a page would be too large, and given out twice: as
rows for tables and JSON (`seed_rows`), and packed for the page's scripts (`embed_source`), whose
`assets/problems.js` has the other half of `rebuild` in `textOf`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from string import ascii_lowercase, digits
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.layout import format_in, split_files
from merge_dataset.schema import NLI, PARAPHRASE, VARIANT_CLASSES, changed_words
from merge_metric.analyses.hardest import hardest_first, mean_right
from merge_metric.report.evidence import MISSING, Evidence, Respondent
from merge_metric.report.variant_signals import pack_signals, read_signals
from merge_metric.runs.coverage import read_columns
from merge_metric.tables import Column, Table, initials, legend

log = logging.getLogger(__name__)

Ints = NDArray[np.signedinteger[Any]]
Spans = Sequence[Sequence[int]]

HARDEST: Final = 20
"""Seeds of a source in the table of the hardest."""

_LEAST: Final = 5
"""Variants of a seed of which some are shown, if there are as many."""

_DIGITS: Final = {**dict(enumerate(digits + ascii_lowercase)), MISSING: "-"}
"""Label → a character, which scripts read as a number of base 36."""

_IDENTITY: Final = ("variant_id", "seed_id", "label")
_WORDS: Final = ("word_class", "original", "replacement")


@dataclass(frozen=True, slots=True, eq=False)
class SourceSeeds:
    """S seeds of a source with V variants of C classes, and M models' answers."""

    source: str
    texts: tuple[str, str]
    """Fields that the columns `premise` and `hypothesis` hold: in NLI these."""
    seeds: pa.Table
    """(S,) by id."""
    variants: pa.Table
    """Variants to be shown, by seed and id."""
    own: Ints
    """(M, S) answers on the seeds."""
    answers: Ints
    """(M, V shown) answers on the variants to be shown."""
    seed: Ints
    """(V shown,) row of each shown variant's seed."""
    word_classes: tuple[str, ...]
    n_variants: Ints
    """(C, S) distinct variants, whether shown or not."""
    n_answered: Ints
    """(M, C, S) of these with an answer: all, unless predictions are missing."""
    n_right: Ints
    """(M, C, S) of these answered right."""

    @property
    def gold(self) -> Ints:
        """(S,) gold labels."""
        gold: Ints = self.seeds["label"].to_numpy()
        return gold

    @property
    def n_shown(self) -> Ints:
        """(S,) variants to be shown."""
        return np.bincount(self.seed, minlength=len(self.seeds))

    def mean_right(self) -> NDArray[np.float64]:
        """(S,) share of variants answered right, averaged over models (see `hardness`)."""
        return mean_right(self.n_right.sum(axis=1), self.n_answered.sum(axis=1))

    def hardest(self) -> Ints:
        """(S,) rows of seeds, the hardest first."""
        n_wrong = ((self.own != MISSING) & (self.own != self.gold)).sum(axis=0)
        return hardest_first(self.mean_right(), n_wrong)

    def sample(self, per_seed: int, n_seeds: int) -> SourceSeeds:
        """Show fewer variants.

        Args:
            per_seed: At most so many of a seed, chosen by a hash of their ids.
            n_seeds: And only of so many seeds, the hardest.
        """
        ids = self.variants["variant_id"].to_pylist()
        keys = np.array([blake2b(name.encode(), digest_size=8).digest() for name in ids], "V8")
        order = np.lexsort((keys.view(">u8"), self.seed)) if len(keys) else np.empty(0, np.intp)
        first = np.searchsorted(self.seed[order], np.arange(len(self.seeds)))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - first[self.seed[order]]
        shown = np.zeros(len(self.seeds), bool)
        shown[self.hardest()[:n_seeds]] = True
        keep = np.flatnonzero((rank < per_seed) & shown[self.seed])
        return replace(
            self,
            variants=self.variants.take(keep),
            answers=self.answers[:, keep],
            seed=self.seed[keep],
        )


def read_seeds(evidence: Evidence) -> list[SourceSeeds]:
    """Read the seeds of every source that was scored, with all variants of its configurations."""
    sources = dict.fromkeys(c.source for c in evidence.configurations)
    return [_read_source(evidence, source) for source in sources]


def limit_variants(sources: Sequence[SourceSeeds], most: int) -> list[SourceSeeds]:
    """Show at most so many variants in all: as many of each seed as of every other.

    Where that would leave fewer than `_LEAST` of a seed, the hardest seeds have so many
    and the others none.
    """
    counts = np.concatenate([source.n_shown for source in sources])
    if counts.sum() <= most:
        return list(sources)
    per_seed = _LEAST
    while np.minimum(counts, per_seed + 1).sum() <= most:
        per_seed += 1
    share = min(1.0, most / max(1, np.minimum(counts, per_seed).sum()))
    return [
        source.sample(per_seed, int(share * len(source.seeds)) if share < 1 else len(source.seeds))
        for source in sources
    ]


def describe_sample(sources: Sequence[SourceSeeds]) -> str:
    """Say in a sentence which variants are shown."""
    shown = sum(len(source.seed) for source in sources)
    total = sum(int(source.n_variants.sum()) for source in sources)
    if shown == total:
        return f"All {total:,} variants are shown."
    if not shown:
        return f"None of the {total:,} variants is shown; counts and shares are those of all."
    counts = [count for source in sources for count in source.n_shown.tolist()]
    text = (
        f"To keep the file small, {shown:,} of {total:,} variants are shown: of each seed at "
        f"most {max(counts):,}, sampled by a hash of their ids"
    )
    if bare := sum(not count for count in counts):
        text += f", and none of the {bare:,} easiest seeds"
    return f"{text}. Counts and shares are those of all variants."


def _read_source(evidence: Evidence, source: str) -> SourceSeeds:
    folder = evidence.folder
    configs = [c.name for c in evidence.configurations if c.source == source]
    files = {
        split: list(dict.fromkeys(f for c in configs for f in split_files(folder, c)[split]))
        for split in ("seeds", "variants")
    }
    fields, spans = (getattr(format_in(folder, configs[0]), name) for name in ("fields", "spans"))
    of_seeds, of_variants = (*_IDENTITY, "annotator_labels", *fields), (
        *_IDENTITY, *_WORDS, *fields, *spans
    )  # fmt: skip
    seeds = read_columns(folder, files["seeds"], of_seeds).combine_chunks()
    variants = read_columns(folder, files["variants"], of_variants).combine_chunks()
    signals = read_signals(folder, files["variants"], format_in(folder, configs[0]))
    for name in signals.column_names:
        variants = variants.append_column(name, signals[name])
    seeds, variants = (
        as_pairs(_with_texts(table, fields, folder), fields) for table in (seeds, variants)
    )
    seeds, seed_rows = _sorted_distinct(seeds)
    variants, variant_rows = _sorted_distinct(variants)

    own = _answers(evidence.models, files["seeds"])[:, seed_rows]
    answers = _answers(evidence.models, files["variants"])[:, variant_rows]
    found = pc.index_in(variants["seed_id"], value_set=seeds["seed_id"].combine_chunks())
    seed: Ints = found.to_numpy().astype(np.int64)

    word_class = pc.fill_null(variants["word_class"], "").combine_chunks()
    names = sorted(set(word_class.unique().to_pylist()), key=_class_order)
    code = pc.index_in(word_class, value_set=pa.array(names)).to_numpy().astype(np.int64)
    cell, n_cells = code * len(seeds) + seed, len(names) * len(seeds)
    shape = (len(names), len(seeds))

    def tally(chosen: NDArray[np.bool_]) -> Ints:
        rows = [np.bincount(cell[mask], minlength=n_cells).reshape(shape) for mask in chosen]
        return np.stack(rows)

    return SourceSeeds(
        source=source,
        texts=(fields[0], " + ".join(fields[1:])),
        seeds=seeds,
        variants=variants,
        own=own,
        answers=answers,
        seed=seed,
        word_classes=tuple(names),
        n_variants=np.bincount(cell, minlength=n_cells).reshape(shape),
        n_answered=tally(answers != MISSING),
        n_right=tally(answers == variants["label"].to_numpy()),
    )


def _with_texts(table: pa.Table, fields: Sequence[str], folder: Path) -> pa.Table:
    """Put empty texts in place of those that are missing, and say so."""
    for name in fields:
        if missing := table[name].null_count:
            log.warning("%s: %s of %s problems have no text in the column %s; the report shows "
                        "them without", folder, missing, len(table), name)  # fmt: skip
            place = table.column_names.index(name)
            table = table.set_column(place, name, pc.fill_null(table[name], ""))
    return table


def as_pairs(table: pa.Table, fields: Sequence[str]) -> pa.Table:
    """Put texts in the columns of NLI: the first, and the others joined by spaces.

    Spans, where there are any, move with their texts.
    """
    rest = [ending for ending in ("", "_spans") if fields[0] + ending in table.column_names]
    old = [field + ending for field in fields for ending in rest]
    if len(fields) == 2:
        new = [side + ending for side in NLI.fields for ending in rest]
        names = dict(zip(old, new, strict=True))
        return table.rename_columns([names.get(name, name) for name in table.column_names])
    first, *others = fields
    texts = list(zip(*(table[name].to_pylist() for name in others), strict=True))
    pairs = table.drop_columns(old).append_column("premise", table[first])
    pairs = pairs.append_column("hypothesis", pa.array(map(" ".join, texts), pa.string()))
    if "_spans" in rest:
        spans = zip(*(table[f"{name}_spans"].to_pylist() for name in others), strict=True)
        moved = [_moved(*each) for each in zip(texts, spans, strict=True)]
        pairs = pairs.append_column("premise_spans", table[f"{first}_spans"])
        kind = table[f"{first}_spans"].type
        pairs = pairs.append_column("hypothesis_spans", pa.array(moved, kind))
    return pairs


def _moved(
    texts: Sequence[str], spans: Sequence[Sequence[Sequence[int]] | None]
) -> list[list[int]]:
    """Move spans in texts that are joined by spaces.

    >>> _moved(("a dog", "dog"), ([[2, 5]], [[0, 3]]))
    [[2, 5], [6, 9]]
    """
    found, start = [], 0
    for text, of_text in zip(texts, spans, strict=True):
        found += [[start + begin, start + end] for begin, end in of_text or ()]
        start += len(text) + 1
    return found


def _sorted_distinct(table: pa.Table) -> tuple[pa.Table, Ints]:
    """Sort rows by seed and id, each id once; also returns which rows they were."""
    rows = pa.table(
        {
            "seed_id": table["seed_id"],
            "variant_id": table["variant_id"],
            "row": np.arange(len(table)),
        }
    ).sort_by([("seed_id", "ascending"), ("variant_id", "ascending"), ("row", "ascending")])
    ids = rows["variant_id"].combine_chunks()
    first = np.ones(len(ids), bool)
    first[1:] = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    kept: Ints = rows["row"].to_numpy()[first]
    return table.take(kept), kept


def _answers(models: Sequence[Respondent], files: Sequence[str]) -> Ints:
    """Look up predictions: (M, rows of the files), `MISSING` where there is none."""
    return np.stack([np.concatenate([m.answers[file] for file in files]) for m in models])


def _class_order(name: str) -> tuple[int, str]:
    known = name in VARIANT_CLASSES
    return (VARIANT_CLASSES.index(name) if known else len(VARIANT_CLASSES), name)


# --- Rows for tables and JSON ---


def hardest_table(evidence: Evidence, source: SourceSeeds, most: int = HARDEST) -> Table:
    """Make the table of the hardest seeds, as `merge-nli analyse hardest --top` finds them."""
    has_both = PARAPHRASE in source.word_classes and len(source.word_classes) > 1
    return Table(
        name=f"hardest-{source.source}",
        title=f"{source.source}: the hardest seeds",
        columns=(
            Column("seed_id", "seed"),
            *(Column(name, name, "passage") for name in source.texts),
            Column("gold", "gold"),
            Column("votes", "votes"),
            Column("answers", "answers"),
            Column("variants_right", "variants right", "share"),
        ),
        rows=tuple(seed_rows(evidence, source, most)),
        notes=(
            "By the share of variants answered right, in percent, averaged over models; each "
            "distinct variant counts once. Answers to the seed itself, in the order "
            f"{', '.join(evidence.names)}, and votes of annotators where known: "
            f"{legend(evidence.labels)}.",
            *(["Replacements and paraphrases count alike."] if has_both else []),
        ),
    )


def seed_rows(
    evidence: Evidence, source: SourceSeeds, most: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield seeds, hardest first: texts, gold label, votes, each model's answers and counts."""
    order, labels = source.hardest()[:most].tolist(), evidence.labels
    texts = source.seeds.take(order).to_pylist()
    n_variants, mean_right = source.n_variants.sum(axis=0), source.mean_right()
    counts = [table.sum(axis=1) for table in (source.n_answered, source.n_right)]
    for seed, text in zip(order, texts, strict=True):
        own = source.own[:, seed].tolist()
        answered, right = (table[:, seed].tolist() for table in counts)
        mean = float(mean_right[seed])
        yield {
            "source": source.source,
            "seed_id": text["seed_id"],
            **dict(zip(source.texts, (text["premise"], text["hypothesis"]), strict=True)),
            "gold": labels[text["label"]],
            "votes": _letters(sorted(text["annotator_labels"] or ()), labels) or None,
            "answers": _letters(own, labels),
            "variants_right": None if math.isnan(mean) else mean,
            "n_variants": int(n_variants[seed]),
            "by_model": {
                name: {
                    "answer": None if code == MISSING else labels[code],
                    "n_answered": n,
                    "n_right": n_right,
                }
                for name, code, n, n_right in zip(evidence.names, own, answered, right, strict=True)
            },
        }


def _letters(codes: Sequence[int], labels: Sequence[str]) -> str:
    letters = initials(labels)
    return " ".join("–" if code == MISSING else letters[code] for code in codes)


# --- Packed for the page ---


def embed_source(source: SourceSeeds) -> dict[str, Any]:
    """Pack seeds in columns; shown variants in groups of one word replaced in one seed."""
    premises = source.seeds["premise"].to_pylist()
    hypotheses = source.seeds["hypothesis"].to_pylist()
    packed = _pack(source, premises, hypotheses)
    order = [variant for group in packed.groups for variant in group.variants]
    return {
        "name": source.source,
        "classes": list(source.word_classes),
        "ids": source.seeds["seed_id"].to_pylist(),
        "premises": premises,
        "hypotheses": hypotheses,
        "gold": _digits(source.gold.tolist()),
        "votes": [_digits(votes) for votes in source.seeds["annotator_labels"].to_pylist()],
        "own": [_digits(answers) for answers in source.own.tolist()],
        "n": source.n_variants.tolist(),
        "answered": _unless_all(source),
        "right": source.n_right.tolist(),
        "groups": [
            [g.seed, g.word_class, g.word, _flat(g.premise), _flat(g.hypothesis), len(g.variants)]
            for g in packed.groups
        ],
        "vocabulary": list(packed.vocabulary),
        "words": [packed.words[variant] for variant in order],
        "answers": [_digits(answers) for answers in source.answers[:, order].tolist()],
        "signals": pack_signals(source.variants, order),
        "texts": {
            str(position): packed.texts[variant]
            for position, variant in enumerate(order)
            if variant in packed.texts
        },
    }


@dataclass(slots=True)
class _Group:
    """Variants that replace the same words of one seed, mostly one."""

    seed: int
    word_class: int
    word: str
    premise: Spans
    """Where the word stands in the seed's premise."""
    hypothesis: Spans
    variants: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Packed:
    groups: list[_Group]
    vocabulary: dict[str, int]
    words: dict[int, int]
    """Variant → position of its replacement in the vocabulary."""
    texts: dict[int, list[Any]]
    """Variant → what cannot be told from its seed and its replacement: its texts and spans."""


def _pack(source: SourceSeeds, premises: list[str], hypotheses: list[str]) -> _Packed:
    groups: dict[tuple[int, int, str], _Group] = {}
    vocabulary: dict[str, int] = {}
    words: dict[int, int] = {}
    texts: dict[int, list[Any]] = {}
    classes = {name: code for code, name in enumerate(source.word_classes)}
    seeds = source.seed.tolist()
    names = ("word_class", "original", "replacement", "premise", "hypothesis")
    columns = (source.variants[name].to_pylist() for name in names)
    spans = (source.variants[f"{side}_spans"].to_pylist() for side in ("premise", "hypothesis"))
    for variant, (word_class, original, replacement, premise, hypothesis, *marks) in enumerate(
        zip(*columns, *spans, strict=True)
    ):
        seed, word = seeds[variant], original or ""
        new = replacement or ""
        lengths = _original_lengths(word_class, word, new)
        in_premise, in_hypothesis = (
            spans_in_seed(each, [lengths.get(text[slice(*span)], len(word)) for span in each])
            for text, each in zip((premise, hypothesis), marks, strict=True)
        )
        group = groups.setdefault(
            (seed, classes[word_class or ""], word),
            _Group(seed, classes[word_class or ""], word, in_premise, in_hypothesis),
        )
        group.variants.append(variant)
        words[variant] = vocabulary.setdefault(new, len(vocabulary))
        told = (
            rebuild(premises[seed], group.premise, new),
            rebuild(hypotheses[seed], group.hypothesis, new),
        )
        if told != (premise, hypothesis) or not new:
            texts[variant] = [premise, _flat(marks[0]), hypothesis, _flat(marks[1])]
    return _Packed(sorted(groups.values(), key=lambda group: group.seed), vocabulary, words, texts)


def _original_lengths(word_class: str | None, original: str, replacement: str) -> dict[str, int]:
    """Map replacements to the lengths of their originals, where several words change."""
    if word_class == PARAPHRASE or " " not in replacement:
        return {}
    return {new: len(old) for new, old in changed_words(original, replacement).items()}


def spans_in_seed(spans: Spans, lengths: Sequence[int]) -> list[list[int]]:
    """Find where originals stood, from where their replacements stand and how long they were.

    >>> spans_in_seed([[2, 8], [15, 21]], [3, 3])  # a boy and a boy → a poodle and a poodle
    [[2, 5], [12, 15]]
    """
    found, shift = [], 0
    for (start, end), length in zip(spans, lengths, strict=True):
        found.append([start - shift, start - shift + length])
        shift += end - start - length
    return found


def rebuild(text: str, spans: Spans, replacement: str) -> str:
    """Make a variant's text from its seed's.

    >>> rebuild("a boy and a boy", [[2, 5], [12, 15]], "poodle")
    'a poodle and a poodle'
    """
    pieces, done = [], 0
    for start, end in spans:
        pieces += [text[done:start], replacement]
        done = end
    return "".join([*pieces, text[done:]])


def _unless_all(source: SourceSeeds) -> list[Any] | None:
    """Count each model's answered variants, where that is not all of them."""
    if (source.n_answered == source.n_variants).all():
        return None
    counts: list[Any] = source.n_answered.tolist()
    return counts


def _flat(spans: Spans) -> list[int]:
    return [offset for span in spans for offset in span]


def _digits(codes: Sequence[int] | None) -> str:
    return "".join(_DIGITS[code] for code in codes or ())
