"""Checks of replacements: ids, seeds, labels, and that each substitution can be undone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset import provenance
from merge_dataset.checks.registry import Finding, check
from merge_dataset.checks.signal_values import seed_flag_findings, signal_findings
from merge_dataset.checks.splits import (
    collision_findings,
    duplicates,
    filled_in_variants,
    repetition_findings,
    row_findings,
    seeds_findings,
    unused_findings,
    variants_findings,
)
from merge_dataset.files import read_schema
from merge_dataset.layout import PROVENANCE, configurations, split_files
from merge_dataset.numbered_files import patterns_of
from merge_dataset.repeats import Digests, digests_of, is_among, repeats
from merge_dataset.schema import (
    NLI,
    ProblemFormat,
    arrow_schema,
    changed_words,
    format_of,
)
from merge_dataset.seed_ranges import SeedRange, seed_ranges

_ROWS_AT_A_TIME: Final = 10_000


@check(
    "replacements",
    looks_at="ids, values, labels, signals, and that each substitution can be undone",
    kind=provenance.REPLACEMENTS,
)
def check_replacements(folder: Path, source: str) -> Iterator[Finding]:
    """Find what is wrong in the rows of a source's replacements, whose columns are right.

    Args:
        folder: The dataset folder.
        source: Name of the source, and of the collection.
    """
    made = provenance.read(folder / source / PROVENANCE)
    name_of_all, *names = configurations(folder, source)
    of_class = {name: split_files(folder, name) for name in names}
    files = _Files(split_files(folder, name_of_all)["seeds"], of_class)
    ranges = seed_ranges(folder, files.all)
    for some in ranges:
        yield from _range_findings(some, files, source, made)
    seeds, variants = _suspects(ranges, files)
    for config, rows in variants.items():
        yield from collision_findings(files.where(config, "variants"), rows, seeds)
    where, every = f"{source}/*/variants.parquet", pa.concat_tables(variants.values())
    yield from duplicates(where, every["variant_id"])
    yield from repetition_findings(where, every, seeds)


@dataclass(frozen=True, slots=True)
class _Files:
    """Files of a collection of replacements."""

    seeds: list[str]
    of_class: Mapping[str, Mapping[str, list[str]]]
    """Configuration of a word class → split → files."""

    @property
    def all(self) -> list[str]:
        """All of them."""
        of_classes = (each for splits in self.of_class.values() for each in splits.values())
        return [*self.seeds, *chain.from_iterable(of_classes)]

    def where(self, config: str, split: str) -> str:
        """Name the files of a split in a finding."""
        return ", ".join(patterns_of(self.of_class[config][split]))


def _read(some: SeedRange, files: Sequence[str], columns: Sequence[str] | None = None) -> pa.Table:
    # Those without a row are not opened, but one, for its columns.
    having = [file for file in files if some.size(file)] or files[:1]
    return pa.concat_tables(some.read(file, columns) for file in having)


def _range_findings(
    some: SeedRange,
    files: _Files,
    source: str,
    made: dict[str, Any],
) -> Iterator[Finding]:
    """Find what is wrong in the rows of some seeds and their variants, by themselves."""
    sharing = made["config"].get("shared_fields") or provenance.format_of_run(made).fields
    subsamples = made["config"].get("subsamples")
    seeds, used, of_classes = _read(some, files.seeds), [], []
    where_seeds = ", ".join(patterns_of(files.seeds))
    yield from seeds_findings(where_seeds, seeds, source)
    for config, of_config in files.of_class.items():
        where = files.where(config, "seeds")
        class_seeds = _read(some, of_config["seeds"])
        used.append(class_seeds["seed_id"])
        yield from seeds_findings(where, class_seeds, source)
        yield from _subset_findings(where, class_seeds, seeds)
        variants = _read(some, of_config["variants"])
        yield from _class_findings(files, variants, class_seeds, config)
        where = files.where(config, "variants")
        yield from _substitution_findings(where, variants, class_seeds, subsamples, sharing)
        yield from signal_findings(where, variants, made)
        of_classes.append(variants)
    yield from seed_flag_findings(f"{source}/*/variants.parquet", of_classes)
    every = pa.chunked_array((c for u in used for c in u.chunks), pa.string())
    yield from unused_findings(where_seeds, seeds, every)


def _suspects(ranges: Sequence[SeedRange], files: _Files) -> tuple[pa.Table, dict[str, pa.Table]]:
    """Read the seeds, and the variants of each class, whose id or texts stand in other rows, too.

    Where all rows fit into memory it is all of them.
    """
    fields = format_of(read_schema(ranges[0].folder / files.seeds[0])).fields
    columns = ["variant_id", "seed_id", *fields]
    variants_files = {config: splits["variants"] for config, splits in files.of_class.items()}

    def digests(table: pa.Table) -> tuple[Digests, Digests]:
        ids, *texts = (table[name].to_pylist() for name in ("variant_id", *fields))
        whole = ("\0".join(map(str, each)) for each in zip(*texts, strict=True))
        return digests_of(map(str, ids)), digests_of(whole)

    def kept(table: pa.Table, wanted: pa.Array | None = None) -> pa.Table:
        if known is None:
            return table
        keep = reduce(np.logical_or, map(is_among, digests(table), known))
        if wanted is not None:
            keep |= pc.is_in(table["seed_id"], value_set=wanted).to_numpy()
        return table.filter(pa.array(keep))

    known: tuple[Digests, Digests] | None = None
    if len(ranges) > 1:
        with repeats() as ids, repeats() as texts:
            for some in ranges:
                for of_split in (files.seeds, *variants_files.values()):
                    of_ids, of_texts = digests(_read(some, of_split, columns))
                    ids.add(of_ids)
                    texts.add(of_texts)
            known = ids.found(), texts.found()
    variants = {
        config: pa.concat_tables(kept(_read(some, of_class, columns)) for some in ranges)
        for config, of_class in variants_files.items()
    }
    of_variants = pa.concat_tables(variants.values())["seed_id"].unique()
    seeds = pa.concat_tables(
        kept(_read(some, files.seeds, columns), of_variants) for some in ranges
    )
    return seeds, variants


def _subset_findings(where: str, some: pa.Table, every: pa.Table) -> Iterator[Finding]:
    positions = pc.index_in(some["seed_id"], value_set=every["seed_id"])
    expected = "every seed among the seeds of all classes"
    yield from row_findings(where, expected, some, pc.is_null(positions), "seed_id")
    if positions.null_count or every.take(positions).equals(some):
        return
    for got, want in zip(some.to_pylist(), every.take(positions).to_pylist(), strict=True):
        for column in (c for c in got if got[c] != want[c]):
            text = f"{got[column]!r} instead of {want[column]!r} ({got['seed_id']})"
            yield Finding(where, f"{column} as in the seeds of all classes", text)


def _class_findings(
    files: _Files, variants: pa.Table, seeds: pa.Table, config: str
) -> Iterator[Finding]:
    where = files.where(config, "variants")
    variants = variants.select(filled_in_variants(format_of(seeds.schema)))
    yield from variants_findings(where, variants, seeds, config)
    expected = "original and replacement to differ"
    same = pc.equal(variants["original"], variants["replacement"])
    yield from row_findings(where, expected, variants, same, "replacement")
    yield from unused_findings(files.where(config, "seeds"), seeds, variants["seed_id"])


def _substitution_findings(
    where: str,
    variants: pa.Table,
    seeds: pa.Table,
    subsamples: int | None,
    sharing: Collection[str],
) -> Iterator[Finding]:
    problem_format = format_of(seeds.schema)
    texts = {
        row["seed_id"]: row for row in seeds.select(["seed_id", *problem_format.fields]).to_pylist()
    }
    unchecked = {"source", "label", "log_odds", *problem_format.signals}
    unchecked -= {"mlm_count", *problem_format.pll_changes}  # a row alone shows if they are right
    columns = [name for name in arrow_schema(problem_format).names if name not in unchecked]
    for batch in variants.select(columns).to_batches(_ROWS_AT_A_TIME):
        for row in batch.to_pylist():
            seed = texts.get(row["seed_id"])
            for expected, got in row_problems(row, seed, subsamples, problem_format, sharing):
                yield Finding(where, expected, f"{got} ({row['variant_id']})")


def row_problems(
    variant: Mapping[str, Any],
    seed: Mapping[str, str] | None,
    subsamples: int | None,
    problem_format: ProblemFormat = NLI,
    sharing: Collection[str] = NLI.fields,
) -> Iterator[tuple[str, str]]:
    """Find what is wrong within one variant, as pairs (expected, got).

    Args:
        variant: A row of the split `variants`.
        seed: The seed's texts by field; None where it is unknown.
        subsamples: How many subsamples there are, where known.
        problem_format: Of the seed.
        sharing: The fields that share the word replaced; in the others it need not stand.
    """
    yield from _word_problems(variant, seed, problem_format, sharing)
    lists = (variant[name] or () for name in problem_format.mlms)
    union = sorted({mlm for mlms in lists for mlm in mlms}, key=str)
    if variant["mlms"] != union:
        expected = f"mlms to be the sorted union of {' and '.join(problem_format.mlms)}"
        yield expected, str(variant["mlms"])
    if variant["mlm_count"] != len(union):
        yield f"mlm_count to be the number of mlms, {len(union)}", str(variant["mlm_count"])
    columns = zip(problem_format.pll_changes, problem_format.spans, strict=True)
    changed = [name for name, spans in columns if variant[spans]]
    known = [name for name in problem_format.pll_changes if variant[name] is not None]
    if known and known != changed:
        yield f"{' and '.join(changed)}, or neither", f"only {' and '.join(known)}"
    if not _are_subsamples(variant["subsamples"], subsamples):
        limit = "from 0" if subsamples is None else f"in 0..{subsamples - 1}"
        expected = f"subsamples: at least one number {limit}, ascending, each once"
        yield expected, str(variant["subsamples"])


def _word_problems(
    variant: Mapping[str, Any],
    seed: Mapping[str, str] | None,
    problem_format: ProblemFormat,
    sharing: Collection[str],
) -> Iterator[tuple[str, str]]:
    """Find what is wrong with the words that change, and with their places."""
    original, replacement = variant["original"] or "", variant["replacement"] or ""
    try:
        words = changed_words(original, replacement)
    except ValueError:
        expected = "another word in replacement for each in original"
        yield expected, f"{original!r} and {replacement!r}"
        return
    found: set[str] = set()
    for field in problem_format.fields:
        yield from _sentence_problems(variant, field, seed, words, has_word=field in sharing)
        text = variant[field] or ""
        found.update(text[slice(*span)] for span in variant[f"{field}_spans"] or () if span)
    if len(words) == 1:
        return
    if same := [new for new, old in words.items() if new == old]:
        yield "original and replacement to differ in each word", str(same)
    if unused := words.keys() - found:
        yield "every word of replacement at some span", str(sorted(unused))


def _sentence_problems(
    variant: Mapping[str, Any],
    side: str,
    seed: Mapping[str, str] | None,
    words: Mapping[str, str],
    *,
    has_word: bool,
) -> Iterator[tuple[str, str]]:
    text, spans = variant[side] or "", variant[f"{side}_spans"] or []
    if (spans or has_word) and not _are_spans(spans, len(text)):
        yield f"{side}_spans: at least one [start, end), ascending, inside the text", str(spans)
    elif wrong := {text[start:end] for start, end in spans} - words.keys():
        expected = f"{sorted(wrong)}, not {' or '.join(map(repr, words))}"
        yield f"the replacement at {side}_spans", expected
    elif seed is not None and (restored := restore(text, spans, words)) != seed[side]:
        yield f"the seed's {side} once the original is put back", repr(restored)


def restore(text: str, spans: Sequence[Sequence[int]], words: Mapping[str, str]) -> str:
    """Put the original words back at the spans, right to left.

    Args:
        text: A variant's.
        spans: Where it differs from its seed's.
        words: Replacement → original.

    >>> restore("An owl and an owl.", [[0, 2], [3, 6], [11, 13], [14, 17]],
    ...         {"owl": "girl", "An": "A", "an": "a"})
    'A girl and a girl.'
    """
    for start, end in reversed(spans):
        text = text[:start] + words[text[start:end]] + text[end:]
    return text


def _are_spans(spans: list[Any], length: int) -> bool:
    if not spans or any(not span or len(span) != 2 or None in span for span in spans):
        return False
    flat = [0, *(offset for span in spans for offset in span), length]
    ascending = all(a <= b for a, b in pairwise(flat))
    return ascending and all(start < end for start, end in spans)


def _are_subsamples(drawn: list[Any] | None, count: int | None) -> bool:
    if not drawn or None in drawn:
        return False
    within = drawn[0] >= 0 and (count is None or drawn[-1] < count)
    return within and drawn == sorted(set(drawn))
