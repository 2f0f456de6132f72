"""A dataset folder as relations of the table engine, which reads its Parquet files as they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
from numpy.typing import NDArray

from merge_dataset.engine import connect, naming_damaged, parquet, read_pages
from merge_dataset.files import changed_files, naming_damage, open_parquet, read_record, read_schema
from merge_dataset.layout import (
    FILES,
    PROVENANCE,
    collections,
    configurations,
    format_in,
    require_dataset,
    split_files,
)
from merge_dataset.schema import SPLITS, ProblemFormat
from merge_metric.frame.texts import digest_in_sql, hex_of
from merge_metric.seed_variant_accuracy.options import Merging

IDENTITY: Final = ("variant_id", "seed_id", "label")


@dataclass(frozen=True, slots=True, eq=False)
class Engine:
    """A connection of the table engine; where a file that it reads is damaged, errors name it."""

    connection: duckdb.DuckDBPyConnection = field(default_factory=connect)
    files: dict[Path, Path] = field(default_factory=dict)
    """File that is read → its name in messages."""

    def execute(self, statement: str) -> None:
        """Run a statement."""
        with naming_damaged(self.files):
            self.connection.execute(statement)

    def fetch(self, query: str) -> pa.Table:
        """Fetch the rows of a query; their order is set only by `ORDER BY`."""
        with naming_damaged(self.files):
            return self.connection.sql(query).to_arrow_table()

    def columns(self, query: str) -> dict[str, NDArray[Any]]:
        """Fetch the columns of a query as arrays; one with nulls is masked."""
        # Tables of Arrow import pandas for this, which takes a quarter of a second.
        with naming_damaged(self.files):
            return self.connection.sql(query).fetchnumpy()


@dataclass(frozen=True, slots=True, eq=False)
class DatasetRelations:
    """A dataset folder's files in an engine, whose table `seeds` maps seed ids to numbers."""

    engine: Engine = field(default_factory=Engine)
    folder: Path = Path()
    formats: Mapping[str, ProblemFormat] = field(default_factory=dict)
    """File of any configuration, relative to the folder → format of its problems; `file` in
    relations is a position among these files. None where predictions are joined to themselves."""
    seeds: frozenset[int] = frozenset([0])
    """Positions of the files of seeds."""
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """File → names of its columns."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """File → number of rows."""

    @classmethod
    def of(cls, folder: Path) -> DatasetRelations:
        """Open a dataset folder; raise ValueError if a file is damaged."""
        require_dataset(folder)
        formats: dict[str, ProblemFormat] = {}
        of_seeds, whole, recorded = set[str](), list[str](), dict[str, str]()
        for collection in collections(folder):
            with suppress(ValueError):  # readers of the record raise the error
                record = read_record(folder / collection / PROVENANCE, verify=False)
                digests = record.get(FILES, {})
                recorded |= {f"{collection}/{name}": digest for name, digest in digests.items()}
            for config in configurations(folder, collection):
                files = split_files(folder, config)
                of_seeds.update(files["seeds"])
                whole += files["seeds"] if config == collection else ()  # has those of all classes
                own = chain(*map(files.__getitem__, SPLITS))
                formats |= dict.fromkeys(own, format_in(folder, collection))
        names, sizes = {}, {}
        for file in formats:
            with naming_dataset(folder, file), open_parquet(folder / file) as opened:
                names[file], sizes[file] = opened.schema_arrow.names, opened.metadata.num_rows
                _ = [opened.schema_arrow.field(name) for name in IDENTITY]
        # Files that are as recorded are not read to see whether they are damaged.
        for file in changed_files(folder, {file: recorded.get(file, "") for file in formats}):
            with naming_dataset(folder, file):
                read_pages(folder / file, folder / file)
        numbers = frozenset(number for number, file in enumerate(formats) if file in of_seeds)
        engine = Engine(connect(bounded=True), {folder / file: folder / file for file in formats})
        dataset = cls(engine, folder, formats, numbers, names, sizes)
        dataset.number_seeds(dataset.problems(["seed_id"], files=whole))
        return dataset

    def number_seeds(self, rows: str) -> None:
        """Make the table `seeds` of the ids in some rows."""
        self.engine.execute(
            "CREATE TEMP TABLE seeds AS "
            "SELECT seed_id, (row_number() OVER (ORDER BY seed_id) - 1)::INT AS seed "
            f"FROM (SELECT DISTINCT seed_id FROM {rows})"
        )

    def numbers(self, configs: Iterable[str], *splits: str) -> str:
        """List the positions of files of some splits, for `IN`; without files, an unused number."""
        known, of_configs = list(self.formats), [split_files(self.folder, name) for name in configs]
        files = [file for split in splits for of_splits in of_configs for file in of_splits[split]]
        return f"({', '.join(str(known.index(file)) for file in dict.fromkeys(files)) or '-1'})"

    def problems(
        self,
        columns: Sequence[str] = IDENTITY,
        *,
        files: Sequence[str] | None = None,
        merging: Merging | None = None,
        with_digests: bool = False,
    ) -> str:
        """Write rows of the dataset for `FROM`: columns, `file` (its position), `row`, `digest`.

        Columns that are not in `IDENTITY` are null in files without them. Labels are positions,
        merged if asked.
        """
        scans, known_files = [], list(self.formats)
        for problem_format, group in groupby(files or known_files, self.formats.__getitem__):
            own = list(group)
            known = {name for file in own for name in self.names[file]}
            label = "TRY_CAST(label AS TINYINT)"
            if merging:
                codes = enumerate(merging.codes(problem_format.labels)[:-1].tolist())
                cases = (f"WHEN {n} THEN {code}" for n, code in codes)
                label = f"CASE label {' '.join(cases)} ELSE {label} END"
            shown = []
            for name in columns:
                value = label if name == "label" else f'"{name}"' if name in known else "NULL"
                shown.append(f'{value} AS "{name}"')
            places = f"{[known_files.index(file) for file in own]}[file_index::INT + 1]::SMALLINT"
            shown += [f"{places} AS file", "file_row_number::INT AS row"]
            if with_digests:
                digest = digest_in_sql(("variant_id", *problem_format.fields))
                shown.append(f"{digest} AS digest")
            source = parquet([self.folder / file for file in own], by_name=True)
            scans.append(f"SELECT {', '.join(shown)} FROM {source}")
        return f"({' UNION ALL '.join(scans)})"

    def sizes_in(self, table: str) -> dict[str | None, tuple[int, int]]:
        """Count by file, or None, the rows of a table of answers, and rows without prediction."""
        rows = self.engine.fetch(
            f"SELECT file, count(*) AS n, count(*) FILTER (answer IS NULL) AS missing FROM {table} "
            "GROUP BY file"
        ).to_pylist()
        counts = {row["file"]: (row["n"], row["missing"]) for row in rows}
        of_files = {file: counts.get(number, (0, 0)) for number, file in enumerate(self.formats)}
        return {None: counts.get(None, (0, 0))} | of_files


# --- Digests of draws ---

DRAWS: Final = "draws"
"""Key in the description of problems: file of variants → digest of its draw."""


def draw_digests(folder: Path, files: Iterable[str]) -> dict[str, str]:
    """Digest the draw in files of variants, regardless of row order: eight hex digits per file."""
    digests = {}
    with connect(bounded=True) as connection:
        for file in dict.fromkeys(files):
            schema = read_schema(folder / file)
            kind = schema.field("subsamples").type if "subsamples" in schema.names else pa.null()
            if not pa.types.is_list(kind) or not pa.types.is_integer(kind.value_type):
                continue
            with naming_damaged({folder / file: folder / file}):
                total = connection.execute(
                    "SELECT sum((md5_number(concat_ws(' ', variant_id, subsamples::VARCHAR)) >> 64)"
                    "::UBIGINT % 4294967296)::BIGINT AS total FROM "
                    f"{parquet([folder / file])}"
                ).fetchone()
            if total and total[0] is not None:
                digests[file] = hex_of(total[0])
    return digests


def changed_draws(folder: Path, recorded: Any, files: Iterable[str]) -> list[str]:
    """List the files whose draw differs from the draw that predictions record."""
    if not isinstance(recorded, dict):
        return []
    now = draw_digests(folder, (file for file in files if file in recorded))
    return [file for file, digest in now.items() if digest != recorded[file]]


# --- Files of the dataset ---

EXAMPLES: Final = 3
"""Number of ids that a message shows."""


@contextmanager
def naming_dataset(folder: Path, file: str) -> Iterator[None]:
    """Turn errors on a damaged or missing dataset file into a message with its name and advice."""
    try:
        with naming_damage(folder / file):
            yield
    except (FileNotFoundError, ValueError, KeyError) as error:
        # pyarrow's KeyError names a column that there is not.
        told = f"{folder / file}: {error.args[0]}" if isinstance(error, KeyError) else error
        raise ValueError(f"{told}; `merge-nli check {folder}` says more") from error


def read_columns(folder: Path, files: Sequence[str], names: Sequence[str]) -> pa.Table:
    """Read some columns of several files in a dataset folder, concatenated."""
    tables = []
    for file in files:
        with naming_dataset(folder, file), open_parquet(folder / file) as opened:
            tables.append(opened.read(columns=list(names)).select(list(names)))
    return pa.concat_tables(tables)


def preview(values: Any) -> str:
    """Format the first few values of a column, with "…" if there are more.

    >>> preview(pa.array(["a", "b", "c", "d"]))
    "'a', 'b', 'c', …"
    """
    shown = ", ".join(repr(value.as_py()) for value in values[:EXAMPLES])
    return f"{shown}, …" if len(values) > EXAMPLES else shown


def unknown_ids(where: object, folder: Path, count: int, rows: int, some: Any) -> ValueError:
    """Make the error for predictions for no problem of the dataset: `count` of all rows."""
    return ValueError(
        f"{where}: expected predictions for problems of the dataset {folder}, got {count:,} of "
        f"{rows:,} for ids that none of its configurations holds: {preview(some)}; give the "
        f"dataset that the model was run on, or run the model on this one"
    )
