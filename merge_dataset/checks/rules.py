"""Registry of checks, their findings, and rules for rows.

Most checks are rules: conditions in SQL that hold in wrong rows. One query counts the rows of all
rules; wrong rows are then read again for the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from merge_dataset.engine import parquet
from merge_dataset.schema import (
    PARAPHRASE,
    ProblemFormat,
    arrow_schema,
    parse_config_name,
    patterns_of,
    replacement_columns,
)

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class Finding:
    """One deviation from the expected state."""

    where: str
    """A file or configuration, relative to the dataset folder."""
    expected: str
    """Expectation, in the same words for all findings of a kind."""
    got: str
    """Value found, with the row's id."""


class Stage(IntEnum):
    """The time at which a check runs."""

    STRUCTURE = 0
    """First stage: files and columns."""
    ALWAYS = 1
    """Second stage, regardless of findings so far."""
    CONTENTS = 2
    """Third stage, if the structure is right: rows and card."""
    BYTES = 3
    """Last stage, if there are no other findings."""


Find = TypeVar("Find", bound=Callable[..., Iterator[Finding]])
"""Function from a folder (for checks with a kind, also a collection's name) to findings."""


@dataclass(frozen=True, slots=True)
class Check:
    """A registered check."""

    looks_at: str
    stage: Stage
    kind: str | None
    """Kind of collections whose rows it checks one by one; None for the whole folder."""
    find: Callable[..., Iterator[Finding]]


CHECKS: Final[dict[str, Check]] = {}


def check(
    name: str, *, looks_at: str, stage: Stage = Stage.CONTENTS, kind: str | None = None
) -> Callable[[Find], Find]:
    """Register a check; see `Check`."""

    def register(find: Find) -> Find:
        CHECKS[name] = Check(looks_at, stage, kind, find)
        return find

    return register


def summarise(findings: Iterable[Finding]) -> list[str]:
    """Write one line per place and kind of finding, in order, with a few examples and the count.

    >>> summarise([Finding("seeds", "unique ids", f"{n} twice") for n in range(5)])
    ['seeds: expected unique ids; got 0 twice; 1 twice; 2 twice; and 2 more']
    """
    examples: dict[tuple[str, str], list[str]] = {}
    counts: dict[tuple[str, str], int] = {}
    for finding in findings:
        kind = finding.where, finding.expected
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= 3:
            examples.setdefault(kind, []).append(finding.got)
    lines = []
    for (where, expected), got in examples.items():
        more = counts[where, expected] - len(got)
        tail = [f"and {more:,} more"] if more else []
        lines.append(f"{where}: expected {expected}; got {'; '.join(got + tail)}")
    return lines


ROW: Final = '"row number"'
"""Name of the column that numbers the rows of a view in the order of its files."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition that holds in wrong rows, and the text of a finding."""

    expected: str
    wrong: str
    """Condition in SQL; null counts as right, as missing values are separate findings."""
    columns: tuple[str, ...]
    """Columns whose values a finding shows, beside the variant's id."""
    got: str = "{0!r} ({1})"
    """Template of the values found, with the columns and the id."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a dataset folder, as a relation of the table engine with a column `ROW`."""

    connection: duckdb.DuckDBPyConnection
    name: str
    """Name of a view, or a query in parentheses."""
    where: str
    """Name of their files in findings."""

    def fetched(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query; other queries may run meanwhile."""
        with self.connection.cursor() as cursor:
            cursor.execute(query)
            while rows := cursor.fetchmany(10_000):
                yield from rows

    def told(self, expected: str, query: str, got: str) -> Iterator[Finding]:
        """Yield a finding for each row of a query; `got` is a template of its values."""
        for row in self.fetched(query):
            yield Finding(self.where, expected, got.format(*row))

    def broken(self, rules: Iterable[Rule]) -> Iterator[Finding]:
        """Find the rows that break rules."""
        rules = list(rules)
        counts = ", ".join(f"count(*) FILTER ({rule.wrong})" for rule in rules)
        [counted] = self.fetched(f"SELECT {counts} FROM {self.name}")
        for rule, count in zip(rules, counted, strict=True):
            if count:
                columns = quoted(*rule.columns, "variant_id")
                query = f"SELECT {columns} FROM {self.name} WHERE {rule.wrong} ORDER BY {ROW}"
                yield from self.told(rule.expected, query, rule.got)

    def duplicates(self, column: str) -> Iterator[Finding]:
        """Find ids that occur more than once."""
        query = (
            f"SELECT {column}, count(*) FROM {self.name} GROUP BY 1 HAVING count(*) > 1 "
            f"ORDER BY min({ROW})"
        )
        return self.told("ids that occur once", query, "{0!r} {1} times")

    def with_seeds(self, seeds: Rows, columns: Sequence[str]) -> Rows:
        """Make the view `paired`: rows with their seeds' columns, `"seed …"`, and `"has seed"`."""
        of_seed = ", ".join(f'seeds."{column}" AS "seed {column}"' for column in columns)
        self.connection.execute(
            "CREATE OR REPLACE VIEW paired AS "
            f'SELECT rows.*, seeds.seed_id IS NOT NULL AS "has seed", {of_seed} '
            f"FROM {self.name} AS rows LEFT JOIN (SELECT * FROM {seeds.name} "
            f"QUALIFY row_number() OVER (PARTITION BY seed_id ORDER BY {ROW}) = 1"
            ") AS seeds ON seeds.seed_id = rows.seed_id"
        )
        return replace(self, name="paired")


def view_rows(
    connection: duckdb.DuckDBPyConnection, name: str, folder: Path, files: Sequence[str]
) -> Rows:
    """Make a view of the rows of some files."""
    connection.execute(
        f'CREATE VIEW "{name}" AS '
        f"SELECT *, (file_index::BIGINT << 40) + file_row_number AS {ROW} "
        f"FROM {parquet(folder / file for file in files)}"
    )
    return Rows(connection, f'"{name}"', ", ".join(patterns_of(files)))


def quoted(*names: str) -> str:
    """Quote names of columns for SQL, as they may be keywords."""
    return ", ".join(f'"{name}"' for name in names)


def seeds_findings(seeds: Rows, source: str, problem_format: ProblemFormat) -> Iterator[Finding]:
    """Check the split `seeds`: values, ids, and that nothing is replaced."""
    yield from seeds.broken(_value_rules(source, problem_format))
    yield from seeds.duplicates("seed_id")
    rules = [Rule("variant_id to equal seed_id in seeds", "variant_id != seed_id", ("variant_id",))]
    for name in replacement_columns(problem_format):
        kind, column = arrow_schema(problem_format).field(name).type, quoted(name)
        is_filled = f"{column} IS NOT NULL"
        if pa.types.is_list(kind):
            is_filled = f"len({column}) > 0"
        elif pa.types.is_string(kind):
            is_filled = f"{column} != ''"
        rules.append(Rule(f"{name} to be empty in seeds", is_filled, (name,)))
    yield from seeds.broken(rules)


def variant_rules(config: str, problem_format: ProblemFormat) -> Iterator[Rule]:
    """Yield rules for a view of variants with their seeds' labels: values, class, seed, label."""
    source, variant_class = parse_config_name(config)
    filled = ("word_class", "original", "replacement")
    yield from _value_rules(source, problem_format, filled)
    wrong = f"word_class != '{variant_class}'"
    yield Rule(f"word_class to be {variant_class!r}", wrong, ("word_class",))
    yield Rule("the seed of every variant in the seeds split", 'NOT "has seed"', ("seed_id",))
    yield Rule("the label of the seed", 'label != "seed label"', ("label",))
    if variant_class != PARAPHRASE:
        expected = "original and replacement to differ"
        yield Rule(expected, "original = replacement", ("replacement",))


def _value_rules(
    source: str, problem_format: ProblemFormat, filled: Sequence[str] = ()
) -> Iterator[Rule]:
    for name in ("variant_id", "seed_id", "source", *problem_format.fields, "label", *filled):
        yield Rule(f"a value for {name}", f'"{name}" IS NULL', (name,))
    yield Rule(f"the source {source!r}", f"source != '{source}'", ("source",))
    count = len(problem_format.labels)
    yield Rule(f"a label of 0 to {count - 1}", f"label < 0 OR label >= {count}", ("label",))


def unused_rule(used: str) -> Rule:
    """Make a rule for seeds: each must have variants in a relation."""
    wrong = f"seed_id NOT IN (SELECT seed_id FROM {used} WHERE seed_id IS NOT NULL)"
    return Rule("every seed to have variants", wrong, ("seed_id",))


def collision_findings(variants: Rows, seeds: Rows, fields: Sequence[str]) -> Iterator[Finding]:
    """Find variants with a seed's id or texts, as models' answers would be ambiguous."""
    wrong = f"variant_id IN (SELECT seed_id FROM {seeds.name} WHERE seed_id IS NOT NULL)"
    yield from variants.broken([Rule("another id than any seed's", wrong, ("variant_id",))])
    # Another check finds variants with their own seed's texts.
    query = (
        f"SELECT seeds.seed_id, variants.variant_id FROM {variants.name} AS variants JOIN "
        f"{seeds.name} AS seeds USING ({quoted(*fields)}) WHERE seeds.seed_id != variants.seed_id "
        f"ORDER BY variants.{ROW}, seeds.{ROW}"
    )
    expected = "other texts than those of another seed"
    yield from variants.told(expected, query, "those of {0} ({1})")


def repeated_texts(
    variants: Rows, seeds: Rows, fields: Sequence[str], *, of_one_seed: bool = True
) -> list[tuple[str, str]]:
    """Find variants with equal texts, of any classes: pairs of the lowest id and another id.

    Variants of seeds with equal texts, as there are two pairs in SNLI's development set, are no
    finding; variants of the same seed are one if `of_one_seed`.
    """
    texts = quoted(*fields)
    query = f"""
        WITH twice AS (
            SELECT DISTINCT variant_id, seed_id, {texts} FROM {variants.name}
            WHERE hash({texts}) IN (
                SELECT hash({texts}) FROM {variants.name} GROUP BY 1 HAVING count(*) > 1
            ) AND {" AND ".join(f'"{name}" IS NOT NULL' for name in fields)}
        ), ranked AS (
            SELECT variant_id AS other, seed_id AS other_seed,
                first_value(variant_id) OVER one AS first, first_value(seed_id) OVER one AS seed
            FROM twice WINDOW one AS (PARTITION BY {texts} ORDER BY variant_id, seed_id)
        ), problems AS (SELECT seed_id, row({texts}) AS texts FROM {seeds.name})
        SELECT DISTINCT first, other FROM ranked
        LEFT JOIN problems AS mine ON mine.seed_id = seed
        LEFT JOIN problems AS its ON its.seed_id = other_seed
        WHERE (first, seed) != (other, other_seed) AND CASE WHEN seed = other_seed
            THEN {of_one_seed} ELSE its.texts IS DISTINCT FROM mine.texts END
        ORDER BY first, other
    """
    return variants.connection.execute(query).fetchall()
