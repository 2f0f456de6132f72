"""Checks of the rows: ids, seeds, labels, and that each substitution can be undone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from merge_dataset.findings import Finding
from merge_dataset.layout import configurations, split_files
from merge_dataset.schema import (
    CONFIG_SUFFIXES,
    LABELS,
    REPLACEMENT_COLUMNS,
    arrow_schema,
    parse_config_name,
)

_FILLED: Final = ("variant_id", "seed_id", "source", "premise", "hypothesis", "label")
_FILLED_IN_VARIANTS: Final = (*_FILLED, "word_class", "original", "replacement")


def source_findings(folder: Path, source: str, subsamples: int | None) -> Iterator[Finding]:
    """Findings in all rows of a source whose files have the right columns.

    Args:
        folder: The dataset folder.
        source: Name of the source.
        subsamples: How many subsamples there are, where known.
    """
    name_of_all, *names = configurations(folder, source)
    everywhere = split_files(folder, name_of_all)
    (seeds_file,) = everywhere["seeds"]
    seeds = pq.ParquetFile(folder / seeds_file).read()
    yield from _seeds_findings(seeds_file, seeds, source)
    used = []
    for name in names:
        files = split_files(folder, name)
        (class_seeds_file,), (variants_file,) = files["seeds"], files["variants"]
        class_seeds = pq.ParquetFile(folder / class_seeds_file).read()
        used.append(class_seeds["seed_id"])
        yield from _seeds_findings(class_seeds_file, class_seeds, source)
        yield from _subset_findings(class_seeds_file, class_seeds, seeds)
        variants = pq.ParquetFile(folder / variants_file)
        yield from _variants_findings(variants_file, variants, class_seeds, name)
        yield from _substitution_findings(variants_file, variants, class_seeds, subsamples)
    yield from _unused_findings(
        seeds_file, seeds, pa.chunked_array(c for u in used for c in u.chunks)
    )
    ids = [pq.ParquetFile(folder / f).read(["variant_id"]) for f in everywhere["variants"]]
    yield from _duplicates(f"{source}/*/variants.parquet", pa.concat_tables(ids)["variant_id"])


def _seeds_findings(where: str, seeds: pa.Table, source: str) -> Iterator[Finding]:
    yield from _value_findings(where, seeds, source, _FILLED)
    yield from _duplicates(where, seeds["seed_id"])
    yield from _rows(
        where,
        "variant_id to equal seed_id in seeds",
        seeds,
        pc.not_equal(seeds["variant_id"], seeds["seed_id"]),
        "variant_id",
    )
    for column in REPLACEMENT_COLUMNS:
        expected = f"{column} to be empty in seeds"
        yield from _rows(where, expected, seeds, _filled(seeds[column]), column)


def _subset_findings(where: str, some: pa.Table, every: pa.Table) -> Iterator[Finding]:
    positions = pc.index_in(some["seed_id"], value_set=every["seed_id"])
    expected = "every seed among the seeds of all classes"
    yield from _rows(where, expected, some, pc.is_null(positions), "seed_id")
    if positions.null_count or every.take(positions).equals(some):
        return
    for got, want in zip(some.to_pylist(), every.take(positions).to_pylist(), strict=True):
        for column in (c for c in got if got[c] != want[c]):
            text = f"{got[column]!r} instead of {want[column]!r} ({got['seed_id']})"
            yield Finding(where, f"{column} as in the seeds of all classes", text)


def _unused_findings(where: str, seeds: pa.Table, used: pa.ChunkedArray) -> Iterator[Finding]:
    unused = pc.invert(pc.is_in(seeds["seed_id"], value_set=used))
    yield from _rows(where, "every seed to have variants", seeds, unused, "seed_id")


def _variants_findings(
    where: str, file: pq.ParquetFile, seeds: pa.Table, config: str
) -> Iterator[Finding]:
    source, word_class = parse_config_name(config)
    variants = file.read([*_FILLED_IN_VARIANTS])
    yield from _value_findings(where, variants, source, _FILLED_IN_VARIANTS)
    other_class = pc.not_equal(variants["word_class"], word_class)
    yield from _rows(where, f"word_class to be {word_class!r}", variants, other_class, "word_class")
    positions = pc.index_in(variants["seed_id"], value_set=seeds["seed_id"])
    expected = "the seed of every variant in the seeds split"
    yield from _rows(where, expected, variants, pc.is_null(positions), "seed_id")
    differs = pc.not_equal(variants["label"], seeds["label"].take(positions))
    yield from _rows(where, "the label of the seed", variants, differs, "label")
    same = pc.equal(variants["original"], variants["replacement"])
    yield from _rows(where, "original and replacement to differ", variants, same, "replacement")
    yield from _unused_findings(
        f"{source}/{CONFIG_SUFFIXES[str(word_class)]}/seeds.parquet", seeds, variants["seed_id"]
    )


def _value_findings(
    where: str, table: pa.Table, source: str, filled: Sequence[str]
) -> Iterator[Finding]:
    for column in filled:
        yield from _rows(where, f"a value for {column}", table, pc.is_null(table[column]), column)
    foreign = pc.not_equal(table["source"], source)
    yield from _rows(where, f"the source {source!r}", table, foreign, "source")
    label = table["label"]
    outside = pc.or_(pc.less(label, 0), pc.greater_equal(label, len(LABELS)))
    yield from _rows(where, f"a label of 0 to {len(LABELS) - 1}", table, outside, "label")


def _substitution_findings(
    where: str, file: pq.ParquetFile, seeds: pa.Table, subsamples: int | None
) -> Iterator[Finding]:
    ids, premises, hypotheses = (
        seeds[column].to_pylist() for column in ("seed_id", "premise", "hypothesis")
    )
    texts = {
        i: {"premise": p, "hypothesis": h}
        for i, p, h in zip(ids, premises, hypotheses, strict=True)
    }
    columns = [name for name in arrow_schema().names if name not in ("source", "label", "log_odds")]
    for batch in file.iter_batches(columns=columns):
        for row in batch.to_pylist():
            for expected, got in row_problems(row, texts.get(row["seed_id"]), subsamples):
                yield Finding(where, expected, f"{got} ({row['variant_id']})")


def row_problems(
    variant: Mapping[str, Any], seed: Mapping[str, str] | None, subsamples: int | None
) -> Iterator[tuple[str, str]]:
    """What is wrong within one variant, as pairs (expected, got).

    Args:
        variant: A row of the split `variants`.
        seed: The seed's `premise` and `hypothesis`; None where it is unknown.
        subsamples: How many subsamples there are, where known.
    """
    for side in ("premise", "hypothesis"):
        yield from _sentence_problems(variant, side, seed)
    union = sorted({*(variant["premise_mlms"] or ()), *(variant["hypothesis_mlms"] or ())}, key=str)
    if variant["mlms"] != union:
        expected = "mlms to be the sorted union of premise_mlms and hypothesis_mlms"
        yield expected, str(variant["mlms"])
    if not _are_subsamples(variant["subsamples"], subsamples):
        limit = "from 0" if subsamples is None else f"in 0..{subsamples - 1}"
        expected = f"subsamples: at least one number {limit}, ascending, each once"
        yield expected, str(variant["subsamples"])


def _sentence_problems(
    variant: Mapping[str, Any], side: str, seed: Mapping[str, str] | None
) -> Iterator[tuple[str, str]]:
    text, spans = variant[side] or "", variant[f"{side}_spans"] or []
    replacement, original = variant["replacement"] or "", variant["original"] or ""
    if not _are_spans(spans, len(text)):
        yield f"{side}_spans: at least one [start, end), ascending, inside the text", str(spans)
    elif wrong := {text[start:end] for start, end in spans} - {replacement}:
        yield f"the replacement at {side}_spans", f"{sorted(wrong)}, not {replacement!r}"
    elif seed is not None and (restored := restore(text, spans, original)) != seed[side]:
        yield f"the seed's {side} once the original is put back", repr(restored)


def restore(text: str, spans: Sequence[Sequence[int]], original: str) -> str:
    """Put the original word back at the spans, right to left.

    >>> restore("A boy and a boy.", [[2, 5], [12, 15]], "girl")
    'A girl and a girl.'
    """
    for start, end in reversed(spans):
        text = text[:start] + original + text[end:]
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


def _filled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_list(column.type):
        return pc.fill_null(pc.greater(pc.list_value_length(column), 0), False)
    if pa.types.is_string(column.type):
        return pc.fill_null(pc.not_equal(column, ""), False)
    return pc.is_valid(column)


def _duplicates(where: str, ids: pa.ChunkedArray) -> Iterator[Finding]:
    counted = ids.value_counts()
    for entry in counted.filter(pc.greater(counted.field("counts"), 1)):
        name, times = entry["values"].as_py(), entry["counts"].as_py()
        yield Finding(where, "ids that occur once", f"{name!r} {times} times")


def _rows(
    where: str, expected: str, table: pa.Table, wrong: pa.ChunkedArray, column: str
) -> Iterator[Finding]:
    # A null in `wrong` comes from a missing value, which is a finding of its own.
    for row in table.select(list({column, "variant_id"})).filter(wrong).to_pylist():
        yield Finding(where, expected, f"{row[column]!r} ({row['variant_id']})")
