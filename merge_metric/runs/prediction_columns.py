"""The columns of a predictions file: opened, checked, and brought into one form.

One row per problem, in Parquet (`.parquet`), as JSON lines (`.jsonl`, `.jsonl.gz`) or, to be
read only, CSV (`.csv`, `.tsv`): `variant_id` (of a seed, its own id), `seed_id`, `label` and
`prediction` (positions among the labels of the problems' format, or names; null, -1 or an empty
string for an answer that names no label; labels may be merged on reading) and, optionally,
`probabilities` (one per label, in that order), `text_digest` (see `runs.texts`) and what
`PredictionsFile.further` reads: `answer_text` and `repeats`. Of NLI the labels are `LABELS`.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
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
from merge_dataset import json_lines as jsonl
from merge_dataset.files import ROWS, RowGroupWriter, naming_damage, open_parquet
from merge_dataset.layout import collections, format_in
from merge_dataset.schema import LABELS, parse_config_name
from merge_metric.runs.texts import PREFIX, TEXT_DIGEST, characters, digest_of
from merge_metric.seed_variant_accuracy.merging import Merging, merging_advice
from merge_metric.seed_variant_accuracy.options import NO_LABEL, SUM_TOLERANCE

IDS: Final = ("variant_id", "seed_id")
ANSWERS: Final = ("label", "prediction")
REQUIRED: Final = (*IDS, *ANSWERS)
PROBABILITIES: Final = "probabilities"
COLUMNS: Final = (*REQUIRED, TEXT_DIGEST, PROBABILITIES)

ANSWER_TEXT: Final = "answer_text"
"""Column with answers in a model's own words; no figure depends on it."""
REPEATS: Final = "repeats"
"""Column with repeated answers to a seed, as positions of labels; null for variants."""
FURTHER: Final = (ANSWER_TEXT, REPEATS)
"""Optional columns on which no count per seed depends."""

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

_TYPES: Final = {
    **dict.fromkeys(IDS, (pa.string(),)),
    **dict.fromkeys(ANSWERS, (pa.int64(), pa.string())),
    TEXT_DIGEST: (pa.string(),),
    PROBABILITIES: (jsonl.NUMBERS,),
    ANSWER_TEXT: (pa.string(),),
    REPEATS: (jsonl.NUMBERS,),
}
"""Column, in the order of digests → allowed types in JSON lines."""

log = logging.getLogger(__name__)

Place = Callable[[int], str]
"""Function from a row number, from 0, to a description of its place for users."""


def row_number(row: int) -> str:
    """Write a row number, from 0, as users count: "row 1" for the first."""
    return f"row {row + 1}"


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
    if path.suffix in CSV:
        return lambda row: f"line {next(islice(data_files.read_rows(path, IDS), row, None))[0]}"
    return lambda row: f"line {jsonl.line_number(path, row)}"


# --- Reading ---


@dataclass(slots=True, eq=False, weakref_slot=True)
class PredictionsFile:
    """An opened predictions file, whose columns can be read in batches, several times."""

    path: Path
    """The file as named in messages."""
    stored: Path
    """The file or, for text, a temporary Parquet file that lives as long as this object."""
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
                    table = table.set_column(place, name, _replaced(table[name], int))
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
        if name == ANSWER_TEXT and self.stored != self.path:
            file = _convert_text(self.path, ("variant_id", name))
        if name not in file.names:
            return
        if file.stored == file.path:
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
    names = names or [name for name in _TYPES if name != ANSWER_TEXT]
    folder = mkdtemp(prefix="merge-nli-")
    try:
        stored, types = Path(folder) / "columns.parquet", {name: _TYPES[name] for name in names}
        if path.suffix in CSV:
            tables = data_files.read_batches(path, types, optional={*names}.difference(REQUIRED))
        else:
            tables = jsonl.read_batches(path, types)
        first = next(tables)
        with RowGroupWriter(stored, first.schema) as writer:
            for table in chain([first], tables):
                writer.write(table)
        file = PredictionsFile(path, stored, first.schema, writer.rows, first.column_names)
        if path.suffix in CSV:
            answers = types.keys() & ANSWERS
            file.positions = frozenset(
                name for name in answers if all(map(_are_positions, file.batches([name])))
            )
        else:
            there = jsonl.first_names(path)
            file.names = [n for n in file.names if n in there or not file.is_empty(n)]
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    finalize(file, rmtree, folder, ignore_errors=True)
    return file


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
        ids = _decoded(batch["seed_id"])
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
        for part, column in zip(ANSWERS, map(_decoded, batch.columns), strict=True):
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
            f"{file.path}: expected two or more labels, got {every[0]!r} alone; name the dataset, "
            "which knows the others"
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


# --- Checks ---


def require_columns(where: object, names: Sequence[str], rows: int) -> None:
    """Raise ValueError unless there are all required columns and at least one row."""
    if missing := data_files.describe_missing(REQUIRED, names):
        raise ValueError(
            f"{where}: expected the columns {', '.join(REQUIRED)}, {missing}; `merge-nli predict` "
            f"writes such a file"
        )
    if not rows:
        raise ValueError(f"{where}: expected at least one row, got none")


def check_further(name: str, column: pa.ChunkedArray, where: str = "") -> None:
    """Raise ValueError if `ANSWER_TEXT` is not text, or `REPEATS` not lists of integers."""
    kind = _decoded(column).type
    if name == ANSWER_TEXT:
        good, expected = kind in (pa.string(), pa.large_string(), pa.string_view()), "texts"
    else:
        expected = "lists of whole numbers"
        good = isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType)
        good = good and pa.types.is_integer(kind.value_type)
        good = good and not pc.list_flatten(column).null_count
    if not good and column.null_count < len(column):
        raise ValueError(
            f"{where}{name}: expected {expected}, got others ({kind}); or rename the column"
        )


def check_column(
    name: str,
    column: pa.ChunkedArray,
    place: Place,
    labels: Sequence[str],
    merging: Merging | None = None,
) -> pa.ChunkedArray | pa.Array:
    """Check one of `COLUMNS`, and convert it to its standard form; see `predictions.validate`.

    With labels to merge, names may be any of `merging.known(labels)`, to which codes then refer,
    and probabilities may be for these, or already summed.
    """
    if name == PROBABILITIES:
        orders = (labels, merging.known(labels), merging.of(labels)) if merging else (labels,)
        size = column[0].as_py() if len(column) and pa.types.is_nested(column.type) else None
        fit = [order for order in orders if size is not None and len(order) == len(size)]
        return _distributions(column, place, fit[0] if fit else labels)
    column = _decoded(column)
    if name in (*IDS, "label") and column.null_count:
        row = _first(pc.is_null(column))
        raise ValueError(
            f"{place(row)}: {name}: expected a value, got none "
            f"({_counted(column.null_count, 'such row')})"
        )
    if name in ANSWERS:
        return _codes(name, column, place, labels, merging)
    if column.type != pa.string():
        expected = "a string" if name == TEXT_DIGEST else "ids as strings"
        raise ValueError(f"{name}: expected {expected}, got the type {column.type}")
    if name == TEXT_DIGEST and not _are_digests(column):
        wrong = pc.invert(pc.match_substring_regex(column, f"^{PREFIX}[0-9a-f]{{16}}$"))
        if pc.any(wrong).as_py():
            row = _first(wrong)
            raise ValueError(
                f"{place(row)}: {TEXT_DIGEST}: expected {PREFIX} and 16 hexadecimal digits, as "
                f"`merge-nli predict` writes them, got {column[row].as_py()!r}"
            )
    return column


def _are_digests(column: pa.ChunkedArray) -> bool:
    """Return, by a fast check, whether all values are digests, or null."""
    texts = column.drop_null()
    digits = characters(pc.binary_slice(texts.cast(pa.binary()), -16))
    lengths = pc.unique(pc.binary_length(texts)).to_pylist()
    same = lengths in ([], [16 + len(PREFIX)]) and pc.all(pc.starts_with(texts, PREFIX)).as_py()
    return same and not digits.translate(None, b"0123456789abcdef")


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert other encodings of strings in Parquet to plain strings."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        kind = pa.string()
    return column if column.type == kind else column.cast(kind)


def _codes(
    name: str,
    column: pa.ChunkedArray,
    place: Place,
    labels: Sequence[str],
    merging: Merging | None,
) -> pa.ChunkedArray:
    """Convert labels to positions; a prediction that is null, -1 or empty is `NO_LABEL`."""
    if pa.types.is_null(column.type):
        return pa.chunked_array([pa.array(np.full(len(column), NO_LABEL))])
    if column.type == pa.string():
        names = merging.known(labels) if merging else labels
        codes = _label_positions(column, names, len(labels))
        none = pc.is_in(pc.utf8_trim_whitespace(column), pa.array(["", f"{NO_LABEL}"]))
        expected = ", ".join(names)
    elif pa.types.is_integer(column.type):
        codes = column
        if column.type == pa.uint64():  # numbers that int64 does not have are no labels either
            most = pa.scalar(len(labels), pa.uint64())
            codes = pc.min_element_wise(column, most, skip_nulls=False)
        codes = codes.cast(pa.int64())
        none = pc.fill_null(pc.equal(codes, NO_LABEL), False)
        inside = pc.and_(pc.greater_equal(codes, 0), pc.less(codes, len(labels)))
        codes = pc.if_else(inside, codes, None)
        expected = f"0 to {len(labels) - 1} ({', '.join(labels)})"
    else:
        raise ValueError(
            f"{name}: expected the names {', '.join(labels)} or their positions as integers, "
            f"got the type {column.type}"
        )
    if name != "label":
        codes = pc.if_else(pc.or_(pc.is_null(column), none), NO_LABEL, codes)
    if codes.null_count:
        row = _first(pc.is_null(codes))
        from_one = column.unique().sort().to_pylist() == [*range(1, len(labels) + 1)]
        advice = "are they counted from 1? count from 0" if from_one else _ADVICE[name]
        odd = {*column.unique().to_pylist()} - {*labels, None}
        of_two = tuple(labels) != LABELS and odd <= {*LABELS}
        if of_two or (len(odd) == 1 and str(*odd).startswith("no")):
            gold = labels if of_two else (LABELS[0], *odd)
            if proposed := merging_advice(LABELS, gold):
                advice = f"where contradiction and neutral count as one: `merge_labels` {proposed}"
        raise ValueError(
            f"{place(row)}: {name}: expected one of {expected}, got {column[row].as_py()!r} "
            f"({_counted(codes.null_count, 'such row')}); {advice}"
        )
    return codes


_ADVICE: Final = {
    "label": "write gold labels so, and leave out problems without one",
    "prediction": "give each row the label that the model chose, or null where it named none",
}


def _label_positions(
    names: pa.ChunkedArray, labels: Sequence[str], numbered: int
) -> pa.ChunkedArray:
    """Map names, in any case, or digits, below `numbered`, to positions; null for other texts."""
    found = pc.index_in(names, value_set=pa.array(labels))
    folded = [label.casefold() for label in labels]
    if found.null_count and len(set(folded)) == len(folded):
        places = {str(position): position for position in range(numbered)}
        places |= {label: position for position, label in enumerate(folded)}
        return _replaced(names, lambda name: places.get(name.strip().casefold()))
    return found.cast(pa.int64())


def _replaced(texts: pa.ChunkedArray, number: Callable[[str], int | None]) -> pa.ChunkedArray:
    """Replace each distinct text by the result of a function."""
    distinct = texts.drop_null().unique()
    numbers = pa.array([number(text) for text in distinct.to_pylist()], pa.int64())
    return numbers.take(pc.index_in(texts, value_set=distinct).combine_chunks())


def _are_positions(cells: pa.Table) -> bool:
    """Return whether all texts of a column are digits of label positions, or stand for none."""
    values = cells[0].drop_null().unique().to_pylist()
    digits = (value for value in values if value != f"{NO_LABEL}")
    return all(value.isdecimal() and len(value) < 10 for value in digits)


def _distributions(column: pa.ChunkedArray, place: Place, labels: Sequence[str]) -> pa.Array:
    """Check probabilities, and convert them to fixed-size lists with one value per label."""
    count, item = len(labels), getattr(column.type, "value_type", None)
    if item is None or not (pa.types.is_floating(item) or pa.types.is_integer(item)):
        raise ValueError(
            f"{PROBABILITIES}: expected a list of {count} numbers per row, "
            f"got the type {column.type}"
        )
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy()
    if (odd := lengths != count).any():
        row = int(odd.argmax())
        raise ValueError(
            f"{place(row)}: {PROBABILITIES}: expected {count} per row, in the order "
            f"{', '.join(labels)}, got {_shown(column[row])}; give them for all rows or for none"
        )
    flat = pc.fill_null(pc.list_flatten(column).cast(pa.float64()), float("nan")).to_numpy()
    values = flat.reshape(-1, count)
    with np.errstate(invalid="ignore"):
        good = (values >= 0) & (abs(values.sum(axis=1) - 1) <= SUM_TOLERANCE)[:, None]
    if not good.all():
        good = good.all(axis=1)
        row = int((~good).argmax())
        if not column[row].values.null_count and not np.isfinite(values[row]).all():
            why = "the model overflows, as in half precision, or is damaged"
        else:
            why = "of logits take the softmax"
        raise ValueError(
            f"{place(row)}: {PROBABILITIES}: expected numbers from 0 to 1 with the sum 1, "
            f"got {_shown(column[row])} ({_counted((~good).sum(), 'such row')}); {why}"
        )
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), count)


def _shown(value: pa.Scalar) -> str:
    """Format a list of numbers as in JSON."""
    return json.dumps(value.as_py()) if value.is_valid else "none"


def _counted(count: Any, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def require_distinct(ids: pa.ChunkedArray, place: Place, where: str = "") -> None:
    """Raise ValueError if an id of a variant occurs twice; the message names the rows."""
    if pc.count_distinct(ids).as_py() == len(ids):
        return
    counts = pc.value_counts(ids)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    rows = np.flatnonzero(pc.equal(ids, repeated[0]).to_numpy())
    raise ValueError(
        f"{where}{place(int(rows[1]))}: variant_id: expected each id once, got "
        f"{repeated[0].as_py()!r} as in {place(int(rows[0]))} "
        f"({_counted(len(repeated), 'such id')}); drop the repeated rows"
    )


def _first(mask: pa.ChunkedArray) -> int:
    return int(pc.index(mask, True).as_py())
