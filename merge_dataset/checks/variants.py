"""Checks of variants: ids, seeds, labels, signals, and no other difference from the seed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from merge_dataset import provenance
from merge_dataset.checks.rules import (
    CLASS,
    PLACE,
    ROW,
    Finding,
    Rule,
    as_in,
    broken,
    check,
    collision_findings,
    duplicates,
    quoted,
    repeated_texts,
    rows_of,
    seeds_findings,
    told,
    unused_seeds,
    variant_rules,
    view_rows,
    with_seeds,
)
from merge_dataset.dataset_columns import COLUMNS
from merge_dataset.engine import connect
from merge_dataset.layout import PROVENANCE, collections, configurations, format_in, split_files
from merge_dataset.schema import (
    PARAPHRASE,
    SPLITS,
    ProblemFormat,
    arrow_schema,
    parse_config_name,
)
from merge_dataset.show import marked

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@check(provenance.REPLACEMENTS)
def check_replacements(folder: Path, source: str) -> Iterator[Finding]:
    """Find wrong ids, values, labels and signals, and substitutions that cannot be undone."""
    made = provenance.read(folder / source / PROVENANCE)
    problem_format = format_in(folder, source)
    fields, columns = problem_format.fields, arrow_schema(problem_format).names
    sharing = made["config"].get("shared_fields") or provenance.format_of_run(made).fields
    subsamples = made["config"].get("subsamples")
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
            yield from seeds_findings(connection, seeds, source, problem_format)
        with_seeds(connection, "seeds", "all_seeds", columns)
        expected = "every seed among the seeds of all classes"
        listed = Rule(expected, 'NOT "has seed"', ("seed_id",))
        same = as_in("the seeds of all classes", columns)
        yield from broken(connection, "paired", [listed, *same])
        with_seeds(connection, "variants", "seeds", ["label", *fields], CLASS)
        rules = (
            variant_rules(source, problem_format),
            list_rules(subsamples, problem_format),
            signal_rules(problem_format, made),
        )
        yield from broken(connection, "paired", [rule for part in rules for rule in part])
        yield from unused_seeds(connection, "seeds", "variants", CLASS)
        yield from unused_seeds(connection, "all_seeds", "seeds")
        yield from substitution_findings(connection, problem_format, sharing)
        if "in_compound" in problem_format.optional:
            yield from compound_findings(connection)
        yield from collision_findings(connection, "all_seeds", fields)
        where = f"{source}/*/variants.parquet"
        yield from duplicates(connection, "variants", "variant_id", f"'{where}'")
        for first, other in repeated_texts(connection, "all_seeds", fields, of_one_seed=True):
            yield Finding(where, "texts that stand in one variant", f"{first} and {other}")


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
        text, spans = quoted(field), f"{field}_spans"
        start, end = f"{spans}[1][1]", f"{spans}[1][2]"
        right.append(
            f"len({spans}) = 1 AND len({spans}[1]) = 2 AND {start} >= 0 AND {start} < {end} AND "
            f"substring({text}, {start} + 1, {end} - {start}) = replacement AND "
            f"concat(left({text}, {start}), original, substring({text}, {end} + 1)) = "
            f"{quoted(f'seed {field}')}"
        )
    columns = ["variant_id", "original", "replacement", "has seed"]
    columns += [name for f in problem_format.fields for name in (f, f"{f}_spans", f"seed {f}")]
    query = (
        f"SELECT {PLACE}, {quoted(*columns)} FROM paired "
        f"WHERE NOT coalesce({' AND '.join(right)}, false) ORDER BY {ROW}"
    )
    for place, *values in rows_of(connection, query):
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


def list_rules(subsamples: int | None, problem_format: ProblemFormat) -> Iterator[Rule]:
    """Yield rules for masked LMs, changes of likelihood and subsamples of variants."""
    named = f"flatten([{', '.join(f'coalesce({name}, [])' for name in problem_format.mlms)}])"
    union = f"list_sort(list_distinct({named}))"
    wrong = f"mlms IS DISTINCT FROM {union} OR len({named}) != list_count({named})"
    lists = " and ".join(problem_format.mlms)
    yield Rule(f"mlms to be the sorted union of {lists}", wrong, ("mlms",))
    wrong = f"mlm_count IS DISTINCT FROM len({union})"
    yield Rule("mlm_count to be the number of mlms", wrong, ("mlm_count",))
    changes = problem_format.pll_changes
    known = " OR ".join(f"{change} IS NOT NULL" for change in changes)
    texts = zip(changes, problem_format.spans, strict=True)
    fitting = (
        f"({change} IS NOT NULL) = (len(coalesce({spans}, [])) > 0)" for change, spans in texts
    )
    expected = f"{' and '.join(changes)} where the word stands, or neither"
    values = ", ".join(f"{{{number}}}" for number in range(len(changes)))
    wrong = f"({known}) AND NOT ({' AND '.join(fitting)})"
    yield Rule(expected, wrong, changes, f"{values} ({{{len(changes)}}})")
    below = "" if subsamples is None else f" AND subsamples[-1] < {subsamples}"
    ascending = "subsamples = list_sort(list_distinct(subsamples)) AND subsamples[1] >= 0"
    limit = "from 0" if subsamples is None else f"in 0..{subsamples - 1}"
    expected = f"subsamples: at least one number {limit}, ascending, each once"
    yield Rule(expected, f"NOT coalesce({ascending}{below}, false)", ("subsamples",))


# --- Signals ---


def compound_findings(connection: DuckDBPyConnection) -> Iterator[Finding]:
    """Find words with different values of `in_compound`, which depends on the seed alone."""
    query = (
        f"SELECT {PLACE}, max(variant_id) FROM variants GROUP BY {PLACE}, seed_id, original "
        f"HAVING count(DISTINCT coalesce(in_compound::TINYINT, -1)) > 1 ORDER BY min({ROW})"
    )
    expected = "the same in_compound in all variants of one word of a seed"
    return told(connection, expected, query, "two ({0})")


def signal_rules(problem_format: ProblemFormat, made: Mapping[str, Any]) -> Iterator[Rule]:
    """Yield rules for impossible signals, given the settings of the build."""
    if "common_mlm_count" in problem_format.optional:
        # Masked LMs that validated the word in every text that has it. With families, other
        # forms may be in texts that do not have the word.
        texts = list(zip(problem_format.spans, problem_format.mlms, strict=True))
        lists = ", ".join(f"coalesce({mlms}, [])" for _, mlms in texts)
        everywhere = " AND ".join(
            f"(len(coalesce({spans}, [])) = 0 OR list_contains(coalesce({mlms}, []), name))"
            for spans, mlms in texts
        )
        stands = " OR ".join(f"len({spans}) > 0" for spans, _ in texts)
        count = f"len(list_filter(list_distinct(flatten([{lists}])), lambda name: {everywhere}))"
        wrong = f"common_mlm_count != CASE WHEN {stands} THEN {count} ELSE 0 END"
        wrong = f"NOT contains(coalesce(original, ''), ' ') AND {wrong}"
        expected = "common_mlm_count to be the masked LMs of every text"
        yield Rule(expected, wrong, ("common_mlm_count",))
    config, columns = made["config"], {"log_odds", *problem_format.signals}
    changes = problem_format.pll_changes
    for column in COLUMNS:
        limit = config.get(column.limit)
        for name in column.names(problem_format.fields):
            if name not in columns or limit is None or limit is False:
                continue
            if column.refused is None:
                # In the column's type: 3.1 as float32 is less than 3.1 as float64.
                least = str(limit) if column.kind == "count" else f"'{limit}'::DOUBLE::FLOAT"
                expected, wrong = f"of {limit} at least", f"{name} < {least}"
            else:
                expected, wrong = f"not to be {column.refused}", f"{name} = {column.refused}"
            yield Rule(f"{name} {expected}, as {column.limit} says", wrong, (name,))
    for name in ("zipf_frequency", "quality", *changes):
        if name in columns:
            # As text: DuckDB skips row groups by bounds, which in Parquet do not include NaN.
            wrong = f"{name}::VARCHAR IN ('nan', 'inf', '-inf')"
            yield Rule(f"{name} to be a number", wrong, (name,))
    if "quality" in columns:
        wrong = "quality < 0 OR (quality > 1 AND quality::VARCHAR != 'nan')"
        yield Rule("quality from 0 to 1", wrong, ("quality",))


# --- Paraphrases ---


@check(provenance.PARAPHRASES)
def check_paraphrases(folder: Path, collection: str) -> Iterator[Finding]:
    """Find wrong ids, values and labels, and differences from the seed beside the hypothesis."""
    source, _ = parse_config_name(collection)
    problem_format, files = format_in(folder, collection), split_files(folder, collection)
    fields = problem_format.fields
    with connect() as connection:
        for split in SPLITS:
            view_rows(connection, split, folder, {PARAPHRASE: files[split]})
        yield from seeds_findings(connection, "seeds", source, problem_format)
        yield from unused_seeds(connection, "seeds", "variants")
        compared_with = ("label", "premise", "hypothesis", "annotator_labels")
        with_seeds(connection, "variants", "seeds", compared_with)
        rules = variant_rules(source, problem_format), _paraphrase_rules(problem_format)
        yield from broken(connection, "paired", [rule for part in rules for rule in part])
        yield from duplicates(connection, "variants", "variant_id")
        yield from collision_findings(connection, "seeds", fields)
        query = (
            f"SELECT {PLACE}, hypothesis, count(*) AS times, seed_id FROM variants GROUP BY "
            f"{PLACE}, seed_id, hypothesis HAVING times > 1 ORDER BY min({ROW})"
        )
        expected, got = "each paraphrase of a seed once", "{0!r} {1} times ({2})"
        yield from told(connection, expected, query, got)
        for first, other in repeated_texts(connection, "seeds", fields, of_one_seed=False):
            where = ", ".join(files["variants"])
            yield Finding(where, "texts that stand in one variant", f"{first} and {other}")
        # A seed must be equal in both collections of its source.
        others = split_files(folder, source)["seeds"] if source in collections(folder) else []
        if others:
            view_rows(connection, "other_seeds", folder, {"": others})
            shared = ("premise", "hypothesis", "label")
            with_seeds(connection, "seeds", "other_seeds", shared)
            yield from broken(connection, "paired", as_in(f"{source}/seeds.parquet", shared))


def _paraphrase_rules(problem_format: ProblemFormat) -> Iterator[Rule]:
    of_rows = [
        # All characters that are spaces in Unicode.
        ("a hypothesis with words in it", "hypothesis",
         r"NOT regexp_matches(hypothesis, '[^\s\pZ\x{0b}\x{1c}-\x{1f}\x{85}]')"),
        ("the seed's premise", "premise",
         '"has seed" AND premise IS DISTINCT FROM "seed premise"'),
        ("another hypothesis than the seed's", "hypothesis", 'hypothesis = "seed hypothesis"'),
        ("original to be the seed's hypothesis", "original",
         '"has seed" AND original IS DISTINCT FROM "seed hypothesis"'),
        ("replacement to be the hypothesis", "replacement",
         "replacement IS DISTINCT FROM hypothesis"),
        ("the annotator_labels of the seed", "annotator_labels",
         '"has seed" AND '
         'coalesce(annotator_labels, []) != coalesce("seed annotator_labels", [])'),
        *((f"{name} to be empty in paraphrases", name, f"len({name}) > 0")
          for name in ("premise_spans", "mlms", "premise_mlms", "hypothesis_mlms")),
        *((f"{name} to be null in paraphrases", name, f"{name} IS NOT NULL")
          for name in ("log_odds", *problem_format.signals)),
        ("subsamples to be [0] in paraphrases", "subsamples", "subsamples IS DISTINCT FROM [0]"),
    ]  # fmt: skip
    for expected, name, wrong in of_rows:
        yield Rule(expected, f"hypothesis IS NOT NULL AND ({wrong})", (name,))
    whole = "[[0, length(hypothesis)]]"
    wrong = f"hypothesis IS NOT NULL AND hypothesis_spans IS DISTINCT FROM {whole}"
    expected = "hypothesis_spans to cover the whole hypothesis"
    yield Rule(expected, wrong, ("hypothesis_spans", whole), "{0}, not {1} ({2})")
    own = f"'/{PARAPHRASE}/' || sha256(hypothesis)[:12]"  # made as in `variant_id`
    expected = "variant_id to be the seed's, the class and a digest of the hypothesis"
    yield Rule(expected, f"variant_id != seed_id || {own}", (own,), "other than {0} ({1})")
