"""Tables as people have them, row by row (JSON, delimited text, Parquet, Arrow), or in batches."""

import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, Final, TextIO

import pyarrow as pa
import pyarrow.json as pj

from merge_dataset.files import atomic, format_of_bytes, open_parquet
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


SUFFIXES: Final = (".jsonl", ".json", ".csv", ".tsv", ".txt", ".parquet", ".arrow")

_ROWS: Final = 10_000
"""Number of rows that are Python objects at a time."""

_LONGEST: Final = 2**24
"""Most characters of a cell, as a longer one means a quotation mark that is never closed; and bytes
of JSON lines that are parsed at a time, the longest possible line."""

_SHOWN: Final = 60
"""Number of characters of malformed JSON that a message shows."""

_NUMBER: Final = re.compile("-?[0-9]+")

_UNDECODED: Final = re.compile("[\udc80-\udcff]")
"""Pattern of a byte that is not UTF-8, as decoded by `surrogateescape`."""


def read_file(path: Path) -> Iterator[Row]:
    """Read the rows of a file with a suffix in `SUFFIXES`; text may also be compressed (.gz)."""
    suffix, gzipped = _kind(path)
    if suffix not in SUFFIXES or (gzipped and suffix in (".parquet", ".arrow")):
        raise ValueError(
            f"{path.name}: expected a file whose name ends in {', '.join(SUFFIXES)}, those of text "
            f"also with .gz"
        )
    readers = {".json": _read_json, ".jsonl": _read_json, ".parquet": _read_parquet,
               ".arrow": _read_arrow}  # fmt: skip
    last = None
    try:
        for last in readers.get(suffix, _read_table)(path):
            yield last
    except (EOFError, OSError, zlib.error, pa.ArrowException) as error:
        if getattr(error, "errno", None) is not None:
            raise  # errors of the system, such as missing permission
        place = f"after {last.where}" if last else path.name
        raise ValueError(
            f"{place}: expected a whole {suffix} file, got one that is damaged, cut off or in "
            f"another format; restore it from a copy, or fetch it again"
        ) from error


def is_data_file(name: str) -> bool:
    """Return whether `read_file` can read a file with this name, local or not."""
    return _kind(Path(name))[0] in SUFFIXES


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


def _kind(path: Path) -> tuple[str, bool]:
    """Return a file's suffix without .gz, and whether it had .gz."""
    name = path.name.lower()
    return Path(name.removesuffix(".gz")).suffix, name.endswith(".gz")


# --- Text ---


@contextmanager
def _text(path: Path) -> Iterator[TextIO]:
    """Open a text file, skip a byte-order mark, and keep bytes that are not UTF-8 recognisable."""
    with _opened(path) as file:
        raw = io.BufferedReader(file)
        start = raw.peek(512)[:512]
        if what := format_of_bytes(start):
            raise ValueError(
                f"{path.name}: expected text in UTF-8, got {what}; unpack or convert it, and "
                f"rename it so"
            )
        most = max(len(start) // 4, 1)
        little, big = start[1::2].count(0) >= most, start[::2].count(0) >= most
        is_marked = start.startswith((b"\xff\xfe", b"\xfe\xff"))
        if encoding := "UTF-16" * is_marked or "UTF-16LE" * little or "UTF-16BE" * big:
            advice = _conversion(path.name, encoding)
            raise ValueError(f"{path.name}: expected UTF-8, got {encoding}; {advice}")
        yield io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _opened(path: Path) -> io.BufferedReader | gzip.GzipFile:
    return gzip.open(path) if _kind(path)[1] else path.open("rb")


def _conversion(name: str, encoding: str) -> str:
    unpacked = name.removesuffix(".gz")
    return (
        f'convert it: iconv -f {encoding} -t UTF-8 "{unpacked}" > "utf8-{unpacked}", or save it as '
        f'"UTF-8" in the program it comes from'
    )


def _undecoded(path: Path, where: str, line: str) -> Row | None:
    if (undecoded := _UNDECODED.search(line)) is None:
        return None
    byte, before = ord(undecoded.group()) - 0xDC00, line[: undecoded.start()][-20:]
    advice = f"if it is in Latin-1 (Windows-1252), {_conversion(path.name, 'WINDOWS-1252')}"
    return Row(where, problem=f"expected UTF-8, got the byte {byte:#04x} after {before!r}",
               remedy=advice)  # fmt: skip


# --- JSON ---


def parse_object(text: str) -> dict[str, Any]:
    """Parse a JSON object.

    >>> parse_object('{"label": 1, "label": 2}')
    Traceback (most recent call last):
    ValueError: expected each key once, got 'label' twice
    """
    wanted = "a JSON object per line"
    try:
        value = _DECODER.decode(text.rstrip())
    except json.JSONDecodeError as error:
        shown = f"{error.msg} in column {error.colno}"
        raise ValueError(f"expected {wanted}, got {_shown(text)} ({shown})") from error
    except RecursionError:
        raise ValueError(f"expected {wanted}, got one nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected {wanted}, got {_shown(json.dumps(value))}")
    return value


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


def _read_json(path: Path) -> Iterator[Row]:
    with _text(path) as file:
        is_first = True
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            if is_first and line.lstrip().startswith("["):
                yield from _read_array(path, number, line + file.read())
                return
            is_first, where = False, f"{path.name}:{number}"
            if undecoded := _undecoded(path, where, line):
                yield undecoded
                continue
            try:
                yield Row(where, parse_object(line))
            except ValueError as error:
                yield Row(where, problem=f"{error}")


def _read_array(path: Path, first: int, text: str) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), start=first):
        if row := _undecoded(path, f"{path.name}:{number}", line):
            raise ValueError(f"{row.where}: {row.problem}; {row.remedy}")
    try:
        values = _DECODER.decode(text.rstrip())
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path.name}:{first + error.lineno - 1}: expected an array of JSON objects, got "
            f"{_shown(text[error.pos :])} ({error.msg})"
        ) from None
    except RecursionError:
        raise ValueError(f"{path.name}: expected JSON, got an object nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None
    for number, value in enumerate(values, start=1):
        where = f"{path.name}: row {number}"
        if isinstance(value, dict):
            yield Row(where, value)
        else:
            yield Row(where, problem=f"expected a JSON object, got {_shown(json.dumps(value))}")


# --- Delimited text ---


def _cells(path: Path, file: TextIO, place: str) -> Iterator[tuple[int, list[str]] | Row]:
    """Yield the first line and the cells of each row, or what is wrong with one; skip blank lines.

    Tab-separated files have literal quotation marks.
    """
    csv.field_size_limit(_LONGEST)
    start = file.readline()
    is_csv = _kind(path)[0] == ".csv"
    usual = "," if is_csv else "\t"
    delimiter = next(
        (d for d in (usual, *",;\t") if len(next(csv.reader([start], delimiter=d), ())) > 1), usual
    )
    has_quotes = is_csv or delimiter != "\t"
    quoting: Any = csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE
    reader = csv.reader(chain([start], file), delimiter=delimiter, quoting=quoting, strict=True)
    while True:
        number = reader.line_num + 1
        where = f"{place}{number}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "expected after" not in str(error):  # the row has no end, so none can follow
                raise ValueError(
                    f"{where}: a quotation mark is opened and never closed: the file is cut off, "
                    f"or lacks one"
                ) from error
            yield Row(where, problem="a quotation mark stands inside a cell: write it twice, and "
                      "put the cell in quotation marks")  # fmt: skip
            continue
        if undecoded := _undecoded(path, where, "\t".join(cells)):
            yield undecoded
        elif cells:
            yield number, cells


def _read_table(path: Path, place: str = "", *, padded: bool = False) -> Iterator[Row]:
    place = place or f"{path.name}:"
    with _text(path) as file:
        header: list[str] | None = None
        for row in _cells(path, file, place):
            if isinstance(row, Row):
                if header is None:
                    raise ValueError(f"{row.where}: {row.problem}; {row.remedy}")
                yield row
                continue
            where, cells = f"{place}{row[0]}", row[1]
            if header is None:
                header = _require_distinct([name.strip() for name in cells], where)
            elif len(cells) > len(header) or (len(cells) < len(header) and not padded):
                problem = f"expected {len(header)} columns, got {len(cells)}"
                if len(cells) > len(header):
                    problem += " (texts with a separator in them go in quotation marks)"
                yield Row(where, problem=problem)
            else:
                yield Row(where, dict(zip_longest(header, cells)))


def _require_distinct(names: Sequence[str], where: str) -> list[str]:
    twice = [name for name, times in Counter(names).items() if times > 1 and name]
    if twice:
        raise ValueError(f"{where}: expected each column once, got {twice[0]!r} twice")
    return list(names)


def read_rows(
    path: Path,
    required: Sequence[str],
    optional: Sequence[str] = (),
    *,
    ended: bool = False,
    full: bool = False,
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a CSV file with a header, each with the number of its first line.

    Cells missing at the end of a row are empty, as some spreadsheets leave them out; with `full`, a
    missing cell of a required column is an error. With `ended`, a last line without a line end is
    an error, as it was truncated.
    """
    header, number, place = column_names(path), 1, f"{path}: line "
    if missing := describe_missing(required, header):
        raise ValueError(
            f"{path}: expected the columns {', '.join(required)} in its first line, {missing}"
        )
    names = [name for name in (*required, *optional) if name in header]
    for row in _read_table(path, place, padded=True):
        number = int(row.where.removeprefix(place))
        problem = row.problem + (row.remedy and f"; {row.remedy}")
        if full and not problem and None in map(row.columns.get, required):
            count = sum(cell is not None for cell in row.columns.values())
            problem = f"expected {len(header)} columns, got {count}; is the file cut off?"
        if problem:
            raise ValueError(f"{row.where}: {problem}")
        yield number, {name: row.columns[name] or "" for name in names}
    if ended and path.read_bytes()[-1:] not in (b"\n", b"\r"):
        raise ValueError(
            f"{path}: line {number}: expected a line end after the last row, got none: the file "
            f"was cut off there; or, if it is whole, end its last line"
        )


# --- Binary tables ---


def _read_parquet(path: Path) -> Iterator[Row]:
    with open_parquet(path) as file:
        _require_distinct(file.schema_arrow.names, path.name)
        features = _features(file.schema_arrow)
        yield from table_rows(file.iter_batches(), features, f"{path.name}: row ")


def _read_arrow(path: Path) -> Iterator[Row]:
    """Read Arrow's streaming format, as `datasets` writes it, or its file format."""
    with pa.memory_map(str(path)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        _require_distinct(reader.schema.names, path.name)
        count = reader.num_record_batches if is_file else 0
        batches = map(reader.get_batch, range(count)) if is_file else reader
        yield from table_rows(batches, _features(reader.schema), f"{path.name}: row ")


def _features(schema: pa.Schema) -> dict[str, Any]:
    try:
        features = parse_object(schema.metadata[b"huggingface"].decode())["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


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
    if text in names or not _NUMBER.fullmatch(text):
        return value
    number = int(text)
    if number < 0:
        return ""
    return names[number] if number < len(names) else f"class {number} of {len(names)}"


# --- Columns in batches ---

NUMBERS: Final = pa.list_(pa.float64())

_NAMES: Final = {
    pa.string(): "a string",
    pa.int64(): "an integer of 64 bits",
    NUMBERS: "a list of numbers",
}
_CSV: Final = (".csv", ".tsv")


def column_names(path: Path) -> list[str]:
    """Read the names of a CSV file's columns, or the keys in the first line of JSON lines."""
    if _kind(path)[0] not in _CSV:
        try:
            return list(_first_row(path))
        except (ValueError, OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: {_first_problem(path, {}) or error}") from error
    with _text(path) as file:
        row = next(_cells(path, file, f"{path}: line "), (1, []))
    if isinstance(row, Row):
        raise ValueError(f"{row.where}: {row.problem}; {row.remedy}")
    return [name.strip() for name in row[1]]


def line_number(path: Path, row: int) -> int:
    """Find the line number, from 1, of a row, from 0; blank lines are not rows."""
    if _kind(path)[0] not in _CSV:
        return next(islice(_lines(path), row, None))[0]
    return next(islice(read_rows(path, ()), row, None))[0]


def read_batches(
    path: Path,
    columns: Mapping[str, Sequence[pa.DataType]],
    *,
    optional: Collection[str] | None = None,
) -> Iterator[pa.Table]:
    """Read some columns of CSV or of JSON lines, some megabytes at a time.

    Each column has possible types (string, int64, `NUMBERS`); in JSON, the first line with a value
    decides, and values are null in lines without the key. In CSV all but lists are strings, and
    columns that are not `optional` are required.
    """
    return (_csv_batches if _kind(path)[0] in _CSV else _json_batches)(path, columns, optional)


def write_rows(path: Path, tables: Iterable[pa.Table], *, compress: bool) -> None:
    """Write tables as JSON lines, atomically; the same rows give the same bytes."""
    with atomic(path) as partial, partial.open("wb") as raw:
        # Without time and file name in the gzip header, which would change the bytes.
        file = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if compress else nullcontext(raw)
        with file as lines:
            for batch in chain.from_iterable(t.to_batches(max_chunksize=_ROWS) for t in tables):
                rows = (json.dumps(row, ensure_ascii=False) for row in batch.to_pylist())
                lines.write("".join(f"{row}\n" for row in rows).encode())


def _csv_batches(
    path: Path, columns: Mapping[str, Sequence[pa.DataType]], optional: Collection[str] | None
) -> Iterator[pa.Table]:
    required = [name for name in columns if name not in (optional or ())]
    rows = read_rows(path, required, [name for name in columns if name not in required], full=True)
    some = list(islice(rows, _ROWS))
    if not some:
        yield pa.table({name: pa.array([], pa.string()) for name in required})
    while some:
        arrays: dict[str, pa.Array] = {}
        for name in some[0][1]:
            cells = [row[name].strip() or None for _, row in some]
            if NUMBERS in columns[name]:
                lines = (line for line, _ in some)
                lists = [_list(*cell, path, name) for cell in zip(cells, lines, strict=True)]
                arrays[name] = pa.array(lists, NUMBERS)
            else:
                arrays[name] = pa.array(cells, pa.string())
        yield pa.table(arrays)
        some = list(islice(rows, _ROWS))


def _list(cell: str | None, line: int, path: Path, name: str) -> list[float] | None:
    if cell is None:
        return None
    value = None
    with suppress(ValueError, RecursionError):
        value = json.loads(cell)
    if not isinstance(value, list) or not {*map(type, value)} <= {int, float}:
        raise ValueError(
            f"{path}: line {line}: {name}: expected a list of numbers, such as [1, 0, 0], got "
            f"{cell[:60]!r}"
        )
    return value


def _json_batches(
    path: Path, columns: Mapping[str, Sequence[pa.DataType]], _: Collection[str] | None
) -> Iterator[pa.Table]:
    # pyarrow is fast, but its messages have no line number: if it fails, Python finds the line.
    types: dict[str, pa.DataType] = {}
    try:
        row = _first_row(path)
        for name, kinds in columns.items():
            value = row.get(name)
            if value is None and name in row and len(kinds) > 1:
                rows = (parse_object(line.decode("utf-8-sig")) for _, line in _lines(path))
                value = next((v for r in rows if (v := r.get(name)) is not None), None)
            types[name] = next((kind for kind in kinds if _fits(value, kind)), kinds[0])
        options = pj.ParseOptions(pa.schema(types.items()), unexpected_field_behavior="ignore")
        for lines in _blocks(path):
            source = pa.BufferReader(lines)
            table = pj.read_json(source, pj.ReadOptions(block_size=_LONGEST), options)
            table.validate(full=True)
            yield table
    except (ValueError, OSError, EOFError, RecursionError, zlib.error) as error:
        raise ValueError(f"{path}: {_first_problem(path, types) or error}") from error


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line


def _first_row(path: Path) -> dict[str, Any]:
    for _, line in _lines(path):
        return parse_object(line.decode("utf-8-sig"))
    raise ValueError("expected a JSON object per line, got an empty file")


def _blocks(path: Path) -> Iterator[bytes]:
    with _opened(path) as file:
        begun = b""
        while block := file.read(_LONGEST):
            lines, end, rest = block.rpartition(b"\n")
            if not end:
                begun += rest
                continue
            if (whole := begun + lines).strip():
                yield whole
            begun = rest
        if begun.strip():
            yield begun


def _fits(value: Any, kind: pa.DataType) -> bool:
    if value is None:
        return True
    if kind == NUMBERS:
        return isinstance(value, list) and {*map(type, value)} <= {int, float, type(None)}
    if kind == pa.string():
        return isinstance(value, str)
    return type(value) is int and -(2**63) <= value < 2**63


def _first_problem(path: Path, types: Mapping[str, pa.DataType]) -> str | None:
    number = 0
    try:
        for number, line in _lines(path):
            if number == 1 and (what := format_of_bytes(line)):
                return f"expected JSON lines, got {what}; unpack or convert it"
            try:
                row = parse_object(line.decode("utf-8-sig"))
            except UnicodeDecodeError as error:
                byte = f"the byte {line[error.start]:#04x} in byte {error.start + 1}"
                return f"line {number}: expected UTF-8, got {byte}"
            except ValueError as error:
                cut = isinstance(error.__cause__, json.JSONDecodeError)
                cure = "; if it was cut off there, remove the line" if cut else ""
                return f"line {number}: {error}{cure}"
            for name, kind in types.items():
                if not _fits(row.get(name), kind):
                    value = json.dumps(row[name], ensure_ascii=False)[:_SHOWN]
                    return (
                        f"line {number}: {name}: expected {_NAMES[kind]} in every line, got {value}"
                    )
    except (OSError, EOFError, zlib.error):
        return f"after line {number}: expected more lines, got the end of a damaged or cut-off file"
    return None


def describe_missing(required: Sequence[str], names: Sequence[str]) -> str:
    """Say which columns a table lacks, for a message; empty if it has all.

    >>> describe_missing(["id", "label"], ["id", "gold"]), describe_missing(["id"], ["gold"])
    ('found no label', 'found gold alone')
    """
    missing = [name for name in required if name not in names]
    if 0 < len(missing) < len(required):
        *first, last = missing
        return f"found no {', no '.join(first)}{' and no ' if first else ''}{last}"
    shown = ", ".join(names)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}…"
    return f"found {f'{shown} alone' if shown else 'none of them'}" if missing else ""
