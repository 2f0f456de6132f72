"""A dataset folder as relations of the table engine, which reads its Parquet files as they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from merge_dataset.engine import connect, naming_damaged, parquet, quoted, read_pages
from merge_dataset.files import (
    changed_files,
    naming_damage,
    open_parquet,
    read_record,
    read_schema,
)
from merge_dataset.layout import (
    FILES,
    PROVENANCE,
    all_configurations,
    collections,
    configurations,
    format_in,
    require_configurations,
    require_dataset,
    split_files,
)
from merge_dataset.schema import ProblemFormat
from merge_metric.frame.texts import hex_of
from merge_metric.seed_variant_accuracy.merging import Merging

IDENTITY: Final = ("variant_id", "seed_id", "label")


@dataclass(frozen=True, slots=True, eq=False)
class DatasetRelations:
    """A dataset folder's files in a connection, whose table `seeds` maps seed ids to numbers."""

    connection: duckdb.DuckDBPyConnection
    folder: Path
    files: tuple[str, ...]
    """Files of all configurations, relative to the folder; `file` is a position in this list."""
    seeds: frozenset[int]
    """Positions of the files of seeds."""
    formats: Mapping[str, ProblemFormat]
    """File → format of its problems."""
    names: Mapping[str, Sequence[str]]
    """File → names of its columns."""
    sizes: Mapping[str, int]
    """File → number of rows."""

    @classmethod
    def of(cls, folder: Path) -> DatasetRelations:
        """Open a dataset folder; raise ValueError if a file is damaged."""
        require_dataset(folder)
        formats: dict[str, ProblemFormat] = {}
        of_seeds: dict[str, None] = {}
        for collection in collections(folder):
            problem_format = format_in(folder, collection)
            for config in configurations(folder, collection):
                files = split_files(folder, config)
                of_seeds |= dict.fromkeys(files["seeds"])
                formats |= dict.fromkeys([*files["seeds"], *files["variants"]], problem_format)
        names, sizes = {}, {}
        for file in formats:
            with naming_dataset(folder, file), open_parquet(folder / file) as opened:
                names[file], sizes[file] = opened.schema_arrow.names, opened.metadata.num_rows
            require_columns(folder, file, IDENTITY, names[file])
        require_sound_files(folder, formats)
        numbers = frozenset(number for number, file in enumerate(formats) if file in of_seeds)
        dataset = cls(connect(bounded=True), folder, tuple(formats), numbers, formats, names, sizes)
        dataset.execute(
            "CREATE TABLE seeds AS SELECT seed_id, (row_number() OVER (ORDER BY seed_id) - 1)::INT "
            "AS seed FROM (SELECT DISTINCT seed_id "
            f"FROM {dataset.problems(['seed_id'], files=list(of_seeds))})"
        )
        return dataset

    @contextmanager
    def _reading(self, more: Mapping[Path, Path]) -> Iterator[None]:
        own = {self.folder / file: self.folder / file for file in self.files}
        with naming_damaged({**more, **own}):
            yield

    def execute(self, query: str, more: Mapping[Path, Path] | None = None) -> None:
        """Run a statement; `more` are predictions files that it reads, with their names."""
        with self._reading(more or {}):
            self.connection.execute(query)

    def fetch(self, query: str, more: Mapping[Path, Path] | None = None) -> pa.Table:
        """Fetch the rows of a query; their order is set only by `ORDER BY`."""
        with self._reading(more or {}):
            return self.connection.sql(query).to_arrow_table()

    def numbers(self, config: str, split: str) -> str:
        """List the positions of a split's files, for `IN`; without files, an unused number."""
        files = split_files(self.folder, config)[split]
        return f"({', '.join(str(self.files.index(file)) for file in files) or '-1'})"

    def problems(
        self,
        columns: Sequence[str] = IDENTITY,
        *,
        files: Sequence[str] | None = None,
        merging: Merging | None = None,
        with_digests: bool = False,
        label_names: bool = False,
    ) -> str:
        """Write rows of the dataset for `FROM`: columns, `file` (its position), `row`, `digest`.

        Columns that are not in `IDENTITY` are null in files without them. Labels are positions,
        merged if asked, or names.
        """
        scans = []
        wanted = self.files if files is None else files
        for problem_format, group in groupby(wanted, self.formats.__getitem__):
            own = list(group)
            known = {name for file in own for name in self.names[file]}
            label = "TRY_CAST(label AS TINYINT)"
            if label_names:
                names = enumerate(map(quoted, problem_format.labels))
                cases = (f"WHEN {n} THEN {text}" for n, text in names)
                label = f"CASE label {' '.join(cases)} END"
            elif merging:
                codes = merging.codes(problem_format.labels)[:-1].tolist()
                cases = (f"WHEN {n} THEN {code}" for n, code in enumerate(codes))
                label = f"CASE label {' '.join(cases)} ELSE {label} END"
            places = f"{[self.files.index(file) for file in own]}[file_index::INT + 1]::SMALLINT"
            digest = digest_in_sql(("variant_id", *problem_format.fields))
            shown = []
            for name in columns:
                value = label if name == "label" else f'"{name}"' if name in known else "NULL"
                shown.append(f'{value} AS "{name}"')
            shown += [f"{places} AS file", "file_row_number::INT AS row"]
            shown += [f"{digest} AS digest"] * with_digests
            source = parquet([self.folder / file for file in own], by_name=True)
            scans.append(f"SELECT {', '.join(shown)} FROM {source}")
        return f"({' UNION ALL '.join(scans)})"

    def completed(
        self, source: str, own: Sequence[str], lacking: Sequence[str], read: Mapping[Path, Path]
    ) -> pa.Table:
        """Add seeds or names of gold labels to predictions; `unknown` says where there are none."""
        return self.fetch(
            f"SELECT {', '.join(f'f.{name}' for name in own)}, "
            f"{', '.join(f'p.{name} AS {name}' for name in lacking)}, p.seed_id IS NULL AS unknown "
            f"FROM {source} f LEFT JOIN (SELECT variant_id, "
            "unnest(arg_min({'seed_id': seed_id, 'label': label}, file)) "
            f"FROM {self.problems(label_names=True)} GROUP BY variant_id) p USING (variant_id) "
            "ORDER BY f.file_row_number",
            read,
        )

    def sizes_in(self, table: str) -> dict[str | None, tuple[int, int]]:
        """Count by file, or None, the rows of a table of answers, and rows without prediction."""
        rows = self.fetch(
            f"SELECT file, count(*) AS n, count(*) FILTER (answer IS NULL) AS missing FROM {table} "
            "GROUP BY file"
        ).to_pylist()
        counts = {row["file"]: (row["n"], row["missing"]) for row in rows}
        of_files = {file: counts.get(number, (0, 0)) for number, file in enumerate(self.files)}
        return {None: counts.get(None, (0, 0))} | of_files


def require_sound_files(folder: Path, files: Iterable[str]) -> None:
    """Raise ValueError for a damaged file; files that are as recorded are not read for that."""
    recorded: dict[str, str] = {}
    for collection in collections(folder):
        try:
            record = read_record(folder / collection / PROVENANCE, verify=False)
        except ValueError:
            continue  # readers of it raise the error
        digests = record.get(FILES, {})
        recorded |= {f"{collection}/{name}": digest for name, digest in digests.items()}
    for file in changed_files(folder, {file: recorded.get(file, "") for file in files}):
        with naming_dataset(folder, file):
            read_pages(folder / file, folder / file)


def digest_in_sql(columns: Sequence[str]) -> str:
    """Write `text_digests` as an expression of DuckDB."""
    texts = (f"coalesce({column}, '')" for column in columns)
    parts = ", ".join(f"strlen({text}), ':', {text}" for text in texts)
    # `md5_number_lower` is the same, but takes three times as long.
    return f"(md5_number(concat({parts})) & {2**64 - 1}::UHUGEINT)::UBIGINT"


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


def check_configurations(folder: Path, configs: Sequence[str]) -> list[str]:
    """Check the requested configurations; return each once."""
    known = all_configurations(folder)
    require_configurations(folder, known, configs)
    return list(dict.fromkeys(configs))


def require_columns(folder: Path, file: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Raise ValueError unless a dataset file has all the wanted columns."""
    for name in names:
        if name not in known:
            raise ValueError(
                f"{folder / file}: expected the columns {', '.join(names)}, got none called "
                f"{name}; `merge-nli check {folder}` says more"
            )


@contextmanager
def naming_dataset(folder: Path, file: str) -> Iterator[None]:
    """Turn errors on a damaged or missing dataset file into a message with its name and advice."""
    try:
        with naming_damage(folder / file):
            yield
    except FileNotFoundError as error:
        raise ValueError(f"{folder / file}: expected a file, found none") from error
    except ValueError as error:
        raise ValueError(f"{error}; `merge-nli check {folder}` says more") from error


def read_columns(folder: Path, files: Sequence[str], names: Sequence[str]) -> pa.Table:
    """Read some columns of several files in a dataset folder, concatenated."""
    tables = []
    for file in files:
        with naming_dataset(folder, file), open_parquet(folder / file) as opened:
            table = opened.read(columns=list(names))
        require_columns(folder, file, names, table.column_names)
        tables.append(table.select(list(names)))
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
