"""Tables as people have them, by rows (JSON, delimited text, Parquet, Arrow) or in batches."""

import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, Final, TextIO

import pyarrow as pa
import pyarrow.json as pj

from merge_dataset.files import atomic, open_parquet
from merge_dataset.known_sources import label_text


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a data set."""

    where: str
    """Its place in messages, such as "test.jsonl:12"."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    """Reason why it cannot be read; empty if it can."""
    remedy: str = ""
    """Advice for a problem that many rows of the file probably have."""
    line: int = 0
    """Number of its first line in a file of text, from 1."""

    @property
    def error(self) -> ValueError:
        """The error to raise where the row is needed and cannot be read."""
        return ValueError(f"{self.where}: {self.problem}{self.remedy and f'; {self.remedy}'}")


SUFFIXES: Final = (".jsonl", ".json", ".csv", ".tsv", ".txt", ".parquet", ".arrow")

NUMBERS: Final = pa.list_(pa.float64())
"""Type of a column of lists of numbers."""

_NUMBER: Final = {int, float, type(None)}
_KINDS: Final[Mapping[pa.DataType, tuple[str, Callable[[Any], bool]]]] = {
    pa.string(): ("a string", lambda value: isinstance(value, str)),
    pa.int64(): ("an integer of 64 bits", lambda n: type(n) is int and -(2**63) <= n < 2**63),
    NUMBERS: ("a list of numbers", lambda v: isinstance(v, list) and {*map(type, v)} <= _NUMBER),
}
"""Type of a column of JSON lines → its name in messages, and whether it has a value."""

_CSV: Final = (".csv", ".tsv")

_ROWS: Final = 10_000
"""Number of rows that are Python objects at a time."""

_LONGEST: Final = 2**24
"""Most characters of a cell, as a longer one means a quotation mark that is never closed; and bytes
of JSON lines that are parsed at a time, the longest possible line."""

_SHOWN: Final = 60
"""Number of characters of malformed JSON that a message shows."""

_UNDECODED: Final = re.compile("[\udc80-\udcff]")
"""Pattern of a byte that is not UTF-8, as decoded by `surrogateescape`."""


def read_file(path: Path, place: str | None = None) -> Iterator[Row]:
    """Read the rows of a file with a suffix in `SUFFIXES`; text may also be compressed (.gz).

    In messages `place`, by default the file's name, stands before the number of a row.
    """
    suffix, gzipped = _kind(path)
    if suffix not in SUFFIXES or (gzipped and suffix in (".parquet", ".arrow")):
        raise ValueError(
            f"{path}: expected a file whose name ends in {', '.join(SUFFIXES)}, those of text "
            f"also with .gz"
        )
    last, place = None, f"{path.name}:" if place is None else place
    try:
        for last in _READERS[suffix](path, place):
            yield last
    except (EOFError, OSError, zlib.error, pa.ArrowException) as error:
        if getattr(error, "errno", None) is not None:
            raise  # errors of the system, such as missing permission
        where = f"{last.where}: after this row" if last else place.removesuffix(" line ")[:-1]
        raise ValueError(
            f"{where}: expected a whole {suffix} file, got one that is damaged, cut off or in "
            f"another format; restore it from a copy, or fetch it again"
        ) from error


def _kind(path: Path) -> tuple[str, bool]:
    """Return a file's suffix without .gz, and whether it had .gz."""
    name = path.name.lower()
    return Path(name.removesuffix(".gz")).suffix, name.endswith(".gz")


# --- Text: `place` is the beginning of messages about a row, before the number of its line ---


@contextmanager
def _text(path: Path, place: str) -> Iterator[TextIO]:
    """Open a text file, skip a byte-order mark, and keep bytes that are not UTF-8 recognisable."""
    with _opened(path) as file:
        raw = io.BufferedReader(file)
        if raw.peek(2).startswith((b"\xff\xfe", b"\xfe\xff")):  # as spreadsheets write it
            cure = _conversion(path.name, "UTF-16")
            raise ValueError(f"{path}: expected text in UTF-8, got UTF-16; {cure}")
        yield io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _opened(path: Path) -> io.BufferedReader | gzip.GzipFile:
    return gzip.open(path) if _kind(path)[1] else path.open("rb")


def _conversion(name: str, encoding: str) -> str:
    unpacked = name.removesuffix(".gz")
    return (
        f'convert it: iconv -f {encoding} -t UTF-8 "{unpacked}" > "utf8-{unpacked}", or save it as '
        f'"UTF-8" in the program it comes from'
    )


def _undecoded(path: Path, place: str, number: int, text: str) -> Row | None:
    """Make the row that says which byte of a text is not UTF-8, if there is one."""
    if (undecoded := _UNDECODED.search(text)) is None:
        return None
    byte, before = ord(undecoded.group()) - 0xDC00, text[: undecoded.start()]
    line = before.rpartition("\n")[2]
    where = f"after {line!r}" if line else "at the beginning of the line"
    return Row(
        f"{place}{number + before.count(chr(10))}",
        problem=f"expected UTF-8, got the byte {byte:#04x} {where}",
        remedy=f"if it is in Latin-1 (Windows-1252), {_conversion(path.name, 'WINDOWS-1252')}",
    )


# --- JSON ---


def parse_object(text: str) -> dict[str, Any]:
    """Parse a JSON object.

    >>> parse_object('{"label": 1, "label": 2}')
    Traceback (most recent call last):
    ValueError: expected each key once, got 'label' twice
    """
    try:
        value = _DECODER.decode(text.rstrip())
        kind = "null" if value is None else type(value).__name__
        problem = "" if isinstance(value, dict) else kind
    except (json.JSONDecodeError, RecursionError) as error:
        value, problem = {}, str(error)
    if problem:
        raise ValueError(f"expected a JSON object per line, got {_shown(text)} ({problem})")
    return dict(value)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"expected each key once, got {twice!r} twice")
    return made


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique_keys)


def _shown(text: str) -> str:
    first = text.strip()[: _SHOWN + 1]
    return repr(first if len(first) <= _SHOWN else f"{first[:_SHOWN]}…") if first else "nothing"


def _read_json(path: Path, place: str) -> Iterator[Row]:
    with _text(path, place) as file:
        is_first = True
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            if is_first and line.lstrip().startswith("["):
                yield from _read_array(path, place, number, line + file.read())
                return
            is_first, where = False, f"{place}{number}"
            if undecoded := _undecoded(path, place, number, line):
                yield undecoded
                continue
            try:
                yield Row(where, parse_object(line), line=number)
            except ValueError as error:
                yield Row(where, problem=f"{error}")


def _read_array(path: Path, place: str, first: int, text: str) -> Iterator[Row]:
    undecoded = _undecoded(path, place, first, text)
    try:
        values = [] if undecoded else _DECODER.decode(text.rstrip())
    except (RecursionError, ValueError) as error:
        line = first + getattr(error, "lineno", 1) - 1
        wrong = text[getattr(error, "pos", 0) :]
        problem = f"expected an array of JSON objects, got {_shown(wrong)} ({error})"
        undecoded = Row(f"{place}{line}", problem=problem)
    if undecoded:
        raise undecoded.error
    for number, value in enumerate(values, start=1):
        where = f"{place} row {number}"
        if isinstance(value, dict):
            yield Row(where, value)
        else:
            yield Row(where, problem=f"expected a JSON object, got {_shown(json.dumps(value))}")


# --- Delimited text ---

_UNCLOSED: Final = "a quotation mark is opened and never closed: the file is cut off, or lacks one"


def _read_delimited(path: Path, place: str, *, padded: bool = False) -> Iterator[Row]:
    """Yield the names of the columns, as a row, then the rows; if `padded`, some may end early.

    Blank lines are skipped. Tab-separated files have literal quotation marks.
    """
    csv.field_size_limit(_LONGEST)
    with _text(path, place) as file:
        start = file.readline()
        usual = "," if _kind(path)[0] == ".csv" else "\t"
        delimiter = next(
            (d for d in (usual, *",;\t") if len(next(csv.reader([start], delimiter=d), ())) > 1),
            usual,
        )
        is_literal = usual == delimiter == "\t"
        quoting: Any = csv.QUOTE_NONE if is_literal else csv.QUOTE_MINIMAL
        reader = csv.reader(chain([start], file), delimiter=delimiter, quoting=quoting, strict=True)
        header: list[str] | None = None
        while True:
            number, cells, problem = reader.line_num + 1, list[str](), ""
            where = f"{place}{number}"
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                problem = _UNCLOSED
                if "expected after" in str(error):
                    problem = "a quotation mark stands inside a cell: write it twice, and put the "
                    problem += "cell in quotation marks"
            row = _undecoded(path, place, number, "\t".join(cells))
            if row is None and not (cells or problem):
                continue
            if header is None and not (row or problem):
                header = cells = _require_distinct([name.strip() for name in cells], where)
            if header is None or problem == _UNCLOSED:  # which has no end, so no row can follow
                raise (row or Row(where, problem=problem)).error
            if len(cells) > len(header):
                problem = f"expected {len(header)} columns, got {len(cells)} (texts with a "
                problem += "separator in them go in quotation marks)"
            elif cells and len(cells) < len(header) and not padded:
                problem = f"expected {len(header)} columns, got {len(cells)}"
            columns = {} if problem else dict(zip_longest(header, cells))
            yield row or Row(where, columns, problem, line=number)


def _require_distinct(names: Sequence[str], where: str) -> list[str]:
    twice = [name for name, times in Counter(names).items() if times > 1 and name]
    if twice:
        raise ValueError(f"{where}: expected each column once, got {twice[0]!r} twice")
    return list(names)


# --- Binary tables ---


def _read_parquet(path: Path, place: str) -> Iterator[Row]:
    with open_parquet(path) as file:
        yield from _read_binary(file.iter_batches(), file.schema_arrow, place)


def _read_arrow(path: Path, place: str) -> Iterator[Row]:
    """Read Arrow's streaming format, as `datasets` writes it, or its file format."""
    with pa.memory_map(str(path)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        count = reader.num_record_batches if is_file else 0
        batches = map(reader.get_batch, range(count)) if is_file else reader
        yield from _read_binary(batches, reader.schema, place)


def _read_binary(batches: Iterable[pa.RecordBatch], schema: pa.Schema, place: str) -> Iterator[Row]:
    _require_distinct(schema.names, place.removesuffix(":"))
    features: Any = None
    with suppress(ValueError, KeyError, TypeError):
        features = parse_object(schema.metadata[b"huggingface"].decode())["info"]["features"]
    yield from table_rows(batches, features if isinstance(features, dict) else {}, f"{place} row ")


_READERS: Final[Mapping[str, Callable[[Path, str], Iterator[Row]]]] = {
    **dict.fromkeys((".json", ".jsonl"), _read_json),
    **dict.fromkeys(
        (".csv", ".tsv", ".txt"), lambda path, place: islice(_read_delimited(path, place), 1, None)
    ),
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
}
"""Suffix → function that reads the rows of a file."""


def table_rows(
    batches: Iterable[pa.RecordBatch], features: Mapping[str, Any], where: str, *, first: int = 1
) -> Iterator[Row]:
    """Yield the rows of a table, with names of classes as in `named_rows`."""
    rows = chain.from_iterable(batch.to_pylist() for batch in batches)
    yield from named_rows((Row(f"{where}{n}", row) for n, row in enumerate(rows, first)), features)


def named_rows(rows: Iterable[Row], features: Mapping[str, Any]) -> Iterator[Row]:
    """Yield rows; with `features` of `datasets`, numbers of classes become their names."""
    classes = {name: _class_names(feature) for name, feature in features.items()}
    for row in rows:
        named = {
            column: _named(row.columns[column], names)
            for column, names in classes.items()
            if names and column in row.columns
        }
        yield replace(row, columns={**row.columns, **named}) if named else row


def _class_names(feature: Any) -> list[str]:
    if isinstance(feature, list) and feature:
        return _class_names(feature[0])
    if not isinstance(feature, dict):
        return []
    if feature.get("_type") == "ClassLabel":
        return list(map(str, feature.get("names") or ()))
    return _class_names(feature.get("feature"))


def _named(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    text = label_text(value)
    if text in names or not text.removeprefix("-").isdecimal():
        return value
    number = int(text)
    if number < 0:
        return ""
    return names[number] if number < len(names) else f"class {number} of {len(names)}"


# --- Some columns of CSV or JSON lines, of which each row has to be readable ---


def column_names(path: Path) -> list[str]:
    """Read the names of a CSV file's columns, or the keys in the first line of JSON lines."""
    if _kind(path)[0] in _CSV:
        return list(next(_read_delimited(path, f"{path}: line "), Row("")).columns)
    return list(next(readable(read_file(path, f"{path}: line ")), Row("")).columns)


def readable(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows; raise the error of one that cannot be read."""
    for row in rows:
        if row.problem:
            raise row.error
        yield row


def read_rows(
    path: Path, required: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a CSV table that people fill in, each with the number of its first line.

    Rows may end early, as some spreadsheets leave out empty cells. The last line needs a line end,
    as it was cut off without.
    """
    rows = _read_delimited(path, f"{path}: line ", padded=True)
    header, number = list(next(rows, Row("")).columns), 1
    if lacking := [name for name in required if name not in header]:
        raise ValueError(
            f"{path}: expected the columns {', '.join(required)} in its first line, found no "
            f"{' and no '.join(lacking)} among {', '.join(header) or 'none'}"
        )
    names = [name for name in (*required, *optional) if name in header]
    for row in readable(rows):
        number = row.line
        yield number, {name: row.columns[name] or "" for name in names}
    if path.read_bytes()[-1:] not in (b"\n", b"\r"):
        raise ValueError(
            f"{path}: line {number}: expected a line end after the last row, got none: the file "
            f"was cut off there; or, if it is whole, end its last line"
        )


def read_batches(path: Path, columns: Mapping[str, Sequence[pa.DataType]]) -> Iterator[pa.Table]:
    """Read some columns of CSV or of JSON lines, some megabytes at a time; at least one table.

    Each column has possible types (string, int64, `NUMBERS`); in JSON, the first line with a value
    decides. In CSV all but lists are strings. Columns that are not there are null.
    """
    is_csv, place = _kind(path)[0] in _CSV, f"{path}: line "
    header, rows = column_names(path), readable(read_file(path, place))
    types = {name: NUMBERS if NUMBERS in kinds else pa.string() for name, kinds in columns.items()}
    some: list[Row] | None = None
    while is_csv and (some is None or len(some) == _ROWS):
        some = list(islice(rows, _ROWS))
        arrays = {
            name: pa.array([_value(row, name, kind, is_csv=True) for row in some], kind)
            if name in header
            else pa.nulls(len(some), kind)
            for name, kind in types.items()
        }
        yield pa.table(arrays)
    if is_csv:
        return
    for name, kinds in columns.items():
        again = readable(read_file(path, place)) if len(kinds) > 1 and name in header else ()
        values = (value for row in again if (value := row.columns.get(name)) is not None)
        value = next(values, None)
        fitting = (kind for kind in kinds if value is None or _KINDS[kind][1](value))
        types[name] = next(fitting, kinds[0])
    schema = pa.schema(types.items())
    yield schema.empty_table()
    options = pj.ParseOptions(schema, unexpected_field_behavior="ignore")
    try:
        with _opened(path) as file:
            while lines := b"".join(file.readlines(_LONGEST)):
                if lines.strip():
                    reading = pj.ReadOptions(block_size=2 * _LONGEST)
                    table = pj.read_json(pa.BufferReader(lines), reading, options)
                    table.validate(full=True)
                    yield table
    except (ValueError, OSError, EOFError, zlib.error) as error:
        # pyarrow is fast, but its messages have no line number: here Python finds the line.
        _ = [_value(row, name, kind) for row in rows for name, kind in types.items()]
        raise ValueError(f"{path}: {error}") from error


def _value(row: Row, name: str, kind: pa.DataType, *, is_csv: bool = False) -> Any:
    value, (expected, fits) = row.columns.get(name), _KINDS[kind]
    if is_csv:
        value = str(value or "").strip() or None
        with suppress(ValueError, RecursionError):
            value = json.loads(value) if value and kind == NUMBERS else value
    if value is not None and not fits(value):
        shown = json.dumps(value, ensure_ascii=False)[:_SHOWN]
        raise ValueError(f"{row.where}: {name}: expected {expected} in every line, got {shown}")
    return value


def write_rows(path: Path, tables: Iterable[pa.Table], *, compress: bool) -> None:
    """Write tables as JSON lines, atomically; the same rows give the same bytes."""
    with atomic(path) as partial, partial.open("wb") as raw:
        # Without time and file name in the gzip header, which would change the bytes.
        file = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if compress else nullcontext(raw)
        with file as lines:
            for batch in chain.from_iterable(t.to_batches(max_chunksize=_ROWS) for t in tables):
                rows = (json.dumps(row, ensure_ascii=False) for row in batch.to_pylist())
                lines.write("".join(f"{row}\n" for row in rows).encode())
