"""Checks of variants: ids, seeds, labels, signals, and no other difference from the seed."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from merge_dataset import provenance
from merge_dataset.checks.rules import (
    ROW,
    Finding,
    Rows,
    Rule,
    check,
    collision_findings,
    quoted,
    repeated_texts,
    seeds_findings,
    unused_rule,
    variant_rules,
    view_rows,
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


@check(
    "replacements",
    looks_at="ids, values, labels, signals, and that each substitution can be undone",
    kind=provenance.REPLACEMENTS,
)
def check_replacements(folder: Path, source: str) -> Iterator[Finding]:
    """Find errors in the rows of a source's replacements, whose columns are right."""
    made = provenance.read(folder / source / PROVENANCE)
    problem_format = format_in(folder, source)
    fields, columns = problem_format.fields, arrow_schema(problem_format).names
    sharing = made["config"].get("shared_fields") or provenance.format_of_run(made).fields
    subsamples = made["config"].get("subsamples")
    name_of_all, *names = configurations(folder, source)
    rows: dict[tuple[str, str], Rows] = {}
    with connect() as connection:
        for name in (name_of_all, *names):
            for split, files in split_files(folder, name).items():
                rows[name, split] = view_rows(connection, f"{name} {split}", folder, files)
        all_seeds = rows[name_of_all, "seeds"]
        yield from seeds_findings(all_seeds, source, problem_format)
        for name in names:
            seeds, variants = (rows[name, split] for split in SPLITS)
            yield from seeds_findings(seeds, source, problem_format)
            listed = seeds.with_seeds(all_seeds, columns)
            expected = "every seed among the seeds of all classes"
            absent = list(listed.broken([Rule(expected, 'NOT "has seed"', ("seed_id",))]))
            yield from absent or listed.broken(_as_in("the seeds of all classes", columns))
            paired = variants.with_seeds(seeds, ["label", *fields])
            yield from paired.broken(variant_rules(name, problem_format))
            yield from seeds.broken([unused_rule(variants.name)])
            worded = with_words(paired, fields, sharing)
            yield from worded.broken(substitution_rules(subsamples, problem_format))
            yield from signal_findings(variants, problem_format, made)
        every = replace(rows[name_of_all, "variants"], where=f"{source}/*/variants.parquet")
        used = " UNION ALL ".join(
            f"SELECT seed_id FROM {rows[name, 'seeds'].name}" for name in names
        )
        yield from all_seeds.broken([unused_rule(f"({used})")])
        for name in names:
            yield from collision_findings(rows[name, "variants"], all_seeds, fields)
        yield from every.duplicates("variant_id")
        for first, other in repeated_texts(every, all_seeds, fields):
            yield Finding(every.where, "texts that stand in one variant", f"{first} and {other}")


def _as_in(where: str, columns: Sequence[str]) -> Iterator[Rule]:
    """Yield rules for a view with seeds that require equal values in some columns."""
    for name in columns:
        yield Rule(
            f"{name} as in {where}",
            f'"{name}" IS DISTINCT FROM "seed {name}"',
            (name, f"seed {name}", "seed_id"),
            "{0!r} instead of {1!r} ({2})",
        )


def with_words(paired: Rows, fields: Sequence[str], sharing: Collection[str]) -> Rows:
    """Make the view `worded`: variants with words, spans, and texts with the words put back.

    Only fields in `sharing` must have the word.
    """
    split = "string_split(coalesce({0}, ''), ' ') AS \"{1} words\"".format
    steps = [[split("original", "old"), split("replacement", "new")], [], []]
    for field in fields:
        text = f"coalesce({quoted(field)}, '')"
        spans, words, between = (f'"{field} {part}"' for part in ("spans", "words", "between"))
        flat, absent = f"flatten({spans})", "false" if field in sharing else f"len({spans}) = 0"
        steps[0].append(f"coalesce({field}_spans, []) AS {spans}")
        steps[1] += [
            f"list_transform({spans}, lambda s: substring({text}, s[1] + 1, s[2] - s[1])) "
            f"AS {words}",
            f"list_transform(range(len({spans}) + 1), lambda i: substring({text}, "
            f"coalesce({spans}[i][2], 0) + 1, coalesce({spans}[i + 1][1], length({text})) - "
            f"coalesce({spans}[i][2], 0))) AS {between}",
            f"{absent} OR coalesce(len({spans}) > 0 AND list_sort({flat}) = {flat} AND "
            f"len(list_filter({spans}, lambda s: len(s) = 2 AND s[1] < s[2])) = len({spans}) AND "
            f'{flat}[1] >= 0 AND {flat}[-1] <= length({text}), false) AS "{field} placed"',
        ]
        originals = f'"old words"[list_position("new words", {words}[i])]'
        steps[2].append(
            f'CASE WHEN len("new words") = 1 THEN list_reduce({between}, lambda a, b: concat(a, '
            f"original, b)) ELSE list_reduce(list_transform({between}, lambda t, i: concat(t, "
            f'{originals})), lambda a, b: concat(a, b)) END AS "{field} restored"'
        )
    relation = paired.name
    for columns in steps:  # one after the other, as DuckDB makes an alias anew where it is used
        relation = f"(SELECT *, {', '.join(columns)} FROM {relation})"
    paired.connection.execute(f"CREATE OR REPLACE VIEW worded AS FROM {relation}")
    return replace(paired, name="worded")


def substitution_rules(subsamples: int | None, problem_format: ProblemFormat) -> Iterator[Rule]:
    """Yield rules for `worded`: that each substitution can be undone, masked LMs, subsamples."""
    old, new, both = '"old words"', '"new words"', ("original", "replacement")
    is_paired = f"len({old}) = len({new}) AND len(list_distinct({new})) = len({new})"
    expected = "another word in replacement for each in original"
    yield Rule(expected, f"NOT ({is_paired})", both, "{0!r} and {1!r} ({2})")
    for field in problem_format.fields:
        expected = f"{field}_spans: at least one [start, end), ascending, inside the text"
        wrong = f'{is_paired} AND NOT "{field} placed"'
        yield Rule(expected, wrong, (f"{field} spans",))
        known, shown = f'list_has_all({new}, "{field} words")', (f"{field} words", "new words")
        right, expected = f'{is_paired} AND "{field} placed"', f"the replacement at {field}_spans"
        yield Rule(expected, f"{right} AND NOT {known}", shown, "{0} instead of {1} ({2})")
        wrong = f'"has seed" AND "{field} restored" IS DISTINCT FROM "seed {field}"'
        expected = f"the seed's {field} once the original is put back"
        yield Rule(expected, f"{right} AND {known} AND {wrong}", (f"{field} restored",))
    several = f"{is_paired} AND len({new}) > 1 AND len"
    same = f"{several}(list_filter({new}, lambda w, i: w = {old}[i])) > 0"
    yield Rule("original and replacement to differ in each word", same, both, "{0} and {1} ({2})")
    stands = f"flatten([{quoted(*(f'{field} words' for field in problem_format.fields))}])"
    unused = f"{several}(list_filter({new}, lambda w: NOT list_contains({stands}, w))) > 0"
    yield Rule("every word of replacement at some span", unused, ("replacement",))
    named = f"flatten([{', '.join(f'coalesce({name}, [])' for name in problem_format.mlms)}])"
    union, nameless = f"list_sort(list_distinct({named}))", "lambda name: name IS NULL"
    wrong = f"mlms IS DISTINCT FROM {union} OR len(list_filter({named}, {nameless})) > 0"
    lists = " and ".join(problem_format.mlms)
    yield Rule(f"mlms to be the sorted union of {lists}", wrong, ("mlms",))
    wrong = f"mlm_count IS DISTINCT FROM len({union})"
    yield Rule("mlm_count to be the number of mlms", wrong, ("mlm_count",))
    changes = problem_format.pll_changes
    known = " OR ".join(f"{change} IS NOT NULL" for change in changes)
    texts = zip(changes, problem_format.fields, strict=True)
    fitting = (f'({change} IS NOT NULL) = (len("{field} spans") > 0)' for change, field in texts)
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


def signal_findings(
    variants: Rows, problem_format: ProblemFormat, made: Mapping[str, Any]
) -> Iterator[Finding]:
    """Find impossible signals in the variants of a class."""
    yield from variants.broken(_signal_rules(problem_format, made))
    if "in_compound" in problem_format.optional:  # depends on the seed and its words
        query = (
            f"SELECT max(variant_id) FROM {variants.name} GROUP BY seed_id, original "
            f"HAVING count(DISTINCT coalesce(in_compound::TINYINT, -1)) > 1 ORDER BY min({ROW})"
        )
        expected = "the same in_compound in all variants of one word of a seed"
        yield from variants.told(expected, query, "two ({0})")


def _signal_rules(problem_format: ProblemFormat, made: Mapping[str, Any]) -> Iterator[Rule]:
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
        yield Rule(
            "common_mlm_count to be the masked LMs of every text", wrong, ("common_mlm_count",)
        )
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


@check(
    "paraphrases",
    looks_at="ids, values, labels, and that nothing but the hypothesis differs from the seed",
    kind=provenance.PARAPHRASES,
)
def check_paraphrases(folder: Path, collection: str) -> Iterator[Finding]:
    """Find errors in the rows of a source's paraphrases, whose columns are right."""
    source, _ = parse_config_name(collection)
    problem_format, files = format_in(folder, collection), split_files(folder, collection)
    fields = problem_format.fields
    with connect() as connection:
        seeds, variants = (view_rows(connection, split, folder, files[split]) for split in SPLITS)
        yield from seeds_findings(seeds, source, problem_format)
        yield from seeds.broken([unused_rule(variants.name)])
        compared_with = ("label", "premise", "hypothesis", "annotator_labels")
        paired = variants.with_seeds(seeds, compared_with)
        yield from paired.broken(variant_rules(collection, problem_format))
        yield from variants.duplicates("variant_id")
        yield from collision_findings(variants, seeds, fields)
        query = (
            "SELECT hypothesis, count(*) AS times, seed_id FROM variants GROUP BY seed_id, "
            f"hypothesis HAVING times > 1 ORDER BY min({ROW})"
        )
        expected, got = "each paraphrase of a seed once", "{0!r} {1} times ({2})"
        yield from variants.told(expected, query, got)
        for first, other in repeated_texts(variants, seeds, fields, of_one_seed=False):
            yield Finding(variants.where, "texts that stand in one variant", f"{first} and {other}")
        yield from paired.broken(_paraphrase_rules(problem_format))
        query = (
            "SELECT hypothesis_spans, length(hypothesis), variant_id FROM variants "
            "WHERE hypothesis_spans IS DISTINCT FROM [[0, length(hypothesis)]] "
            f"AND hypothesis IS NOT NULL ORDER BY {ROW}"
        )
        expected = "hypothesis_spans to cover the whole hypothesis"
        yield from variants.told(expected, query, "{0}, not [[0, {1}]] ({2})")
        query = (  # made as in `variant_id`
            f"SELECT '/{PARAPHRASE}/' || sha256(hypothesis)[:12] AS rest, variant_id FROM variants "
            f"WHERE variant_id != seed_id || rest ORDER BY {ROW}"
        )
        expected = "variant_id to be the seed's, the class and a digest of the hypothesis"
        yield from variants.told(expected, query, "other than {0} ({1})")
        # A seed must be equal in both collections of its source.
        others = split_files(folder, source)["seeds"] if source in collections(folder) else []
        for number, file in enumerate(others):
            other_seeds = view_rows(connection, f"other_{number}", folder, [file])
            shared = ("premise", "hypothesis", "label")
            compared = seeds.with_seeds(other_seeds, shared)
            both = replace(compared, name=f'(FROM {compared.name} WHERE "has seed")')
            yield from both.broken(_as_in(file, shared))


def _paraphrase_rules(problem_format: ProblemFormat) -> Iterator[Rule]:
    of_seeds = (
        ("the seed's premise", "premise", 'premise IS DISTINCT FROM "seed premise"'),
        ("another hypothesis than the seed's", "hypothesis", 'hypothesis = "seed hypothesis"'),
        ("original to be the seed's hypothesis", "original",
         'original IS DISTINCT FROM "seed hypothesis"'),
        ("the annotator_labels of the seed", "annotator_labels",
         'coalesce(annotator_labels, []) != coalesce("seed annotator_labels", [])'),
    )  # fmt: skip
    of_rows = [
        # All characters that are spaces in Unicode.
        ("a hypothesis with words in it", "hypothesis",
         r"NOT regexp_matches(hypothesis, '[^\s\pZ\x{0b}\x{1c}-\x{1f}\x{85}]')"),
        ("replacement to be the hypothesis", "replacement",
         "replacement IS DISTINCT FROM hypothesis"),
        *((f"{name} to be empty in paraphrases", name, f"len({name}) > 0")
          for name in ("premise_spans", "mlms", "premise_mlms", "hypothesis_mlms")),
        *((f"{name} to be null in paraphrases", name, f"{name} IS NOT NULL")
          for name in ("log_odds", *problem_format.signals)),
        ("subsamples to be [0] in paraphrases", "subsamples", "subsamples IS DISTINCT FROM [0]"),
    ]  # fmt: skip
    for expected, name, wrong in of_rows:
        yield Rule(expected, f"hypothesis IS NOT NULL AND ({wrong})", (name,))
    for expected, name, wrong in of_seeds:
        yield Rule(expected, f'hypothesis IS NOT NULL AND "has seed" AND ({wrong})', (name,))
