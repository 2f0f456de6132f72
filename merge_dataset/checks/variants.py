"""Checks of variants: ids, seeds, labels, signals, and no other difference from the seed."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from duckdb import DuckDBPyConnection

from merge_dataset import provenance
from merge_dataset.checks.rules import (
    CLASS,
    PLACE,
    ROW,
    Finding,
    as_in,
    broken,
    check,
    fetched,
    identifiers,
    rules_of,
    told,
    view_rows,
    with_seeds,
)
from merge_dataset.engine import connect
from merge_dataset.layout import PROVENANCE, collections, configurations, format_in, split_files
from merge_dataset.schema import PARAPHRASE, SPLITS, ProblemFormat, arrow_schema, parse_config_name
from merge_dataset.show import marked


@check(provenance.REPLACEMENTS)
def check_replacements(folder: Path, source: str) -> Iterator[Finding]:
    """Find wrong ids, values, labels and signals, and substitutions that cannot be undone."""
    made = provenance.read(folder / source / PROVENANCE)
    problem_format = format_in(folder, source)
    fields, columns = problem_format.fields, arrow_schema(problem_format).names
    sharing = made["config"].get("shared_fields") or provenance.format_of_run(made).fields
    rules = rules_of(source, problem_format, made["config"])
    files = {
        parse_config_name(name)[1]: split_files(folder, name)
        for name in configurations(folder, source)
    }
    of_all = files.pop(None)["seeds"]
    with connect() as connection:
        view_rows(connection, "all_seeds", folder, {"": of_all})
        for split in SPLITS:
            of_split = {str(word_class): own[split] for word_class, own in files.items()}
            view_rows(connection, split, folder, of_split)
        for seeds in ("all_seeds", "seeds"):
            yield from broken(connection, seeds, rules["seeds"])
            for query in rules[f"of_{seeds}"]:
                yield from told(connection, **query)
        with_seeds(connection, "seeds", "all_seeds", columns)
        all_classes = "the seeds of all classes"
        listed = {
            "expected": f"every seed among {all_classes}",
            "wrong": 'NOT "has seed"',
            "shown": "seed_id",
        }
        yield from broken(connection, "paired", [listed, *as_in(all_classes, columns)])
        with_seeds(connection, "variants", "seeds", ["label", *fields], CLASS)
        of_variants = chain(*map(rules.__getitem__, ("variants", "lists", "signals")))
        yield from broken(connection, "paired", of_variants)
        yield from substitution_findings(connection, problem_format, sharing)
        for query in rules["of_replacements"]:
            yield from told(connection, **query)


# --- Substitutions ---


def substitution_findings(
    connection: DuckDBPyConnection, problem_format: ProblemFormat, sharing: Collection[str]
) -> Iterator[Finding]:
    """Find variants in `paired` that are not their seeds once the originals are put back.

    Only texts in `sharing` must have the word. The engine passes over right variants with one word
    at one place in each text; Python looks at the others.
    """
    right = ["NOT contains(original, ' ')", "NOT contains(replacement, ' ')"]
    for field in problem_format.fields:
        text, spans = identifiers(field), f"{field}_spans"
        start, end = f"{spans}[1][1]", f"{spans}[1][2]"
        right.append(
            f"len({spans}) = 1 AND len({spans}[1]) = 2 AND {start} >= 0 AND {start} < {end} AND "
            f"substring({text}, {start} + 1, {end} - {start}) = replacement AND "
            f"concat(left({text}, {start}), original, substring({text}, {end} + 1)) = "
            f"{identifiers(f'seed {field}')}"
        )
    columns = ["variant_id", "original", "replacement", "has seed"]
    columns += [name for f in problem_format.fields for name in (f, f"{f}_spans", f"seed {f}")]
    query = (
        f"SELECT {PLACE}, {identifiers(*columns)} FROM paired "
        f"WHERE NOT coalesce({' AND '.join(right)}, false) ORDER BY {ROW}"
    )
    for place, *values in fetched(connection, query):
        row = dict(zip(columns, values, strict=True))
        for expected, got in _wrong_in(row, problem_format.fields, sharing):
            yield Finding(place, expected, f"{got} ({row['variant_id']})")


def _wrong_in(
    row: Mapping[str, Any], fields: Iterable[str], sharing: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong in a variant beside its seed: what was expected, and what came."""
    old, new = ((row[name] or "").split(" ") for name in ("original", "replacement"))
    becomes, used = dict(zip(new, old, strict=False)), set[str]()
    if not len(old) == len(new) == len(becomes):
        both = f"{row['original']!r} and {row['replacement']!r}"
        yield "another word in replacement for each in original", both
        return
    for field in fields:
        text, spans = row[field] or "", row[f"{field}_spans"] or []
        offsets = [0, *(offset for span in spans for offset in span or ()), len(text)]
        if (
            (not spans and field in sharing)
            or any(not span or len(span) != 2 or None in span for span in spans)
            or offsets != sorted(offsets)
            or any(start == end for start, end in spans)
        ):
            expected = "at least one [start, end), ascending, inside the text"
            yield f"{field}_spans: {expected}", f"{spans}"
            continue
        words = [text[start:end] for start, end in spans]
        used.update(words)
        if not becomes.keys() >= {*words}:
            yield f"the replacement at {field}_spans", f"{words} instead of {new}"
            continue
        restored = marked(text, spans, becomes.__getitem__)
        if row["has seed"] and restored != row[f"seed {field}"]:
            yield f"the seed's {field} once the original is put back", repr(restored)
    if len(new) > 1 and any(a == b for a, b in becomes.items()):
        both = f"{row['original']} and {row['replacement']}"
        yield "original and replacement to differ in each word", both
    if len(new) > 1 and not used.issuperset(new):
        yield "every word of replacement at some span", repr(row["replacement"])


# --- Paraphrases ---


@check(provenance.PARAPHRASES)
def check_paraphrases(folder: Path, collection: str) -> Iterator[Finding]:
    """Find wrong ids, values and labels, and differences from the seed beside the hypothesis."""
    source, _ = parse_config_name(collection)
    problem_format, files = format_in(folder, collection), split_files(folder, collection)
    rules = rules_of(source, problem_format, {})
    with connect() as connection:
        for split in SPLITS:
            view_rows(connection, split, folder, {PARAPHRASE: files[split]})
        yield from broken(connection, "seeds", rules["seeds"])
        compared_with = ("label", "premise", "hypothesis", "annotator_labels")
        with_seeds(connection, "variants", "seeds", compared_with)
        of_variants = [*rules["variants"], *rules["paraphrases"]]
        yield from broken(connection, "paired", of_variants)
        for query in (*rules["of_seeds"], *rules["of_paraphrases"]):
            yield from told(connection, **query)
        # A seed must be equal in both collections of its source.
        others = split_files(folder, source)["seeds"] if source in collections(folder) else []
        if others:
            view_rows(connection, "other_seeds", folder, {"": others})
            shared = ("premise", "hypothesis", "label")
            with_seeds(connection, "seeds", "other_seeds", shared)
            yield from broken(connection, "paired", as_in(f"{source}/seeds.parquet", shared))
