"""Registry of checks, their findings, and rules for rows.

The rows of a collection are views of the table engine, `seeds` and `variants`. Most checks are
rules in `rules.toml.j2`: conditions in SQL that hold in wrong rows. One query counts the rows of
all rules; wrong rows are then read again for the messages.
"""

import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from duckdb import DuckDBPyConnection

from merge_dataset.card import environment
from merge_dataset.dataset_columns import COLUMNS
from merge_dataset.engine import parquet
from merge_dataset.schema import ProblemFormat, arrow_schema, patterns_of, replacement_columns


@dataclass(frozen=True, slots=True)
class Finding:
    """One deviation from the expected state."""

    where: str
    """A file or configuration, relative to the dataset folder."""
    expected: str
    """Expectation, in the same words for all findings of a kind."""
    got: str
    """Value found, with the row's id."""


Find = TypeVar("Find", bound=Callable[..., Iterator[Finding]])
"""Function from a folder (of rows of a kind, also a collection's name) to findings."""

CHECKS: Final[defaultdict[str, list[Callable[..., Iterator[Finding]]]]] = defaultdict(list)
"""Part of a folder, or kind of collections → its checks, in their order."""


def check(of: str = "contents") -> Callable[[Find], Find]:
    """Register a check of the "structure", "contents" or "bytes" of a folder, or a kind's rows.

    Contents and rows are looked at if the structure is right, bytes if nothing else was found.
    """

    def register(find: Find) -> Find:
        CHECKS[of].append(find)
        return find

    return register


def summarise(findings: Iterable[Finding]) -> list[str]:
    """Write one line per place and kind of finding, in order, with a few examples and the count.

    >>> summarise([Finding("seeds", "unique ids", f"{n} twice") for n in range(5)])
    ['seeds: expected unique ids; got 0 twice; 1 twice; 2 twice; and 2 more']
    """
    counts = Counter[tuple[str, str]]()
    examples = defaultdict[tuple[str, str], list[str]](list)
    for finding in findings:
        kind = finding.where, finding.expected
        counts[kind] += 1
        if counts[kind] <= 3:
            examples[kind].append(finding.got)
    for kind, got in examples.items():
        if more := counts[kind] - len(got):
            got.append(f"and {more:,} more")
    return [
        f"{where}: expected {expected}; got {'; '.join(got)}"
        for (where, expected), got in examples.items()
    ]


# --- Rows ---

PLACE: Final = '"files of a class"'
"""Column of a view: the files in which a row stands, as findings name them."""
CLASS: Final = '"class of files"'
"""Column of a view: the class of variants that these files are for; empty for all."""
ROW: Final = '"row number"'
"""Column of a view: the number of a row, in the order of the files."""


def view_rows(
    connection: DuckDBPyConnection, name: str, folder: Path, files_of: Mapping[str, Sequence[str]]
) -> None:
    """Make a view of the rows of a split, from the files of one or more classes."""
    rows = (
        f"SELECT *, '{', '.join(patterns_of(files))}' AS {PLACE}, '{of_class}' AS {CLASS}, "
        f"({n}::BIGINT << 56) + (file_index::BIGINT << 40) + file_row_number AS {ROW} "
        f"FROM {parquet(folder / file for file in files)}"
        for n, (of_class, files) in enumerate(files_of.items())
    )
    connection.execute(f'CREATE TEMP VIEW "{name}" AS {" UNION ALL ".join(rows)}')


def with_seeds(
    connection: DuckDBPyConnection, view: str, seeds: str, columns: Sequence[str], *on: str
) -> None:
    """Make the view `paired`: rows with their seeds' columns, `"seed …"`, and `"has seed"`."""
    of_seed = ", ".join(f'seed."{column}" AS "seed {column}"' for column in columns)
    keys = ", ".join(("seed_id", *on))
    same = " AND ".join(f"seed.{key} = mine.{key}" for key in ("seed_id", *on))
    connection.execute(
        "CREATE OR REPLACE TEMP VIEW paired AS "
        f'SELECT mine.*, seed.seed_id IS NOT NULL AS "has seed", '
        f"{of_seed} FROM {view} AS mine LEFT JOIN (SELECT * FROM {seeds} QUALIFY row_number() "
        f"OVER (PARTITION BY {keys} ORDER BY {ROW}) = 1) AS seed ON {same}"
    )


def fetched(connection: DuckDBPyConnection, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query; no other query may run meanwhile."""
    connection.execute(query)
    while rows := connection.fetchmany(10_000):
        yield from rows


def told(connection: DuckDBPyConnection, expected: str, query: str, got: str) -> Iterator[Finding]:
    """Yield a finding for each row of a query: its place and the values that `got` shows."""
    for place, *values in fetched(connection, query):
        yield Finding(place, expected, got.format(*values))


def broken(
    connection: DuckDBPyConnection, view: str, rules: Iterable[Mapping[str, str]]
) -> Iterator[Finding]:
    """Find the rows that break rules."""
    rules = list(rules)
    counts = ", ".join(f"count(*) FILTER ({rule['wrong']})" for rule in rules)
    [counted] = fetched(connection, f"SELECT {counts} FROM {view}")
    for rule, count in zip(rules, counted, strict=True):
        if count:
            query = (
                f"SELECT {PLACE}, {rule['shown']}, variant_id FROM {view} WHERE {rule['wrong']} "
                f"ORDER BY {ROW}"
            )
            yield from told(connection, rule["expected"], query, rule.get("got", "{0!r} ({1})"))


def identifiers(*names: str) -> str:
    """Quote names of columns for SQL, as they may be keywords."""
    return ", ".join(f'"{name}"' for name in names)


# --- Rules and queries for both kinds of variants ---


def as_in(where: str, columns: Iterable[str]) -> list[dict[str, str]]:
    """List rules for `paired` that require equal values in some columns."""
    return [
        {
            "expected": f"{name} as in {where}",
            "wrong": f'"has seed" AND "{name}" IS DISTINCT FROM "seed {name}"',
            "shown": f'"{name}", "seed {name}", seed_id',
            "got": "{0!r} instead of {1!r} ({2})",
        }
        for name in columns
    ]


def rules_of(
    source: str, problem_format: ProblemFormat, config: Mapping[str, Any]
) -> dict[str, list[dict[str, str]]]:
    """Read `rules.toml.j2` for a collection with these settings: part → rules or queries."""
    schema, filled = arrow_schema(problem_format), {}
    for name in replacement_columns(problem_format):
        kind = schema.field(name).type
        is_counted = pa.types.is_list(kind) or pa.types.is_string(kind)
        filled[name] = f'len("{name}") > 0' if is_counted else f'"{name}" IS NOT NULL'
    template = environment(Path(__file__).parent).get_template("rules.toml.j2")
    text = template.render(
        source=source,
        fields=[*problem_format.fields],
        labels=len(problem_format.labels),
        mlms=problem_format.mlms,
        changes=[*problem_format.pll_changes],
        columns=["log_odds", *problem_format.signals],
        filled=filled,
        config=config,
        subsamples=config.get("subsamples"),
        CLASS=CLASS,
        PLACE=PLACE,
        ROW=ROW,
        COLUMNS=COLUMNS,
    )
    return defaultdict(list, tomllib.loads(text))
