"""A predictions file, with a model's answer to each problem: opened, read, written, described.

One row per problem, in Parquet (`.parquet`), as JSON lines (`.jsonl`, `.jsonl.gz`) or, to be
read only, CSV (`.csv`, `.tsv`): `variant_id` (of a seed, its own id), `seed_id`, `label` (both
from the dataset, where it is given and the file lacks them) and
`prediction` (positions among the labels of the problems' format, or names; null, -1 or an empty
string for an answer that names no label; labels may be merged on reading) and, optionally,
`probabilities` (one per label, in that order), `text_digest` (see `frame.texts`) and what
`PredictionsFile.further` reads: `answer_text` and `repeats`. Of NLI the labels are `LABELS`.

The engine reads Parquet files as they lie, and tables of Arrow likewise. Files of text become a
temporary Parquet file first, by the readers of `merge_dataset`.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final
from weakref import finalize

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset import data_files
from merge_dataset.engine import connect, naming_damaged, no_pattern, parquet
from merge_dataset.files import (
    RowGroupWriter,
    atomic,
    naming_damage,
    open_parquet,
    read_schema,
)
from merge_dataset.layout import as_dataset, collections, format_in
from merge_dataset.schema import LABELS, parse_config_name
from merge_dataset.settings import as_path, described
from merge_metric.frame.checks import (
    ANSWER_TEXT,
    ANSWERS,
    COLUMNS,
    FURTHER,
    IDS,
    OF_DATASET,
    PROBABILITIES,
    REPEATS,
    REQUIRED,
    ROW,
    Checked,
    Condition,
    Place,
    checked_rows,
    explain,
    require_columns,
    require_distinct,
    require_type,
    row_number,
    value_type,
)
from merge_metric.frame.relations import DatasetRelations, unknown_ids
from merge_metric.frame.texts import TEXT_DIGEST
from merge_metric.seed_variant_accuracy.merging import Merging
from merge_metric.seed_variant_accuracy.options import NO_LABEL

log = logging.getLogger(__name__)

LABELS_KEY: Final = b"labels"
"""Key of a table's metadata under which `labelled` stores labels."""

MERGE_LABELS: Final = "merge_labels"
"""Key of the description of predictions whose labels are merged on reading."""

METADATA_KEY: Final = b"merge_nli"
"""Key in the Parquet metadata: JSON object that describes how a file was made."""

SUFFIXES: Final = (".parquet", ".jsonl.gz", ".jsonl")
"""Suffixes of files that can be written."""
CSV: Final = (".csv", ".tsv")
"""Suffixes of files that can only be read."""

_TYPES: Final = {
    **dict.fromkeys(IDS, (pa.string(),)),
    **dict.fromkeys(ANSWERS, (pa.int64(), pa.string())),
    TEXT_DIGEST: (pa.string(),),
    PROBABILITIES: (data_files.NUMBERS,),
    ANSWER_TEXT: (pa.string(),),
    REPEATS: (data_files.NUMBERS,),
}
"""Column → allowed types in JSON lines."""


# --- Labels and names ---


def labels_of(predictions: pa.Table) -> tuple[str, ...]:
    """Read from a table of `validate` the labels that its codes refer to."""
    recorded = (predictions.schema.metadata or {}).get(LABELS_KEY)
    return LABELS if recorded is None else tuple(json.loads(recorded))


def labelled(table: pa.Table, labels: Sequence[str]) -> pa.Table:
    """Store a table's labels in its metadata for `labels_of`, unless they are of NLI."""
    if tuple(labels) == LABELS:
        return table
    noted = {LABELS_KEY: json.dumps(list(labels))}
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **noted})


def suffix_of(path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> str:
    """Return the suffix of a predictions file, by default one that can be written."""
    for suffix in suffixes:
        if path.name.endswith(suffix):
            return suffix
    if path.is_dir():
        raise ValueError(f"{path}: expected a predictions file, got a folder")
    raise ValueError(
        f"{path}: expected the name of a predictions file to end in {', '.join(suffixes)}, "
        f"got {repr(path.suffix) if path.suffix else 'no suffix'}"
    )


def place_in(path: Path) -> Place:
    """Return a function that names a row (from 0) by its line of text or its row of Parquet."""
    if path.suffix == ".parquet":
        return row_number
    return lambda row: f"line {data_files.line_number(path, row)}"


# --- Reading ---


@dataclass(slots=True, eq=False, weakref_slot=True)
class PredictionsFile:
    """An opened predictions file, or a table of Arrow, whose rows the engine reads."""

    path: Path
    """The file as named in messages."""
    stored: Path
    """The file or a temporary Parquet file that lives as long as this object."""
    schema: pa.Schema
    rows: int
    names: list[str]
    """Columns of `COLUMNS` and `FURTHER` in the file; optional ones if not empty."""
    connection: duckdb.DuckDBPyConnection = field(default_factory=connect)
    labels: tuple[str, ...] = LABELS
    """Labels of the problems, merged, to which checked codes refer."""
    written: tuple[str, ...] = LABELS
    """Labels to which positions and probabilities in the file refer."""
    merging: Merging = field(default_factory=Merging)
    description: Mapping[str, Any] = field(default_factory=dict)
    """Description of how it was made; empty if it has none."""
    place: Place = row_number
    where: str = ""
    """Beginning of messages about rows."""
    source: str = ""
    """The rows, with their numbers, for `FROM`."""

    def sql(self, query: str) -> pa.Table:
        """Fetch the rows of a query; name the file where it is damaged."""
        with naming_damaged({self.stored: self.path}):
            return self.connection.sql(query).to_arrow_table()

    def execute(self, query: str) -> None:
        """Run a statement; name the file where it is damaged."""
        with naming_damaged({self.stored: self.path}):
            self.connection.execute(query)

    @property
    def codes(self) -> list[int]:
        """Map positions of names in the file to positions in `labels`; the last is for none."""
        known = self.merging.known(self.written) if self.merging else self.written
        merged = self.merging.of(known) if self.merging else known
        places = [*map(self.labels.index, merged), NO_LABEL]
        return [places[code] for code in self.merging.codes(known).tolist()]

    def checked(self) -> Checked:
        """Write the checked rows in SQL."""
        names = [name for name in self.names if name in COLUMNS]
        with naming_damaged({self.stored: self.path}):
            return checked_rows(
                self.connection,
                self.source,
                self.schema,
                names,
                self.written,
                self.merging,
                self.codes,
            )

    def explain(self, condition: Condition) -> None:
        """Raise the error that names the first row on which a condition holds."""
        if condition.column not in REQUIRED:
            self.require_distinct()
        known = self.merging.known(self.written) if self.merging else self.written
        error = explain(self.connection, self.checked().given, condition, self.place, known)
        raise ValueError(f"{self.where}{error}") from None

    def require_distinct(self) -> None:
        """Raise ValueError if an id comes twice."""
        count = f"SELECT count(DISTINCT variant_id) < count(*) AS again FROM {self.source}"
        if self.sql(count)["again"][0].as_py():
            ids = self.sql(f"SELECT variant_id FROM {self.source} ORDER BY {ROW}")["variant_id"]
            require_distinct(ids, self.place, self.where)

    def table(self) -> pa.Table:
        """Read and check all rows; see `validate`."""
        checked = self.checked()
        required = [name for name in REQUIRED if name in self.names]
        digest = [TEXT_DIGEST] if TEXT_DIGEST in self.names else []
        shares = [f"p{n}" for n in range(len(self.labels))] if PROBABILITIES in self.names else []
        further = f" JOIN (SELECT {ROW} AS row, {TEXT_DIGEST} FROM {self.source}) USING (row)"
        rows = self.sql(
            f"SELECT {', '.join([*required, *digest, *shares, 'wrong'])} "
            f"FROM {checked.rows}{further if digest else ''} ORDER BY row"
        )
        if (first := pc.min(rows["wrong"]).as_py()) is not None:
            self.explain(checked.conditions[first])
        self.require_distinct()
        columns: dict[str, Any] = {name: rows[name] for name in (*IDS, *digest)}
        columns |= {name: rows[name].cast(pa.int64()) for name in ANSWERS if name in required}
        if shares:
            values = np.stack([rows[name].to_numpy() for name in shares], axis=1)
            columns[PROBABILITIES] = pa.FixedSizeListArray.from_arrays(
                values.ravel(), len(self.labels)
            )
        names = [name for name in COLUMNS if name in columns]
        return labelled(pa.table({name: columns[name] for name in names}), self.labels)

    def further(self, name: str) -> Iterator[tuple[str, Any]]:
        """Yield ids of problems and `ANSWER_TEXT` or `REPEATS`, for rows that have a value."""
        file = self
        if name == ANSWER_TEXT and self.path.suffix != ".parquet":
            file = _convert_text(self.path, ("variant_id", name))
        if name not in file.names:
            return
        try:
            if self.path.suffix == ".parquet":  # readers of text check it
                require_type(name, file.schema.field(name).type, self.written)
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from error
        rows = file.sql(
            f"SELECT variant_id, {name} FROM {file.source} WHERE {name} IS NOT NULL ORDER BY {ROW}"
        )
        for batch in rows.to_batches(max_chunksize=10_000):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def read_predictions(
    path: str | Path,
    dataset: str | Path | None = None,
    *,
    merge_labels: str | Sequence[str] = (),
) -> pa.Table:
    """Read and check a predictions file; arguments and errors as in `open_predictions`.

    Returns:
        The columns as returned by `validate`.

    Raises:
        TypeError: a path is none.
        ValueError: also where an id comes twice.
    """
    file = as_path("path", path)
    folder = None if dataset is None else as_dataset("dataset", dataset)
    opened = open_predictions(file, folder, Merging.parse(merge_labels))
    if lacking := [name for name in OF_DATASET if name not in opened.names]:
        assert folder is not None
        own = [name for name in opened.names if name in COLUMNS]
        read = {opened.stored: file}
        table = DatasetRelations.of(folder).completed(opened.source, own, lacking, read)
        unknown = table.filter(table["unknown"])["variant_id"]
        if unknown.null_count:
            opened.table()  # says in which row
        if len(unknown):
            raise unknown_ids(file, folder, len(unknown), opened.rows, unknown)
        opened = _table_as_file(table, opened)
    return opened.table()


def open_predictions(
    path: Path,
    dataset: Path | None = None,
    merging: Merging | None = None,
    *,
    merged: bool = True,
) -> PredictionsFile:
    """Open a predictions file.

    Labels are those of the dataset's problems; without a dataset, those in the file, or NLI's. They
    are merged as asked or else as the file's description says, unless `merged` is false.
    """
    suffix_of(path, (*SUFFIXES, *CSV))
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a predictions file, found no file there")
    if path.suffix != ".parquet":
        file = _convert_text(path)
    else:
        with naming_damage(path), open_parquet(path) as opened:
            schema, rows = opened.schema_arrow, opened.metadata.num_rows
        names = [name for name in _TYPES if name in schema.names]
        folded = [name.casefold() for name in schema.names]  # as the engine takes them
        if twice := [name for name in names if folded.count(name) > 1]:
            raise ValueError(f"{path}: expected each column once, got {twice[0]} twice")
        file = PredictionsFile(path, path, schema, rows, names, source=_rows_of(path))
        # The engine crashes where a row group does not describe a column.
        chunks = f"SELECT 1 FROM parquet_metadata({no_pattern(path)}) WHERE path_in_schema = ''"
        if len(file.sql(chunks)):
            raise ValueError(f"{path}: expected a whole Parquet file, got a damaged one")
    file.place, file.where = place_in(path), f"{path}: "
    lacking = [name for name in OF_DATASET if name not in file.names]
    known = file.schema.names if file.stored == path else file.names
    if {"variant_id", "prediction"} <= {*file.names} and lacking:
        if dataset is None:
            raise ValueError(
                f"{path}: expected the columns {', '.join(REQUIRED)}, found no "
                f"{' and no '.join(lacking)}; give the dataset, which has them, too"
            )
        known = [*known, *lacking]
    require_columns(path, known, file.rows)
    file.description = description_in(file.schema, path)
    recorded = file.description.get(MERGE_LABELS)
    asked = merging or Merging.parse(recorded if isinstance(recorded, str) else ())
    file.merging = asked if merged else Merging()
    try:
        _set_labels(file, dataset)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected labels in its metadata, got {error}") from error
    _require_types(file)
    return file


def _rows_of(stored: Path) -> str:
    return f"(SELECT *, {ROW} FROM {parquet([stored])})"


def _require_types(file: PredictionsFile) -> None:
    for name in (name for name in file.names if name in COLUMNS):
        if name in (TEXT_DIGEST, PROBABILITIES):
            some = f"SELECT 1 FROM {file.source} WHERE {name} IS NOT NULL LIMIT 1"
            if not len(file.sql(some)):
                file.names = [other for other in file.names if other != name]
                continue
        try:
            require_type(name, file.schema.field(name).type, file.written)
        except ValueError as error:
            raise ValueError(f"{file.where}{error}") from error


def _convert_text(path: Path, names: Sequence[str] = ()) -> PredictionsFile:
    """Convert columns of a text file to Parquet; answers in words, which are long, if named."""
    types = {n: _TYPES[n] for n in names or [name for name in _TYPES if name != ANSWER_TEXT]}
    given = {*data_files.column_names(path)}
    optional = {*types}.difference(REQUIRED)
    if {"variant_id", "prediction"} <= given:
        optional |= {*OF_DATASET} - given
    tables = data_files.read_batches(path, types, optional=optional)
    folder = mkdtemp(prefix="merge-nli-")
    try:
        stored, first = Path(folder) / "columns.parquet", next(tables)
        with RowGroupWriter(stored, first.schema) as writer:
            for table in chain([first], tables):
                writer.write(table)
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    file = PredictionsFile(path, stored, first.schema, writer.rows, [], source=_rows_of(stored))
    finalize(file, rmtree, folder, ignore_errors=True)
    file.names = [
        name
        for name in _TYPES
        if name in first.column_names
        and (name in given or len(file.sql(f"FROM {file.source} WHERE {name} IS NOT NULL LIMIT 1")))
    ]
    return file


def _table_as_file(table: pa.Table, like: PredictionsFile | None = None) -> PredictionsFile:
    names = [name for name in COLUMNS if name in table.column_names]
    path = Path() if like is None else like.path
    file = PredictionsFile(path, path, table.schema, len(table), names, source="given")
    if like is not None:
        file.labels, file.written, file.merging = like.labels, like.written, like.merging
        file.place, file.where = like.place, like.where
    numbered = table.select(names).append_column(ROW, pa.array(np.arange(len(table))))
    file.connection.register("given", numbered)
    return file


def _set_labels(file: PredictionsFile, dataset: Path | None) -> None:
    """Find the labels that the file is written with, and those of its problems, merged."""
    known = file.written = _labels(file, dataset)
    metadata = file.schema.metadata or {}
    if LABELS_KEY in metadata:
        file.written = labels_of(file.schema.empty_table())
    if not file.merging:
        file.labels = file.written
        return
    file.merging.require(known)
    file.labels = file.merging.of(known)
    if other := {*file.merging.of(file.merging.known(file.written))} - {*file.labels}:
        raise ValueError(
            f"{file.path}: expected predictions out of the labels {', '.join(file.labels)}, after "
            f"merging ({file.merging}), got some of a model that also knows {', '.join(other)}"
        )


def _labels(file: PredictionsFile, dataset: Path | None) -> tuple[str, ...]:
    formats: dict[str, set[tuple[str, ...]]] = {}
    if dataset is not None and dataset.is_dir():
        for name in collections(dataset):
            labels = format_in(dataset, name).labels
            formats.setdefault(parse_config_name(name)[0], set()).add(labels)
    known = set[tuple[str, ...]]().union(*formats.values())
    name = "seed_id" if "seed_id" in file.names else "variant_id"
    if len(known) > 1 and value_type(file.schema.field(name).type) == pa.string():
        source = f"split_part({name}::VARCHAR, ':', 1)"
        rows = file.sql(f"SELECT DISTINCT {source} AS source FROM {file.source} ORDER BY 1")
        known = set[tuple[str, ...]]().union(
            *(formats.get(source, ()) for source in rows["source"].to_pylist())
        )
    if len(known) > 1:
        sets = "; ".join(", ".join(labels) for labels in sorted(known))
        raise ValueError(
            f"{file.path}: expected predictions for problems with the same labels, got some "
            f"with different ones: {sets}; write a file for each"
        )
    if known:
        return next(iter(known))
    if LABELS_KEY in (file.schema.metadata or {}):
        return labels_of(file.schema.empty_table())
    if any(value_type(file.schema.field(name).type) != pa.string() for name in ANSWERS):
        return LABELS
    named: dict[str, set[str]] = {}
    for name in ANSWERS:
        rows = file.sql(f"SELECT DISTINCT {name}::VARCHAR AS text FROM {file.source}")
        named[name] = {text for text in rows["text"].to_pylist() if text and text != "-1"}
    if file.path.suffix in CSV and any(
        all(text.strip().isdecimal() for text in texts) for texts in named.values()
    ):
        return LABELS
    gold, answers = ({text.strip().casefold() for text in named[name]} for name in ANSWERS)
    # Of two classes, such as entailment and not_entailment, one alone has a name of NLI's.
    is_two = len(gold) == 2 and len(gold.intersection(LABELS)) == 1
    if not is_two and (gold | answers).intersection(LABELS):
        return LABELS
    every = tuple(sorted({*named["label"], *named["prediction"]}))
    if len(every) < 2:
        raise ValueError(
            f"{file.path}: expected two or more labels, got {', '.join(every) or 'none'}; name the "
            "dataset, which knows them"
        )
    return every


# --- Writing ---


def write_predictions(path: str | Path, table: pa.Table) -> None:
    """Check predictions and write them, whole or not at all; the same bytes for the same table.

    Args:
        path: Parquet or JSON lines, by its suffix; replaced where it exists.
        table: At least the required columns; further ones are written as they are, and in
            Parquet the schema's metadata.

    Raises:
        TypeError: the path is none, or the table none of Arrow's.
        ValueError: the suffix is unknown, or `validate` finds something wrong.
    """
    path = as_path("path", path)
    suffix_of(path)
    if not isinstance(table, pa.Table):
        raise TypeError(f"table: expected a pyarrow.Table, got {described(table)}")
    checked = validate(table, "predictions to write", labels_of(table))
    for name in table.column_names:
        if name not in COLUMNS:
            checked = checked.append_column(name, table[name])
    schema = checked.schema.with_metadata(table.schema.metadata or {})
    write_batches(path, schema, [checked])


def validate(table: pa.Table, where: str, labels: Sequence[str]) -> pa.Table:
    """Check the columns of a predictions file, and convert them to one form, in row order.

    Label names may be in any case, or positions; messages begin with `where`. Returns `variant_id`,
    `seed_id` (string), `label`, `prediction` (int64) and, where given, `text_digest` (string) and
    `probabilities` (fixed-size list of float64).
    """
    require_columns(where, table.column_names, len(table))
    file = _table_as_file(table)
    file.where, file.labels = f"{where}: ", tuple(labels)
    file.written = file.labels
    for name in (name for name in FURTHER if name in table.column_names):
        try:
            require_type(name, table.schema.field(name).type, labels)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    _require_types(file)
    return file.table()


def write_batches(path: Path, schema: pa.Schema, batches: Iterable[pa.Table]) -> None:
    """Write predictions, in the form of `validate`, batch by batch; see `write_predictions`."""
    suffix, labels = suffix_of(path), labels_of(schema.empty_table())
    written = (_named(batch, labels) for batch in batches)
    if suffix != ".parquet":
        data_files.write_rows(path, written, compress=suffix == ".jsonl.gz")
        return
    metadata = {**(schema.metadata or {}), LABELS_KEY: json.dumps(labels).encode()}
    empty = _named(schema.empty_table(), labels)
    with (
        atomic(path) as temporary,
        RowGroupWriter(temporary, empty.schema, metadata) as writer,
    ):
        for batch in written:
            writer.write(batch)


def _named(predictions: pa.Table, labels: Sequence[str]) -> pa.Table:
    """Replace codes by names of labels, except for NLI, whose numbers have a fixed meaning."""
    if tuple(labels) == LABELS:
        return predictions
    for name in ANSWERS:
        codes = predictions[name].combine_chunks()
        named = pa.array(labels).take(pc.if_else(pc.equal(codes, NO_LABEL), None, codes))
        place = predictions.column_names.index(name)
        predictions = predictions.set_column(place, name, named)
    return predictions


# --- Descriptions ---


def description_in(schema: pa.Schema, path: Path) -> dict[str, Any]:
    """Read the description of a file; warn and return an empty one if it is malformed."""
    try:
        return metadata_of(schema)
    except ValueError:
        log.warning("%s: expected a JSON object in its metadata %r", path, METADATA_KEY.decode())
        return {}


def metadata_of(schema: pa.Schema) -> dict[str, Any]:
    """Read from a schema the description of how the table was made."""
    value = json.loads((schema.metadata or {}).get(METADATA_KEY, b"{}"))
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {value!r}")
    return value


def read_metadata(path: Path) -> dict[str, Any]:
    """Read a Parquet file's description of how it was made; empty without it, or for text."""
    if path.suffix != ".parquet" or not path.is_file():
        return {}
    try:
        schema = read_schema(path)
    except ValueError:
        return {}  # reading the file itself raises the right error
    return description_in(schema, path)


def with_metadata(table: pa.Table, value: Mapping[str, Any]) -> pa.Table:
    """Set the description of how a table was made as its only metadata."""
    return table.replace_schema_metadata({METADATA_KEY: json.dumps(value, ensure_ascii=False)})


def model_name(path: Path) -> str:
    """Return a model's name: from the predictions file's metadata, else from the file name."""
    stem = path.name
    for suffix in (*SUFFIXES, *CSV):
        stem = stem.removesuffix(suffix)
    metadata = read_metadata(path)
    name = str(metadata.get("short_name") or metadata.get("name") or "").rstrip("/\\")
    # If it is a folder on someone's machine, only the last part.
    return (Path(name).name if Path(name).is_absolute() else name) or stem
