"""Seeds of a report: their texts, gold labels, annotators' votes and every model's answers.

Read from the dataset folder, thinned where a page would be too large, and given out twice: as
rows for tables and JSON (`seed_rows`), and packed for the page's scripts (`embed_source`), whose
`assets/problems.js` has the other half of `rebuild` in `textOf`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from string import ascii_lowercase, digits
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.layout import format_in, split_files
from merge_dataset.repeats import digests_of
from merge_dataset.schema import NLI, PARAPHRASE, VARIANT_CLASSES, changed_words
from merge_metric.analyses.hardest import hardest_first, mean_right
from merge_metric.report.evidence import MISSING, Evidence, Respondent
from merge_metric.report.variant_files import (
    IDENTITY,
    Ints,
    VariantFiles,
    as_pairs,
    tell_missing_texts,
    without_nulls,
)
from merge_metric.report.variant_signals import SIGNALS, pack_signals
from merge_metric.runs.coverage import read_columns
from merge_metric.runs.texts import rows_of
from merge_metric.tables import Column, Table, initials, legend

log = logging.getLogger(__name__)

Spans = Sequence[Sequence[int]]

HARDEST: Final = 20
"""Seeds of a source in the table of the hardest."""

_LEAST: Final = 5
"""Variants of a seed of which some are shown, if there are as many."""

_DIGITS: Final = {**dict(enumerate(digits + ascii_lowercase)), MISSING: "-"}
"""Label → a character, which scripts read as a number of base 36."""


@dataclass(frozen=True, slots=True, eq=False)
class SourceSeeds:
    """S seeds of a source with V variants of C classes, and M models' answers."""

    source: str
    texts: tuple[str, str]
    """Fields that the columns `premise` and `hypothesis` hold: in NLI these."""
    seeds: pa.Table
    """(S,) by id."""
    files: VariantFiles
    """Where the variants are."""
    rows: Ints
    """(V shown,) rows in `files` of variants to be shown, by seed and id."""
    own: Ints
    """(M, S) answers on the seeds."""
    answers: Ints
    """(M, V shown) answers on the variants to be shown."""
    seed: Ints
    """(V shown,) row of each shown variant's seed."""
    rank: Ints
    """(V shown,) place of each among all of its seed, by a hash of their ids."""
    word_class: Ints
    """(V shown,) position in `word_classes`."""
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
        shown = np.zeros(len(self.seeds), bool)
        shown[self.hardest()[:n_seeds]] = True
        keep = np.flatnonzero((self.rank < per_seed) & shown[self.seed])
        return replace(
            self,
            rows=self.rows[keep],
            answers=self.answers[:, keep],
            seed=self.seed[keep],
            rank=self.rank[keep],
            word_class=self.word_class[keep],
        )

    def read_variants(self) -> pa.Table:
        """Read the variants to be shown; see `VariantFiles.read`."""
        return self.files.read(self.rows)


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
    problem_format = format_in(folder, configs[0])
    fields = problem_format.fields
    seeds = read_columns(folder, files["seeds"], (*IDENTITY, "annotator_labels", *fields))
    for name in fields:
        tell_missing_texts(folder, name, seeds[name].null_count, len(seeds))
    seeds = as_pairs(without_nulls(seeds.combine_chunks(), fields), fields)
    seeds, seed_rows = _sorted_distinct(seeds)
    variants = VariantFiles(folder, tuple(files["variants"]), problem_format)
    known = _look_through(variants, seeds["seed_id"].combine_chunks())

    cell = known.word_class.astype(np.int64) * len(seeds) + known.seed
    shape = (len(known.names), len(seeds))

    def tally(chosen: NDArray[np.bool_]) -> Ints:
        return np.bincount(cell[chosen], minlength=shape[0] * shape[1]).reshape(shape)

    answers = _answers(evidence.models, files["variants"])[:, known.rows]
    return SourceSeeds(
        source=source,
        texts=(fields[0], " + ".join(fields[1:])),
        seeds=seeds,
        files=variants,
        rows=known.rows,
        own=_answers(evidence.models, files["seeds"])[:, seed_rows],
        answers=answers,
        seed=known.seed,
        rank=known.rank,
        word_class=known.word_class,
        word_classes=known.names,
        n_variants=tally(np.ones(len(cell), bool)),
        n_answered=np.stack([tally(of_model != MISSING) for of_model in answers]),
        n_right=np.stack([tally(of_model == known.label) for of_model in answers]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """V distinct variants, by seed and id."""

    names: tuple[str, ...]
    """Word classes, in their usual order."""
    rows: Ints
    seed: Ints
    rank: Ints
    label: Ints
    word_class: Ints


def _look_through(variants: VariantFiles, seed_ids: pa.Array) -> _Known:
    """Find each variant's seed, its rank among that seed's, its label and its word class."""
    codes: dict[str, int] = {}
    columns: list[list[Ints]] = [[], [], [], [], []]
    for part, rows in variants.parts():
        table, kept = _sorted_distinct(part)
        found = pc.index_in(table["seed_id"], value_set=seed_ids)
        seed = found.to_numpy().astype(np.int32)
        classes = pc.fill_null(table["word_class"], "").combine_chunks().dictionary_encode()
        for name in classes.dictionary.to_pylist():
            codes.setdefault(name, len(codes))
        code = np.array([codes[name] for name in classes.dictionary.to_pylist()], np.int16)
        rank = _ranks(table["variant_id"], seed)
        label = table["label"].to_numpy().astype(np.int16)
        values = (rows[kept], seed, rank, label, code[classes.indices.to_numpy()])
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    rows, seed, rank, label, word_class = map(np.concatenate, columns)
    names = sorted(codes, key=_class_order)
    place = np.array([names.index(name) for name in codes], np.int16)
    return _Known(tuple(names), rows, seed, rank, label, place[word_class])


def _ranks(ids: pa.ChunkedArray, seed: Ints) -> Ints:
    """Rank the variants of each seed by a hash of their ids; seeds ascend."""
    keys = digests_of(ids.to_pylist()).view(">u8")
    order = np.lexsort((keys, seed))
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order)) - np.searchsorted(seed, seed[order])
    return rank


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
    signals: list[pa.Table] = []
    packed = _pack(source, _shown(source, signals), premises, hypotheses)
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
        "signals": pack_signals(pa.concat_tables(signals), order),
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


def _shown(source: SourceSeeds, signals: list[pa.Table]) -> Iterator[tuple[Any, ...]]:
    """Yield class, words, texts and spans of the shown variants; keep their signals."""
    names = ["word_class", "original", "replacement", *NLI.fields]
    names += [f"{side}_spans" for side in NLI.fields]
    for table in source.files.each(source.rows):
        signals.append(table.select(SIGNALS))
        yield from rows_of(table, names)


def _pack(
    source: SourceSeeds,
    variants: Iterable[tuple[Any, ...]],
    premises: list[str],
    hypotheses: list[str],
) -> _Packed:
    groups: dict[tuple[int, int, str], _Group] = {}
    vocabulary: dict[str, int] = {}
    words: dict[int, int] = {}
    texts: dict[int, list[Any]] = {}
    classes = {name: code for code, name in enumerate(source.word_classes)}
    seeds = source.seed.tolist()
    for variant, (word_class, original, replacement, premise, hypothesis, *marks) in enumerate(
        variants
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
