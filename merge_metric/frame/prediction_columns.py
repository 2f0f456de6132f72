"""The columns of a predictions file: opened, checked, and brought into one form.

One row per problem, in Parquet (`.parquet`), as JSON lines (`.jsonl`, `.jsonl.gz`) or, to be
read only, CSV (`.csv`, `.tsv`): `variant_id` (of a seed, its own id), `seed_id`, `label` (both
from the dataset, where it is given and the file lacks them) and
`prediction` (positions among the labels of the problems' format, or names; null, -1 or an empty
string for an answer that names no label; labels may be merged on reading) and, optionally,
`probabilities` (one per label, in that order), `text_digest` (see `frame.texts`) and what
`PredictionsFile.further` reads: `answer_text` and `repeats`. Of NLI the labels are `LABELS`.
"""

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final
from weakref import finalize

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merge_dataset import data_files
from merge_dataset.files import ROWS, RowGroupWriter, naming_damage, open_parquet
from merge_dataset.layout import collections, format_in
from merge_dataset.schema import LABELS, parse_config_name
from merge_metric.frame.column_checks import (
    ANSWER_TEXT,
    ANSWERS,
    COLUMNS,
    IDS,
    OF_DATASET,
    PROBABILITIES,
    REPEATS,
    REQUIRED,
    Place,
    are_positions,
    check_column,
    check_further,
    decoded,
    replaced,
    require_columns,
    require_distinct,
    row_number,
)
from merge_metric.frame.relations import DatasetRelations, fetch, unknown_ids
from merge_metric.frame.texts import TEXT_DIGEST, digest_of
from merge_metric.seed_variant_accuracy.merging import Merging
from merge_metric.seed_variant_accuracy.options import NO_LABEL

LABELS_KEY: Final = b"labels"
"""Key of a table's metadata under which `labelled` stores labels."""

MERGE_LABELS: Final = "merge_labels"
"""Key of the description of predictions whose labels are merged on reading."""

METADATA_KEY: Final = b"merge_nli"
"""Key in the Parquet metadata: JSON object that describes how a file was made."""
DIGEST_KEY: Final = b"merge_nli_digest"
"""Key in the Parquet metadata: SHA-256 of rows, labels and description, see `digest_of`."""

SUFFIXES: Final = (".parquet", ".jsonl.gz", ".jsonl")
"""Suffixes of files that can be written."""
CSV: Final = (".csv", ".tsv")
"""Suffixes of files that can only be read."""

_ENOUGH: Final = ("variant_id", "prediction")
"""Required columns that no dataset has."""

_TYPES: Final = {
    **dict.fromkeys(IDS, (pa.string(),)),
    **dict.fromkeys(ANSWERS, (pa.int64(), pa.string())),
    TEXT_DIGEST: (pa.string(),),
    PROBABILITIES: (data_files.NUMBERS,),
    ANSWER_TEXT: (pa.string(),),
    REPEATS: (data_files.NUMBERS,),
}
"""Column, in the order of digests → allowed types in JSON lines."""

log = logging.getLogger(__name__)


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
    """An opened predictions file, whose columns can be read in batches, several times."""

    path: Path
    """The file as named in messages."""
    stored: Path
    """The file or a temporary Parquet file that lives as long as this object: of text, and where
    columns are added."""
    schema: pa.Schema
    rows: int
    names: Sequence[str]
    """Columns of `COLUMNS`, `ANSWER_TEXT` and `REPEATS` in the file; optional ones if not empty."""
    positions: frozenset[str] = frozenset()
    """Columns whose labels are digits: positions."""
    labels: tuple[str, ...] = LABELS
    """Labels of the problems, merged, to which codes in `tables` refer."""
    written: tuple[str, ...] = LABELS
    """Labels to which positions and probabilities in the file refer."""
    merging: Merging = field(default_factory=Merging)
    description: Mapping[str, Any] = field(default_factory=dict)
    """Description of how it was made; empty if it has none."""

    def batches(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Read some columns as stored, batch by batch."""
        with naming_damage(self.path):
            file = open_parquet(self.stored)
        with file:
            batches = file.iter_batches(ROWS, columns=list(names))
            while True:
                with naming_damage(self.path):
                    batch = next(batches, None)
                    if batch is None:
                        return
                    batch.validate(full=True)
                table = pa.Table.from_batches([batch])
                for name in self.positions.intersection(names):
                    place = table.column_names.index(name)
                    table = table.set_column(place, name, replaced(table[name], int))
                yield table

    def is_empty(self, name: str) -> bool:
        """Return whether a column has no value in any row."""
        return all(batch[name].null_count == len(batch) for batch in self.batches([name]))

    def tables(self, names: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Read and check columns, by default all scored ones, as `validate` does."""
        for table in self.unmerged(names):
            yield labelled(self.merged(table), self.labels)

    def unmerged(self, names: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Read and check columns as in `tables`; codes refer to `merging.known(written)`."""
        names = names or [name for name in self.names if name in COLUMNS]
        for batch in self.batches(names):
            try:
                found = {n: self._checked(n, batch[n], row_number) for n in names}
            except ValueError:
                self.explain(names)
                raise
            yield pa.table(found)

    def _checked(
        self, name: str, column: pa.ChunkedArray, place: Place
    ) -> pa.ChunkedArray | pa.Array:
        return check_column(name, column, place, self.written, self.merging)

    @property
    def codes(self) -> NDArray[np.int64]:
        """Map codes of `unmerged` to those of `tables`; the last is for no label."""
        every = self.merging.known(self.written)
        places = [*map(self.labels.index, self.merging.of(every)), NO_LABEL]
        return np.array(places)[self.merging.codes(every)]

    def merged(self, table: pa.Table) -> pa.Table:
        """Merge the labels of a table of `unmerged`, and sum their probabilities."""
        if not self.merging:
            return table
        codes = self.codes
        for name in {*ANSWERS, PROBABILITIES}.intersection(table.column_names):
            place, column = table.column_names.index(name), table[name].combine_chunks()
            if name in ANSWERS:
                found = pa.array(codes[column.to_numpy()])
            else:
                width = column.type.list_size
                sums = np.zeros((len(table), len(self.labels)))
                ours = range(width) if width == len(self.labels) != len(self.written) else codes
                for number, of_label in enumerate(column.flatten().to_numpy().reshape(-1, width).T):
                    sums[:, ours[number]] += of_label
                found = pa.FixedSizeListArray.from_arrays(sums.ravel(), len(self.labels))
            table = table.set_column(place, name, found)
        return table

    def further(self, name: str) -> Iterator[tuple[str, Any]]:
        """Yield ids of problems and `ANSWER_TEXT` or `REPEATS`, for rows that have a value."""
        file = self
        if name == ANSWER_TEXT and self.path.suffix != ".parquet":
            file = _convert_text(self.path, ("variant_id", name))
        if name not in file.names:
            return
        if file.path.suffix == ".parquet":
            check_further(name, pa.concat_tables(file.batches([name]))[name], f"{self.path}: ")
        for batch in file.batches(["variant_id", name]):
            rows = batch.filter(batch[name].is_valid())
            yield from zip(*(column.to_pylist() for column in rows.columns), strict=True)

    def explain(self, names: Sequence[str]) -> None:
        """Raise an error that names the first wrong row, and the number of wrong rows."""
        place = place_in(self.path)
        for name in names:
            if name == next((each for each in names if each not in REQUIRED), None):
                ids = pa.concat_tables(self.batches(["variant_id"]))["variant_id"]
                require_distinct(ids, place, f"{self.path}: ")
            whole = pa.concat_tables(self.batches([name]))[name]
            try:
                self._checked(name, whole, place)
            except ValueError as error:
                raise ValueError(f"{self.path}: {error}") from error


def open_predictions(
    path: Path, dataset: Path | None = None, merging: Merging | None = None
) -> PredictionsFile:
    """Open a predictions file; raise ValueError if its rows do not fit the digest that it has.

    Labels are those of the dataset's problems; without a dataset, those in the file, or NLI's. They
    are merged as asked or else as the file's description says.
    """
    suffix_of(path, (*SUFFIXES, *CSV))
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a predictions file, found no file there")
    file = _open_parquet(path) if path.suffix == ".parquet" else _convert_text(path)
    if {*_ENOUGH} <= {*file.names} and (lacking := {*OF_DATASET}.difference(file.names)):
        if dataset is None:
            raise ValueError(
                f"{path}: expected the columns {', '.join(REQUIRED)}, "
                f"{data_files.describe_missing(REQUIRED, file.names)}; give the dataset, which "
                f"has {' and '.join(sorted(lacking))}, too"
            )
        file = _with_columns_of(dataset, file, lacking)
    known = file.schema.names if file.stored == path else file.names
    require_columns(path, known, file.rows)
    file.description = description_in(file.schema, path)
    recorded = file.description.get(MERGE_LABELS)
    file.merging = merging or Merging.parse(recorded if isinstance(recorded, str) else ())
    _set_labels(file, dataset)
    empty = [n for n in (TEXT_DIGEST, PROBABILITIES) if n in file.names and file.is_empty(n)]
    file.names = [name for name in file.names if name not in empty]
    noted = (file.schema.metadata or {}).get(DIGEST_KEY)

    def pieces(name: str) -> Iterator[pa.Array]:
        tables = file.unmerged([name]) if name in COLUMNS else file.batches([name])
        return (table[name].combine_chunks() for table in tables)

    if noted is not None and noted.decode(errors="replace") != digest_of(
        dict.fromkeys(file.names, file.rows),
        file.schema.metadata.get(METADATA_KEY, b""),
        file.written,
        pieces,
    ):
        raise ValueError(
            f"{path}: expected the predictions that were written, got others: the file is "
            f"damaged, or was changed by another program; copy it anew, or run the model again"
        )
    return file


def _open_parquet(path: Path) -> PredictionsFile:
    with naming_damage(path), open_parquet(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
    names = [name for name in _TYPES if name in schema.names]
    if twice := [name for name in names if schema.names.count(name) > 1]:
        raise ValueError(f"{path}: expected each column once, got {twice[0]} twice")
    return PredictionsFile(path, path, schema, rows, names)


def _convert_text(path: Path, names: Sequence[str] = ()) -> PredictionsFile:
    """Convert columns of a text file to Parquet; answers in words, which are long, if named."""
    types = {n: _TYPES[n] for n in names or [name for name in _TYPES if name != ANSWER_TEXT]}
    names_there = {*data_files.column_names(path)}
    optional = {*types}.difference(REQUIRED)
    if {*_ENOUGH} <= names_there:
        optional |= {*OF_DATASET} - names_there
    file = _stored(path, data_files.read_batches(path, types, optional=optional))
    if path.suffix in CSV:
        answers = types.keys() & ANSWERS & {*file.names}
        file.positions = frozenset(
            name for name in answers if all(map(are_positions, file.batches([name])))
        )
    else:
        file.names = [n for n in file.names if n in names_there or not file.is_empty(n)]
    return file


def _stored(path: Path, tables: Iterator[pa.Table]) -> PredictionsFile:
    """Write tables to a temporary Parquet file, which goes with the object returned."""
    folder = mkdtemp(prefix="merge-nli-")
    try:
        stored, first = Path(folder) / "columns.parquet", next(tables)
        with RowGroupWriter(stored, first.schema) as writer:
            for table in chain([first], tables):
                writer.write(table)
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    names = [name for name in _TYPES if name in first.column_names]
    file = PredictionsFile(path, stored, first.schema, writer.rows, names)
    finalize(file, rmtree, folder, ignore_errors=True)
    return file


def _with_columns_of(
    dataset: Path, file: PredictionsFile, lacking: Collection[str]
) -> PredictionsFile:
    """Add the seeds or gold labels of a file's problems, which it lacks, from the dataset."""
    ids = decoded(pa.concat_tables(file.batches(["variant_id"]))["variant_id"])
    if ids.type != pa.string() or ids.null_count:
        file.explain(["variant_id"])
    asked = pa.table({"variant_id": ids, "number": np.arange(len(ids))})
    problems = DatasetRelations.of(dataset)
    found = fetch(
        problems.connection,
        "SELECT variant_id, p.seed_id, p.label, p.file FROM asked LEFT JOIN (SELECT variant_id, "
        "arg_min({'seed_id': seed_id, 'label': label, 'file': file}, file) AS p FROM problems "
        "GROUP BY variant_id) USING (variant_id) ORDER BY number",
        asked=(asked.schema, iter(asked.to_batches())),
        problems=problems.problems(),
    )
    if count := found["seed_id"].null_count:
        some = found["variant_id"].filter(pc.is_null(found["seed_id"]))
        raise unknown_ids(file.path, dataset, count, len(ids), some)
    of_files = [dict(enumerate(problems.labels[name])) for name in problems.files]
    codes = zip(found["file"].to_pylist(), found["label"].to_pylist(), strict=True)
    labels = pa.array([of_files[number].get(code) for number, code in codes], pa.string())
    columns = {"seed_id": found["seed_id"], "label": labels}

    def tables() -> Iterator[pa.Table]:
        done = 0
        for table in file.batches(file.names):
            for name in lacking:
                table = table.append_column(name, columns[name].slice(done, len(table)))
            yield table
            done += len(table)

    made = _stored(file.path, tables())
    made.schema = made.schema.with_metadata(file.schema.metadata)
    return made


def _set_labels(file: PredictionsFile, dataset: Path | None) -> None:
    """Find the labels that the file is written with, and those of its problems, merged."""
    known = file.written = _labels(file, dataset)
    metadata = file.schema.metadata or {}
    if DIGEST_KEY in metadata or LABELS_KEY in metadata:
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
    """Find the labels of the predictions' problems; the ids of seeds name their sources."""
    formats: dict[str, dict[tuple[str, ...], None]] = {}
    if dataset is not None and dataset.is_dir():
        for name in collections(dataset):
            source = parse_config_name(name)[0]
            formats.setdefault(source, {})[format_in(dataset, name).labels] = None
    known: dict[tuple[str, ...], None] = {}
    for batch in file.batches(["seed_id"]) if formats else ():
        ids = decoded(batch["seed_id"])
        for source in [*formats] if ids.type == pa.string() else ():  # raises later
            if pc.any(pc.starts_with(ids, f"{source}:")).as_py():
                known |= formats.pop(source)
        if not formats:
            break
    if len(known) > 1:
        sets = "; ".join(", ".join(labels) for labels in known)
        raise ValueError(
            f"{file.path}: expected predictions for problems with the same labels, got some "
            f"with different ones: {sets}; write a file for each"
        )
    if known:
        return next(iter(known))
    if LABELS_KEY in (file.schema.metadata or {}):
        return labels_of(file.schema.empty_table())
    named: dict[str, set[str]] = {name: set() for name in ANSWERS}
    for batch in file.batches(ANSWERS):
        for part, column in zip(ANSWERS, map(decoded, batch.columns), strict=True):
            if pa.types.is_nested(column.type):
                file.explain(REQUIRED)
            if column.type != pa.string():
                return LABELS
            named[part] |= {name for name in column.unique().to_pylist() if name and name != "-1"}
    gold, said = ({name.strip().casefold() for name in named[part]} for part in ANSWERS)
    # Of two classes, such as entailment and not_entailment, one alone has a name of NLI's.
    is_two = len(gold) == 2 and len(gold.intersection(LABELS)) == 1
    if not is_two and (gold | said).intersection(LABELS):
        return LABELS
    every = tuple(sorted({*named["label"], *named["prediction"]}))
    if len(every) < 2:
        raise ValueError(
            f"{file.path}: expected two or more labels, got {', '.join(every) or 'none'}; name the "
            "dataset, which knows them"
        )
    return every


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
