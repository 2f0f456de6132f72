"""A dataset and a model's predictions as relations of the table engine, joined once.

    problems      the rows of the dataset's files: file, row, ids, gold label, texts
    predictions   the rows of a model's files, checked one column at a time
    answers       every problem beside the prediction for it, and predictions for no problem

pyarrow reads the files, as it notices damaged pages, and DuckDB joins what streams by; what does
not fit into its memory lies on disk for as long. Predictions remember digests of the dataset's
draw: which variants its files have, and in which subsamples, as others give other figures.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    sources,
    split_files,
)
from merge_dataset.schema import PARAPHRASE, SPLITS, collection_name
from merge_metric.runs.texts import digest_in_sql, first_version, hex_of

IDENTITY: Final = ("variant_id", "seed_id", "label")

Stream = tuple[pa.Schema, Iterator[pa.RecordBatch]]
"""Columns, and batches of them that can be read once."""


def execute(connection: duckdb.DuckDBPyConnection, query: str, **streams: Stream) -> None:
    """Run a statement over streams, which it knows by their names.

    What a stream raises comes as it is, not in the engine's words.
    """
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
    """Fetch the rows of a query over streams, in an order only where `ORDER BY` says it."""
    if not streams:
        return connection.sql(query).to_arrow_table()
    execute(connection, f"CREATE OR REPLACE TEMP TABLE fetched AS {query}", **streams)
    return connection.sql("FROM fetched").to_arrow_table()


@dataclass(frozen=True, slots=True, eq=False)
class DatasetRelations:
    """A dataset folder's files in a connection, whose table `seeds` numbers seeds by their ids."""

    connection: duckdb.DuckDBPyConnection
    folder: Path
    files: tuple[str, ...]
    """Files of all configurations, relative to the folder; relations have their positions here."""
    fields: Mapping[str, tuple[str, ...]]
    """File → columns of its problems' texts."""
    schemas: Mapping[str, pa.Schema]
    """File → all of its columns."""
    sizes: Mapping[str, int]
    """File → how many rows it has."""

    @classmethod
    def of(cls, folder: Path) -> DatasetRelations:
        """Open a dataset folder."""
        require_dataset(folder)
        fields: dict[str, tuple[str, ...]] = {}
        of_seeds: dict[str, None] = {}
        for collection in collections(folder):
            problem_format = format_in(folder, collection)
            for config in configurations(folder, collection):
                found = split_files(folder, config)
                of_seeds |= dict.fromkeys(found["seeds"])
                fields |= dict.fromkeys(
                    [*found["seeds"], *found["variants"]], problem_format.fields
                )
        schemas, sizes = {}, {}
        for file in fields:
            with naming_dataset(folder, file), open_parquet(folder / file) as parquet:
                schemas[file], sizes[file] = parquet.schema_arrow, parquet.metadata.num_rows
        relations = cls(connect(streamed=True), folder, tuple(fields), fields, schemas, sizes)
        # Nothing tells how long a stream is: a join holds what stands right, and it goes by.
        relations.connection.execute("SET disabled_optimizers = 'build_side_probe_side'")
        execute(
            relations.connection,
            "CREATE TABLE seeds AS SELECT seed_id, (row_number() OVER (ORDER BY seed_id) - 1)::INT "
            "AS seed FROM (SELECT DISTINCT seed_id FROM problems)",
            problems=relations.problems(["seed_id"], files=list(of_seeds)),
        )
        return relations

    def numbers(self, config: str, split: str) -> str:
        """List the positions of a split's files, for `IN`; of none a number that no file has."""
        files = split_files(self.folder, config)[split]
        return f"({', '.join(str(self.files.index(file)) for file in files) or '-1'})"

    def problems(
        self,
        columns: Sequence[str] = IDENTITY,
        *,
        files: Sequence[str] | None = None,
        with_texts: bool = False,
        with_first_digest: bool = False,
    ) -> Stream:
        """Stream rows of the dataset: columns, `file` (its position) and `row` (in it, from 0).

        Columns that are not in `IDENTITY` are null in files without them. Texts are `text_0`,
        `text_1` …, null beyond those of the problem's format; `digest_1` is their digest in
        version 1.
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
        fields += [("digest_1", pa.uint64())] if with_first_digest else []
        schema = pa.schema(fields)

        def batches() -> Iterator[pa.RecordBatch]:
            for file in files:
                known = self.schemas[file].names
                own = [name for name in columns if name in known or name in IDENTITY]
                of_texts = self.fields[file] if with_texts or with_first_digest else ()
                wanted = list(dict.fromkeys((*own, *of_texts)))
                done = 0
                for batch in read_batches_of(self.folder, file, wanted):
                    found: dict[str, pa.Array] = {name: batch[name] for name in own}
                    found["file"] = pa.array(np.full(len(batch), self.files.index(file)))
                    found["row"] = pa.array(np.arange(done, done + len(batch)))
                    if with_texts:
                        found |= {
                            f"text_{n}": batch[t].fill_null("") for n, t in enumerate(of_texts)
                        }
                    if with_first_digest:
                        found["digest_1"] = pa.array(first_version(batch, of_texts))
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
        versions: Collection[int],
        by_id: bool,
    ) -> None:
        """Make the table of answers: each problem beside its prediction, if there is one.

        Columns: `file`, `row`, `seed`, `label` of the problem, and further ones of the dataset;
        `answer`, the number of the prediction, null where there is none; `prediction`; where
        predictions have digests, of some versions, `texts`, the lower half of the digest of the
        problem's texts. Predictions for no problem have no `file`.

        Rows belong together whose ids, seeds, gold labels and digests of texts are equal, by a
        hash of all of these: what agrees takes little memory. By ids alone, as is needed of several
        versions, `same_seed`, `same_label` and `same_text` say in what they differ.
        """
        more = [each for each in dict.fromkeys(columns) if each not in IDENTITY]
        ids = ("variant_id", *(f"text_{n}" for n in range(max(map(len, self.fields.values())))))
        digest = f"{digest_in_sql(ids)} AS digest_2, " if versions else ""
        key, compared, own_digest = "variant_id AS key", "", "md5_number(variant_id)"
        if by_id:
            same = (f"WHEN {each} THEN p.digest = q.digest_{each} " for each in sorted(versions))
            same_text = f"CASE p.version {''.join(same)}END" if versions else "NULL::BOOLEAN"
            compared = (
                "p.seed_id = q.seed_id AS same_seed, p.label = q.label AS same_label, "
                f"{same_text} AS same_text, "
            )
        else:
            # Digests and MD5 tell ids apart that the engine's own hash of texts may take for equal.
            key = "hash(variant_id, seed_id, label::TINYINT, {}) AS key"
        execute(
            self.connection,
            f"""
            CREATE OR REPLACE TABLE {name} AS
            SELECT q.file, q.row, q.seed, q.label::TINYINT AS label,
                {"".join(f"q.{each}, " for each in more)}
                {"(q.digest_2 % 4294967296)::UINTEGER AS texts, " if versions else ""}
                {compared} p.answer, p.prediction
            FROM (
                SELECT problems.*, seed, {digest}
                    {key.format(", ".join(f"digest_{each}" for each in versions) or own_digest)}
                FROM problems LEFT JOIN seeds USING (seed_id)
            ) q FULL JOIN (
                SELECT *, {key.format("digest" if versions else own_digest)} FROM predictions
            ) p ON p.key = q.key
            """,
            problems=self.problems(
                (*IDENTITY, *more), with_texts=bool(versions), with_first_digest=1 in versions
            ),
            predictions=predictions,
        )

    def sizes_in(self, table: str) -> dict[str | None, tuple[int, int]]:
        """Count by file, or None, the rows of a table of answers, and those without prediction."""
        rows = fetch(
            self.connection,
            f"SELECT file, count(*) AS n, count(*) FILTER (answer IS NULL) AS missing FROM {table} "
            "GROUP BY file",
        ).to_pylist()
        names = dict(enumerate(self.files))
        found = {names.get(row["file"]): (row["n"], row["missing"]) for row in rows}
        return {file: found.get(file, (0, 0)) for file in (None, *self.files)}

    def has_torn_seeds(self, table: str) -> bool:
        """Tell whether some seed has its prediction in one file of the dataset, but not in another.

        Only files that contradict each other do that to a join by all that must agree.
        """
        splits = (split_files(self.folder, each) for each in all_configurations(self.folder))
        files = {str(self.files.index(file)) for split in splits for file in split["seeds"]}
        found = fetch(
            self.connection,
            f"SELECT seed FROM {table} WHERE file IN ({', '.join(files)}) GROUP BY seed "
            "HAVING count(answer) BETWEEN 1 AND count(*) - 1 LIMIT 1",
        )
        return len(found) > 0

    def ids_at(self, places: Sequence[tuple[int, int]]) -> pa.ChunkedArray:
        """Read the ids of problems by the positions of their files and their rows."""
        values = ", ".join(f"({file}, {row}, {n})" for n, (file, row) in enumerate(places))
        found = fetch(
            self.connection,
            f"SELECT variant_id FROM problems JOIN (VALUES {values}) wanted (file, row, n) "
            "USING (file, row) ORDER BY n",
            problems=self.problems(["variant_id"]),
        )
        return found["variant_id"]


# --- Digests of draws ---

DRAWS: Final = "draws"
"""Key in the description of problems: file of variants → digest of its draw."""

_NAMES: Final = ("variant_id", "subsamples")
_SCHEMA: Final = pa.schema(
    [("file", pa.int64()), ("variant_id", pa.string()), ("subsamples", pa.list_(pa.int64()))]
)


def draw_digests(folder: Path, files: Iterable[str]) -> dict[str, str]:
    """Digest the draw of files of variants, whatever the order of their rows: eight digits each."""
    drawn = [file for file in dict.fromkeys(files) if _has_subsamples(folder / file)]

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
    """List the files whose draw is another than predictions remember."""
    if not isinstance(recorded, dict):
        return []
    now = draw_digests(folder, (file for file in files if file in recorded))
    return [file for file, digest in now.items() if digest != recorded[file]]


def _has_subsamples(path: Path) -> bool:
    schema = read_schema(path)
    if "subsamples" not in schema.names:
        return False
    kind = schema.field("subsamples").type
    return bool(pa.types.is_list(kind) and pa.types.is_integer(kind.value_type))


# --- How much of a dataset predictions answer ---


EXAMPLES: Final = 3
"""Ids that a message shows."""


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """How many of the dataset's problems a model answers, and how many it does not."""

    folder: Path
    sizes: Mapping[str, tuple[int, int]]
    """File of the dataset → its problems, and those of them without a prediction."""

    def _sum(self, config: str, split: str) -> tuple[int, int]:
        found = [self.sizes[file] for file in split_files(self.folder, config)[split]]
        return sum(size for size, _ in found), sum(missing for _, missing in found)

    def n_missing(self, config: str, split: str) -> int:
        """Count the problems of a split that have no prediction."""
        return self._sum(config, split)[1]

    def has(self, config: str, split: str) -> bool:
        """Whether there is a prediction for some problem of a split."""
        size, missing = self._sum(config, split)
        return size > missing

    def is_complete(self, config: str) -> bool:
        """Whether every problem of a configuration has its prediction."""
        return not any(self.n_missing(config, split) for split in SPLITS)

    def describe_missing(self, config: str) -> str:
        """Say how much a configuration lacks: "3 of 10 seeds and 4 of 20 variants"."""
        return " and ".join(
            f"{missing:,} of {count:,} {split}"
            for split in SPLITS
            for count, missing in [self._sum(config, split)]
            if missing
        )


def choose(tally: Tally) -> list[str]:
    """Choose the configurations that a predictions file is meant for.

    For each source that it mentions: all word classes, where every prediction is there or
    some of every class; else the classes of which it has variants, complete or not, so
    that a file cut short is noticed. Also the paraphrases, where it has some: their seeds
    alone, which replacements may share, do not mean them.
    """
    chosen = []
    for source in sources(tally.folder):
        names = (collection_name(source), collection_name(source, PARAPHRASE))
        of_source = [
            configurations(tally.folder, name)
            for name in collections(tally.folder)
            if name in names
        ]
        begun = []
        for everything, *classes in of_source:
            parts = classes or [everything]
            found = [config for config in parts if tally.has(config, "variants")]
            whole = tally.is_complete(everything) or found == parts
            begun += [everything] if whole else found
        # A file with nothing but seeds was cut short, too.
        chosen += begun or [
            everything for everything, *_ in of_source if tally.has(everything, "seeds")
        ]
    return chosen


def check_configurations(folder: Path, configs: Sequence[str]) -> list[str]:
    """Check the configurations asked for; each once."""
    known = all_configurations(folder)
    require_configurations(folder, known, configs)
    return list(dict.fromkeys(configs))


# --- Files of the dataset ---


def require_columns(folder: Path, file: str, names: Sequence[str], found: Sequence[str]) -> None:
    """Raise ValueError unless a file of a dataset has all columns that are wanted."""
    for name in names:
        if name not in found:
            raise ValueError(
                f"{folder / file}: expected the columns {', '.join(names)}, got none called "
                f"{name}; `merge-nli check {folder}` says more"
            )


@contextmanager
def naming_dataset(folder: Path, file: str) -> Iterator[None]:
    """Name a file of a dataset that is damaged or gone, and say where to learn more."""
    try:
        with naming_damage(folder / file):
            yield
    except FileNotFoundError as error:
        raise ValueError(f"{folder / file}: expected a file, found none") from error
    except ValueError as error:
        raise ValueError(f"{error}; `merge-nli check {folder}` says more") from error


def read_batches_of(folder: Path, file: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read some columns of a file of a dataset folder, some rows at a time."""
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
    """Read some columns of some files of a dataset folder, one after the other."""
    tables = []
    for file in files:
        with naming_dataset(folder, file), open_parquet(folder / file) as parquet:
            table = parquet.read(columns=list(names))
        require_columns(folder, file, names, table.column_names)
        tables.append(table.select(list(names)))
    return pa.concat_tables(tables)


def preview(values: Any) -> str:
    """Show the first few values of a column, and that there are more.

    >>> preview(pa.array(["a", "b", "c", "d"]))
    "'a', 'b', 'c', …"
    """
    shown = ", ".join(repr(value.as_py()) for value in values[:EXAMPLES])
    return f"{shown}, …" if len(values) > EXAMPLES else shown


def is_about(error: BaseException, folder: Path | None) -> bool:
    """Tell whether a message begins with a dataset folder, or with a file in it."""
    return folder is not None and str(error).startswith((f"{folder}{os.sep}", f"{folder}: "))
