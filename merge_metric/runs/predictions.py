"""The predictions file: what a model says of each problem. Read, validated, written.

One row per problem, in Parquet (`.parquet`), as JSON lines (`.jsonl`, `.jsonl.gz`) or, to be
read only, CSV (`.csv`, `.tsv`): `variant_id` (of a seed, its own id), `seed_id`, `label` and
`prediction` (positions among the labels of the problems' format, or names; null, -1 or an empty
string for an answer that names no label) and, optionally,
`probabilities` (one per label, in that order), `text_digest` (see `runs.texts`) and what
`read_further` reads: `answer_text` and `repeats`. Of NLI the labels are `LABELS`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final
from weakref import finalize

import pyarrow as pa
import pyarrow.compute as pc

from merge_dataset import data_files
from merge_dataset import json_lines as jsonl
from merge_dataset.files import (
    ROWS,
    RowGroupWriter,
    atomic,
    naming_damage,
    open_parquet,
    read_schema,
    state_of,
)
from merge_dataset.layout import collections, format_in
from merge_dataset.paths import as_path, described
from merge_dataset.schema import LABELS, parse_config_name
from merge_metric.runs.prediction_columns import (
    ANSWER_TEXT,
    ANSWERS,
    COLUMNS,
    IDS,
    LABELS_KEY,
    PROBABILITIES,
    REPEATS,
    REQUIRED,
    Place,
    are_positions,
    as_positions,
    check_column,
    check_further,
    decoded,
    labelled,
    labels_of,
    require_distinct,
    row_number,
    validate,
)
from merge_metric.runs.texts import TEXT_DIGEST, characters
from merge_metric.seed_variant_accuracy.options import NO_LABEL

log = logging.getLogger(__name__)

SUFFIXES: Final = (".parquet", ".jsonl.gz", ".jsonl")
"""Endings of files that can be written."""
_CSV: Final = (".csv", ".tsv")
"""Endings of files that can only be read."""

METADATA_KEY: Final = b"merge_nli"
"""In the Parquet metadata: a JSON object that describes how a file was made."""
_DIGEST_KEY: Final = b"merge_nli_digest"
"""In the Parquet metadata: SHA-256 of rows, labels and description, see `_digest_of`."""

_JSON_TYPES: Final = {
    **dict.fromkeys((*IDS, TEXT_DIGEST), (pa.string(),)),
    **dict.fromkeys(ANSWERS, (pa.int64(), pa.string())),
    PROBABILITIES: (jsonl.NUMBERS,),
}
_FURTHER: Final = {ANSWER_TEXT: pa.string(), REPEATS: jsonl.NUMBERS}
"""Columns that `read_further` reads → their types in text."""

_ROWS: Final = 10_000
"""Rows of CSV that are Python objects at a time."""


# --- Reading ---


def read_predictions(path: str | Path, dataset: str | Path | None = None) -> pa.Table:
    """Read and check a predictions file; arguments and errors as in `read_batches`.

    Returns:
        The columns as `validate` gives them.

    Raises:
        TypeError: a path is none.
        ValueError: also where an id comes twice.
    """
    file = as_path("path", path)
    folder = None if dataset is None else as_path("dataset", dataset)
    table = pa.concat_tables(read_batches(file, folder))
    require_distinct_ids(file, table["variant_id"])
    return table.select([name for name in COLUMNS if name in table.column_names])


def require_distinct_ids(path: Path, ids: pa.ChunkedArray) -> None:
    """Raise ValueError where an id comes twice in a file, with the rows that have it."""
    try:
        require_distinct(ids, place_in(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_batches(path: Path, dataset: Path | None = None) -> Iterator[pa.Table]:
    """Read and check a predictions file some rows at a time; whether ids are distinct is left.

    Args:
        path: Parquet, JSON lines or CSV, by its suffix. Columns of other names are left out.
        dataset: The dataset folder, which knows the labels of its problems. Without it they
            are those that the file names, where these are not of NLI.

    Yields:
        Tables as `validate` gives them, all with the same columns.
    """
    columns = _columns_of(path)
    if not columns.rows or not {*REQUIRED} <= {*columns.names}:
        found = columns.schema.names if columns.stored == path else columns.names
        validate(pa.table({name: [] for name in found}), str(path))  # says what is missing
    labels = _labels(columns, dataset)
    names = [name for name in columns.names if name in REQUIRED or not columns.is_empty(name)]
    _require_as_written(columns, tuple(names), labels)
    yield from _checked(columns, names, labels)


@lru_cache(maxsize=16)
def _require_as_written(columns: _Columns, names: Sequence[str], labels: Sequence[str]) -> None:
    """Raise ValueError unless rows have the digest that the file notes, if any; once per file."""
    metadata = columns.schema.metadata or {}
    further = [name for name in _FURTHER if name in columns.schema.names]

    def pieces(name: str) -> Iterator[pa.Array]:
        read = columns.batches([name]) if name in _FURTHER else None
        for each in read or _checked(columns, [name], labels):
            yield each[name].combine_chunks()

    noted = metadata.get(_DIGEST_KEY)
    if noted is not None and noted.decode(errors="replace") != _digest_of(
        dict.fromkeys([*names, *further], columns.rows), metadata, labels, pieces
    ):
        raise ValueError(
            f"{columns.path}: expected the predictions that were written, got others: the file is "
            f"damaged, or was changed by another program; copy it anew, or run the model again"
        )


def read_further(path: Path, name: str) -> Iterator[tuple[str, Any]]:
    """Read a column that a predictions file may have beside those that are scored.

    Args:
        path: The file, which `read_batches` has checked.
        name: `answer_text` or `repeats`.

    Yields:
        Id of a problem, and the value, of the rows that have one.
    """
    names = ["variant_id", name]
    if path.suffix in _CSV:
        if name not in data_files.read_header(path):
            return
        for line, row in data_files.read_rows(path, names[:1], names[1:]):
            if cell := row.get(name, "").strip():
                value = _numbers([cell], path, [line], name)[0] if name == REPEATS else cell
                yield row["variant_id"], value
        return
    if path.suffix == ".parquet":
        if name not in read_schema(path).names:
            return
        with naming_damage(path), open_parquet(path) as file:
            table = file.read(names)
        check_further(name, table[name], f"{path}: ")
        tables = iter([table])
    else:
        tables = jsonl.read_batches(path, {names[0]: [pa.string()], name: [_FURTHER[name]]})
    for table in tables:
        rows = table.select(names).filter(table[name].is_valid())
        yield from zip(*(column.to_pylist() for column in rows.columns), strict=True)


def place_in(path: Path) -> Place:
    """Make a function of a row, from 0, that says where it stands: its line, or of Parquet its row.

    Text is read again to that line, which only messages need.
    """
    if path.suffix == ".parquet":
        return row_number
    if path.suffix in _CSV:
        return lambda row: f"line {next(islice(data_files.read_rows(path, IDS), row, None))[0]}"
    return lambda row: f"line {jsonl.line_number(path, row)}"


def suffix_of(path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> str:
    """Find the suffix of a predictions file's name, by default of one to be written."""
    for suffix in suffixes:
        if path.name.endswith(suffix):
            return suffix
    if path.is_dir():
        raise ValueError(f"{path}: expected a predictions file, got a folder")
    raise ValueError(
        f"{path}: expected the name of a predictions file to end in {', '.join(suffixes)}, "
        f"got {repr(path.suffix) if path.suffix else 'no suffix'}"
    )


# --- CSV and JSON lines ---


def _text_batches(path: Path) -> Iterator[pa.Table]:
    """Read the columns of CSV or JSON lines, some rows at a time; see `_names_in_text`."""
    if path.suffix not in _CSV:
        yield from jsonl.read_batches(path, _JSON_TYPES)
        return
    rows = data_files.read_rows(path, REQUIRED, (TEXT_DIGEST, PROBABILITIES), full=True)
    is_empty = True
    while some := list(islice(rows, _ROWS)):
        arrays: dict[str, pa.Array] = {}
        for name in some[0][1]:
            values = [row[name].strip() or None for _, row in some]
            if name == PROBABILITIES:
                lines = [line for line, _ in some]
                arrays[name] = pa.array(_numbers(values, path, lines), jsonl.NUMBERS)
            else:
                arrays[name] = pa.array(values, pa.string())
        yield pa.table(arrays)
        is_empty = False
    if is_empty:
        yield pa.table({name: pa.array([], pa.string()) for name in REQUIRED})


def _names_in_text(path: Path, columns: _Columns) -> dict[str, bool]:
    """Find the columns that CSV or JSON lines have, and which are labels given as digits.

    Returns:
        Name → whether all of its values are positions that `as_positions` reads.
    """
    if path.suffix in _CSV:
        return {
            name: name in ANSWERS
            and all(are_positions(each[0]) for each in columns.batches([name]))
            for name in columns.names
        }
    first = jsonl.first_names(path)
    return {n: False for n in columns.names if n in first or not columns.is_empty(n)}


def _numbers(
    cells: Sequence[str | None], path: Path, lines: Sequence[int], name: str = PROBABILITIES
) -> list[list[float] | None]:
    """Read lists of numbers, as JSON has them: at once, as that is much faster, or one by one."""
    there = [cell for cell in cells if cell is not None]
    # A list that is opened in one cell and closed in another is none.
    if all(cell[0] == "[" and cell[-1] == "]" and "[" not in cell[1:] for cell in there):
        with suppress(ValueError):
            lists = json.loads(f"[{','.join(there)}]")
            if set(map(type, chain.from_iterable(lists))) <= {int, float}:
                values = iter(lists)
                return [None if cell is None else next(values) for cell in cells]
    found: list[list[float] | None] = []
    for cell, line in zip(cells, lines, strict=True):
        value = None
        with suppress(ValueError, RecursionError):
            value = json.loads(cell or "[]")
        if not isinstance(value, list) or any(type(each) not in (int, float) for each in value):
            raise ValueError(
                f"{path}: line {line}: {name}: expected a list of numbers, such as "
                f"{[0, 1] if name == REPEATS else [0.7, 0.2, 0.1]}, got {str(cell)[:60]!r}"
            )
        found.append(None if cell is None else value)
    return found


def _labels(columns: _Columns, dataset: Path | None) -> tuple[str, ...]:
    """Find the labels of the problems that predictions are for."""
    if dataset is not None and dataset.is_dir():
        known = _labels_in(columns, dataset)
        if len(known) > 1:
            sets = "; ".join(", ".join(labels) for labels in known)
            raise ValueError(
                f"{columns.path}: expected predictions for problems with the same labels, got some "
                f"with different ones: {sets}; write a file for each"
            )
        if known:
            return known[0]
    if LABELS_KEY in (columns.schema.metadata or {}):
        return labels_of(columns.schema.empty_table())
    named: set[str] = set()
    for batch in columns.batches(ANSWERS):
        for column in map(decoded, batch.columns):
            if pa.types.is_nested(column.type):
                _explain(columns, REQUIRED, LABELS)
            if column.type != pa.string():
                return LABELS
            named |= {name for name in column.unique().to_pylist() if name and name != "-1"}
    is_nli = any(name.strip().casefold() in LABELS for name in named)
    return LABELS if is_nli else tuple(sorted(named))


def _labels_in(columns: _Columns, dataset: Path) -> list[tuple[str, ...]]:
    """List the labels of the dataset's sources that ids of seeds begin with."""
    formats: dict[str, dict[tuple[str, ...], None]] = {}
    for name in collections(dataset):
        source = parse_config_name(name)[0]
        formats.setdefault(source, {})[format_in(dataset, name).labels] = None
    found: dict[tuple[str, ...], None] = {}
    for batch in columns.batches(["seed_id"]):
        ids = decoded(batch["seed_id"])
        if ids.type != pa.string():
            return []  # told later
        for source in [*formats]:
            if pc.any(pc.starts_with(ids, f"{source}:")).as_py():
                found |= formats.pop(source)
        if not formats:
            break
    return [*found]


# --- Some rows at a time ---


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class _Columns:
    """Columns of a predictions file, to be read some rows at a time, and more than once."""

    path: Path
    """The file as messages name it."""
    stored: Path
    """Parquet: the file itself or, of text, a temporary one."""
    schema: pa.Schema
    rows: int
    names: Sequence[str]
    positions: frozenset[str] = frozenset()
    """Columns of digits."""

    def batches(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Read some of the columns, batch by batch."""
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
                    table = table.set_column(place, name, as_positions(table[name]))
                yield table

    def is_empty(self, name: str) -> bool:
        """Whether no row has a value."""
        return all(batch[name].null_count == len(batch) for batch in self.batches([name]))


def _columns_of(path: Path) -> _Columns:
    """Open a predictions file; anew if it was changed since it was last opened."""
    suffix_of(path, (*SUFFIXES, *_CSV))
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a predictions file, found no file there")
    return _opened(path, *state_of(path))


@lru_cache(maxsize=16)
def _opened(path: Path, *_: int) -> _Columns:
    """Open a file; the columns of text are in one that is there as long as what is returned."""
    if path.suffix == ".parquet":
        with naming_damage(path), open_parquet(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
        if twice := [name for name in COLUMNS if schema.names.count(name) > 1]:
            raise ValueError(f"{path}: expected each column once, got {twice[0]} twice")
        return _Columns(path, path, schema, rows, [n for n in COLUMNS if n in schema.names])
    folder = mkdtemp(prefix="merge-nli-")
    try:
        stored = Path(folder) / "columns.parquet"
        tables = _text_batches(path)
        first = next(tables)
        with RowGroupWriter(stored, first.schema) as writer:
            for table in chain([first], tables):
                writer.write(table)
        columns = _Columns(path, stored, first.schema, writer.rows, first.column_names)
        found = _names_in_text(path, columns)
        positions = frozenset(name for name, is_position in found.items() if is_position)
        columns = replace(columns, names=list(found), positions=positions)
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    finalize(columns, rmtree, folder, ignore_errors=True)
    return columns


def _checked(columns: _Columns, names: Sequence[str], labels: Sequence[str]) -> Iterator[pa.Table]:
    """Read and check columns, batch by batch; where one is wrong, all rows are looked at for it."""
    for batch in columns.batches(names):
        try:
            checked = {name: check_column(name, batch[name], row_number, labels) for name in names}
        except ValueError:
            _explain(columns, names, labels)
            raise
        yield labelled(pa.table(checked), labels)


def _explain(columns: _Columns, names: Sequence[str], labels: Sequence[str]) -> None:
    """Say what is wrong in a file: which row is the first, and how many such rows there are."""
    place = place_in(columns.path)
    for name in names:
        if name == next((each for each in names if each not in REQUIRED), None):
            ids = pa.chunked_array(
                chunk for batch in columns.batches(["variant_id"]) for chunk in batch[0].chunks
            )
            require_distinct_ids(columns.path, ids)
        whole = pa.concat_tables(columns.batches([name]))[name]
        try:
            check_column(name, whole, place, labels)
        except ValueError as error:
            raise ValueError(f"{columns.path}: {error}") from error


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
    checked = validate(table, "predictions to write", labels=labels_of(table))
    for name in table.column_names:
        if name not in COLUMNS:
            checked = checked.append_column(name, table[name])
    metadata = table.schema.metadata or {}
    schema = checked.schema.with_metadata(metadata)
    write_batches(path, schema, len(table), lambda names: [checked.select(names)])


def write_batches(
    path: Path,
    schema: pa.Schema,
    rows: int,
    batches: Callable[[Sequence[str]], Iterable[pa.Table]],
) -> None:
    """Write predictions some rows at a time; see `write_predictions`.

    Args:
        path: Parquet or JSON lines, by its suffix.
        schema: The columns and, for Parquet, metadata; see `labelled`.
        rows: How many rows there are.
        batches: Names of columns → these, batch by batch, as `validate` gives them.
    """
    suffix, labels = suffix_of(path), labels_of(schema.empty_table())
    written = (_named(batch, labels) for batch in batches(schema.names))
    if suffix != ".parquet":
        jsonl.write(path, written, compress=suffix == ".jsonl.gz")
        return
    metadata = dict(schema.metadata or {})
    metadata[_DIGEST_KEY] = _digest_of(
        {name: rows for name in schema.names if name in (*COLUMNS, *_FURTHER)},
        metadata,
        labels,
        lambda name: (batch[name].combine_chunks() for batch in batches([name])),
    ).encode()
    empty = _named(schema.empty_table(), labels)
    with (
        atomic(path) as temporary,
        RowGroupWriter(temporary, empty.schema, metadata) as writer,
    ):
        for batch in written:
            writer.write(batch)


def _named(predictions: pa.Table, labels: Sequence[str]) -> pa.Table:
    """Name labels that are not of NLI: only of NLI is it plain what a number means."""
    if tuple(labels) == LABELS:
        return predictions
    for name in ANSWERS:
        codes = predictions[name].combine_chunks()
        named = pa.array(labels).take(pc.if_else(pc.equal(codes, NO_LABEL), None, codes))
        place = predictions.column_names.index(name)
        predictions = predictions.set_column(place, name, named)
    return predictions


def _digest_of(
    columns: Mapping[str, int],
    metadata: Mapping[bytes, bytes],
    labels: Sequence[str],
    pieces: Callable[[str], Iterable[pa.Array]],
) -> str:
    """Digest rows, labels and description: all that is shown, wherever it is stored.

    Parquet's own checksums cover neither metadata nor the heads of pages.
    """
    digest = hashlib.sha256(metadata.get(METADATA_KEY, b""))
    digest.update(json.dumps(labels).encode())
    for name, count in columns.items():
        digest.update(f"\n{name} {count}\n".encode())
        for column in pieces(name):
            if name in ANSWERS:
                digest.update(column.to_numpy(zero_copy_only=False).astype("<i8").tobytes())
            elif name == PROBABILITIES:
                digest.update(column.flatten().to_numpy().astype("<f8").tobytes())
            else:
                length = pc.list_value_length if name == REPEATS else pc.binary_length
                lengths = pc.fill_null(length(column), -1).to_numpy(zero_copy_only=False)
                digest.update(lengths.astype("<i4").tobytes())
        if name in (*IDS, TEXT_DIGEST, ANSWER_TEXT, REPEATS):
            for column in pieces(name):
                if name == REPEATS:
                    digest.update(column.flatten().to_numpy().astype("<i8").tobytes())
                else:
                    digest.update(characters(column.drop_null()))
    return digest.hexdigest()


# --- Metadata ---


def read_metadata(path: Path) -> dict[str, Any]:
    """Read a Parquet file's description of how it was made.

    Returns:
        A JSON object; empty where there is no file, or it has none.
    """
    if path.suffix != ".parquet" or not path.is_file():
        return {}
    try:
        schema = read_schema(path)
    except ValueError:
        return {}  # reading the file itself says what is wrong
    try:
        return metadata_of(schema)
    except ValueError:
        log.warning("%s: expected a JSON object in its metadata %r", path, METADATA_KEY.decode())
        return {}


def metadata_of(schema: pa.Schema) -> dict[str, Any]:
    """Read the description of how a table was made from its schema."""
    value = json.loads((schema.metadata or {}).get(METADATA_KEY, b"{}"))
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {value!r}")
    return value


def with_metadata(table: pa.Table, value: Mapping[str, Any]) -> pa.Table:
    """Give a table a description of how it was made, as its only metadata."""
    return table.replace_schema_metadata({METADATA_KEY: json.dumps(value, ensure_ascii=False)})


def model_name(path: Path) -> str:
    """Name a model: as the predictions file's metadata does, else like the file."""
    stem = path.name
    for suffix in (*SUFFIXES, *_CSV):
        stem = stem.removesuffix(suffix)
    metadata = read_metadata(path)
    name = str(metadata.get("short_name") or metadata.get("name") or "").rstrip("/\\")
    # Where it is a folder of someone's machine, its last part.
    return (Path(name).name if Path(name).is_absolute() else name) or stem
