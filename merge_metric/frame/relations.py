"""A dataset and a model's predictions as relations of the table engine, joined once.

pyarrow reads the files, as it detects damaged pages, and DuckDB joins the streamed rows; rows that
do not fit into its memory are kept on disk meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from merge_dataset.engine import connect
from merge_dataset.files import ROWS, naming_damage, open_parquet, read_schema
from merge_dataset.layout import (
    all_configurations,
    collections,
    configurations,
    format_in,
    require_configurations,
    require_dataset,
    split_files,
)
from merge_metric.frame.texts import digest_in_sql, hex_of
from merge_metric.seed_variant_accuracy.merging import Merging
from merge_metric.seed_variant_accuracy.options import NO_LABEL

IDENTITY: Final = ("variant_id", "seed_id", "label")

Stream = tuple[pa.Schema, Iterator[pa.RecordBatch]]
"""Schema, and batches that can be read once."""


def execute(connection: duckdb.DuckDBPyConnection, query: str, **streams: Stream) -> None:
    """Run a statement over named streams; errors raised by streams are passed on unchanged."""
    raised: list[BaseException] = []

    def watched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except BaseException as error:
            raised.append(error)
            raise

    for name, (schema, batches) in streams.items():
        reader = pa.RecordBatchReader.from_batches(schema, watched(batches))
        connection.register(name, reader)
    try:
        connection.execute(query)
    except duckdb.Error:
        if raised:
            raise raised[0] from None
        raise
    finally:
        for name in streams:
            connection.unregister(name)


def fetch(connection: duckdb.DuckDBPyConnection, query: str, **streams: Stream) -> pa.Table:
    """Fetch the rows of a query over named streams; their order is set only by `ORDER BY`."""
    if not streams:
        return connection.sql(query).to_arrow_table()
    execute(connection, f"CREATE OR REPLACE TEMP TABLE fetched AS {query}", **streams)
    return connection.sql("FROM fetched").to_arrow_table()


@dataclass(frozen=True, slots=True, eq=False)
class DatasetRelations:
    """A dataset folder's files in a connection, whose table `seeds` maps seed ids to numbers."""

    connection: duckdb.DuckDBPyConnection
    folder: Path
    files: tuple[str, ...]
    """Files of all configurations, relative to the folder; `file` is a position in this list."""
    fields: Mapping[str, tuple[str, ...]]
    """File → names of the columns with texts."""
    labels: Mapping[str, tuple[str, ...]]
    """File → names of the labels."""
    schemas: Mapping[str, pa.Schema]
    """File → schema of all its columns."""
    sizes: Mapping[str, int]
    """File → number of rows."""

    @classmethod
    def of(cls, folder: Path) -> DatasetRelations:
        """Open a dataset folder."""
        require_dataset(folder)
        fields: dict[str, tuple[str, ...]] = {}
        labels: dict[str, tuple[str, ...]] = {}
        of_seeds: dict[str, None] = {}
        for collection in collections(folder):
            problem_format = format_in(folder, collection)
            for config in configurations(folder, collection):
                found = split_files(folder, config)
                of_seeds |= dict.fromkeys(found["seeds"])
                both = [*found["seeds"], *found["variants"]]
                fields |= dict.fromkeys(both, problem_format.fields)
                labels |= dict.fromkeys(both, problem_format.labels)
        schemas, sizes = {}, {}
        for file in fields:
            with naming_dataset(folder, file), open_parquet(folder / file) as parquet:
                schemas[file], sizes[file] = parquet.schema_arrow, parquet.metadata.num_rows
        relations = cls(
            connect(streamed=True), folder, tuple(fields), fields, labels, schemas, sizes
        )
        # The engine does not know the length of streams: a join holds its right side in memory.
        relations.connection.execute("SET disabled_optimizers = 'build_side_probe_side'")
        execute(
            relations.connection,
            "CREATE TABLE seeds AS SELECT seed_id, (row_number() OVER (ORDER BY seed_id) - 1)::INT "
            "AS seed FROM (SELECT DISTINCT seed_id FROM problems)",
            problems=relations.problems(["seed_id"], files=list(of_seeds)),
        )
        return relations

    def numbers(self, config: str, split: str) -> str:
        """List the positions of a split's files, for `IN`; without files, an unused number."""
        files = split_files(self.folder, config)[split]
        return f"({', '.join(str(self.files.index(file)) for file in files) or '-1'})"

    def problems(
        self,
        columns: Sequence[str] = IDENTITY,
        *,
        files: Sequence[str] | None = None,
        with_texts: bool = False,
        merging: Merging | None = None,
    ) -> Stream:
        """Stream rows of the dataset: columns, `file` (its position) and `row` (in it, from 0).

        Columns that are not in `IDENTITY` are null in files without them. Texts are `text_0`,
        `text_1` …, null beyond the number of texts.
        """
        files = self.files if files is None else files
        kinds = {
            name: schema.field(name).type
            for schema in map(self.schemas.__getitem__, reversed(files))
            for name in columns
            if name in schema.names and not pa.types.is_null(schema.field(name).type)
        }
        fields = [(name, kinds.get(name, pa.string())) for name in columns]
        fields += [("file", pa.int16()), ("row", pa.int32())]
        texts = range(max(map(len, self.fields.values())) if with_texts else 0)
        fields += [(f"text_{number}", pa.string()) for number in texts]
        schema = pa.schema(fields)

        def batches() -> Iterator[pa.RecordBatch]:
            for file in files:
                known = self.schemas[file].names
                own = [name for name in columns if name in known or name in IDENTITY]
                of_texts = self.fields[file] if with_texts else ()
                wanted = list(dict.fromkeys((*own, *of_texts)))
                done = 0
                for batch in read_batches_of(self.folder, file, wanted):
                    found: dict[str, pa.Array] = {name: batch[name] for name in own}
                    if merging and "label" in found:
                        found["label"] = merged_codes(batch["label"], self.labels[file], merging)
                    found["file"] = pa.array(np.full(len(batch), self.files.index(file)))
                    found["row"] = pa.array(np.arange(done, done + len(batch)))
                    found |= {f"text_{n}": batch[t].fill_null("") for n, t in enumerate(of_texts)}
                    empty = pa.nulls(len(batch))
                    arrays = [found.get(name, empty).cast(kind) for name, kind in fields]
                    yield pa.record_batch(arrays, schema=schema)
                    done += len(batch)

        return schema, batches()

    def join(
        self,
        name: str,
        predictions: Stream,
        columns: Sequence[str],
        *,
        with_digests: bool,
        merging: Merging | None = None,
    ) -> None:
        """Make the table of answers: each problem with its prediction, if there is one.

        Columns: `file`, `row`, `seed`, `label` of the problem and further ones; `answer`, the
        prediction's number, null for none; `prediction`; `verified`, true if the digest agrees
        with the problem's texts, false without digest, null if seed, gold label or texts differ;
        `texts`, the lower half of the problem's digest, null if no prediction has one. Predictions
        for no problem have no `file`. Ids and values to compare are kept as hashes to save memory.
        """
        more = [each for each in dict.fromkeys(columns) if each not in IDENTITY]
        ids = ("variant_id", *(f"text_{n}" for n in range(max(map(len, self.fields.values())))))
        digest = digest_in_sql(ids) if with_digests else "NULL::UBIGINT"
        # `hash` collides for some ids with equal endings, 80 pairs of 4.5 million, but never also
        # for the ids shifted by a byte; MD5 would work too, but takes half a second per million.
        key = "hash(variant_id, concat('.', variant_id)) AS key"
        execute(
            self.connection,
            f"""
            CREATE OR REPLACE TABLE {name} AS
            SELECT q.file, q.row, q.seed, q.label::TINYINT AS label,
                {"".join(f"q.{each}, " for each in more)}
                (q.digest % 4294967296)::UINTEGER AS texts, p.answer, p.prediction,
                CASE p.same WHEN q.same_ids THEN false WHEN q.same_texts THEN true END AS verified
            FROM (
                SELECT problems.*, seed, {digest} AS digest, {key},
                    hash(seed_id, label::TINYINT, NULL::UBIGINT) AS same_ids,
                    hash(seed_id, label::TINYINT, digest) AS same_texts
                FROM problems LEFT JOIN seeds USING (seed_id)
            ) q FULL JOIN (
                SELECT {key}, hash(seed_id, label, digest) AS same, answer, prediction
                FROM predictions
            ) p ON p.key = q.key
            """,
            problems=self.problems((*IDENTITY, *more), with_texts=with_digests, merging=merging),
            predictions=predictions,
        )

    def sizes_in(self, table: str) -> dict[str | None, tuple[int, int]]:
        """Count by file, or None, the rows of a table of answers, and rows without prediction."""
        rows = fetch(
            self.connection,
            f"SELECT file, count(*) AS n, count(*) FILTER (answer IS NULL) AS missing FROM {table} "
            "GROUP BY file",
        ).to_pylist()
        found = {row["file"]: (row["n"], row["missing"]) for row in rows}
        of_files = {file: found.get(number, (0, 0)) for number, file in enumerate(self.files)}
        return {None: found.get(None, (0, 0))} | of_files


# --- Digests of draws ---

DRAWS: Final = "draws"
"""Key in the description of problems: file of variants → digest of its draw."""

_NAMES: Final = ("variant_id", "subsamples")
_SCHEMA: Final = pa.schema(
    [("file", pa.int64()), ("variant_id", pa.string()), ("subsamples", pa.list_(pa.int64()))]
)


def draw_digests(folder: Path, files: Iterable[str]) -> dict[str, str]:
    """Digest the draw in files of variants, regardless of row order: eight hex digits per file."""
    drawn = []
    for file in dict.fromkeys(files):
        schema = read_schema(folder / file)
        kind = schema.field("subsamples").type if "subsamples" in schema.names else pa.null()
        if pa.types.is_list(kind) and pa.types.is_integer(kind.value_type):
            drawn.append(file)

    def batches() -> Iterator[pa.RecordBatch]:
        for number, file in enumerate(drawn):
            for batch in read_batches_of(folder, file, _NAMES):
                columns = [batch[name].cast(_SCHEMA.field(name).type) for name in _NAMES]
                yield pa.record_batch(
                    [pa.array(np.full(len(batch), number)), *columns], schema=_SCHEMA
                )

    with connect() as connection:
        found = fetch(
            connection,
            "SELECT file, sum((md5_number(concat_ws(' ', variant_id, subsamples::VARCHAR)) >> 64)"
            "::UBIGINT % 4294967296)::BIGINT AS total FROM variants GROUP BY file ORDER BY file",
            variants=(_SCHEMA, batches()),
        )
    return {drawn[row["file"]]: hex_of(row["total"]) for row in found.to_pylist()}


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


def require_columns(folder: Path, file: str, names: Sequence[str], found: Sequence[str]) -> None:
    """Raise ValueError unless a dataset file has all the wanted columns."""
    for name in names:
        if name not in found:
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


def read_batches_of(folder: Path, file: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read some columns of a file in a dataset folder, in batches."""
    with naming_dataset(folder, file):
        parquet = open_parquet(folder / file)
    with parquet:
        require_columns(folder, file, names, parquet.schema_arrow.names)
        batches = parquet.iter_batches(ROWS, columns=list(names))
        while True:
            with naming_dataset(folder, file):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


def read_columns(folder: Path, files: Sequence[str], names: Sequence[str]) -> pa.Table:
    """Read some columns of several files in a dataset folder, concatenated."""
    tables = []
    for file in files:
        with naming_dataset(folder, file), open_parquet(folder / file) as parquet:
            table = parquet.read(columns=list(names))
        require_columns(folder, file, names, table.column_names)
        tables.append(table.select(list(names)))
    return pa.concat_tables(tables)


def merged_codes(column: Any, labels: Sequence[str], merging: Merging) -> pa.Array:
    """Merge the labels in a column of positions; others, as in damaged files, stay."""
    codes = column.fill_null(NO_LABEL).to_numpy(zero_copy_only=False).astype(np.int64)
    inside = (codes >= 0) & (codes < len(labels))
    codes[inside] = merging.codes(labels)[codes[inside]]
    return pa.array(codes, mask=column.is_null().to_numpy(zero_copy_only=False))


def unknown_ids(where: object, folder: Path, count: int, rows: int, some: Any) -> ValueError:
    """Make the error for predictions for no problem of the dataset: `count` of all rows."""
    return ValueError(
        f"{where}: expected predictions for problems of the dataset {folder}, got {count:,} of "
        f"{rows:,} for ids that none of its configurations holds: {preview(some)}; give the "
        f"dataset that the model was run on, or run the model on this one"
    )


def preview(values: Any) -> str:
    """Format the first few values of a column, with "…" if there are more.

    >>> preview(pa.array(["a", "b", "c", "d"]))
    "'a', 'b', 'c', …"
    """
    shown = ", ".join(repr(value.as_py()) for value in values[:EXAMPLES])
    return f"{shown}, …" if len(values) > EXAMPLES else shown
