"""The problems themselves: every seed, and what each model answers on it and its variants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset.layout import format_in, split_files
from merge_dataset.schema import NLI, VARIANT_CLASSES
from merge_metric.analyses.hardest import hardest_first, mean_right
from merge_metric.report.evidence import Evidence
from merge_metric.runs.join import read_columns
from merge_metric.runs.run import Model

Ints = NDArray[np.int64]

MISSING: Final = -1
"""In place of a prediction that a file lacks."""

_LEAST: Final = 5
"""Variants of a seed of which some are shown, if there are as many."""

_IDENTITY: Final = ("variant_id", "seed_id", "label")
_WORDS: Final = ("word_class", "original", "replacement")


@dataclass(frozen=True, slots=True, eq=False)
class SourceSeeds:
    """S seeds of a source with V variants of C classes, and M models' answers."""

    source: str
    texts: tuple[str, str]
    """What stands in the columns `premise` and `hypothesis`: of NLI these."""
    seeds: pa.Table
    """(S,) by id."""
    variants: pa.Table
    """Those to be shown, by seed and id."""
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
        """The same with fewer variants to be shown.

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
    """The seeds of every source that was scored, with all variants of its configurations."""
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
    seeds, variants = (as_pairs(table, fields) for table in (seeds, variants))
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


def as_pairs(table: pa.Table, fields: Sequence[str]) -> pa.Table:
    """Texts as pairs, in the columns of NLI: the first, and the others put together by spaces.

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
    """Spans in texts that are put together by spaces.

    >>> _moved(("a dog", "dog"), ([[2, 5]], [[0, 3]]))
    [[2, 5], [6, 9]]
    """
    found, start = [], 0
    for text, of_text in zip(texts, spans, strict=True):
        found += [[start + begin, start + end] for begin, end in of_text or ()]
        start += len(text) + 1
    return found


def _sorted_distinct(table: pa.Table) -> tuple[pa.Table, Ints]:
    """Rows by seed and id, each id once, and which rows they were."""
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


def _answers(models: Sequence[Model], files: Sequence[str]) -> Ints:
    """(M, rows of the files) predictions, or `MISSING`."""

    def of(model: Model) -> Ints:
        rows = np.concatenate([model.coverage.rows[file] for file in files])
        given = np.append(model.predictions["prediction"].to_numpy(), MISSING)
        answers: Ints = given[rows]  # row -1 is the appended one
        return answers

    return np.stack([of(model) for model in models])


def _class_order(name: str) -> tuple[int, str]:
    known = name in VARIANT_CLASSES
    return (VARIANT_CLASSES.index(name) if known else len(VARIANT_CLASSES), name)


def shown_share(sources: Sequence[SourceSeeds]) -> Iterator[tuple[int, int]]:
    """Variants shown, and all, of each source."""
    for source in sources:
        yield len(source.seed), int(source.n_variants.sum())
