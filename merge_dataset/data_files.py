"""Readers of common table files, row by row: JSON, delimited text, Parquet and Arrow."""

import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, TextIO

import pyarrow as pa

from merge_dataset.files import format_of_bytes, open_parquet, read_text
from merge_dataset.json_lines import NUMBERS, parse_array, parse_object
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

_DELIMITERS: Final = {",": "comma", ";": "semicolon", "\t": "tab"}

LONGEST_CELL: Final = 2**24
"""Most characters of a cell; a longer one means a quotation mark that is never closed."""

_ROWS: Final = 10_000
"""Number of rows of CSV that are Python objects at a time."""

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
    read = {".json": _read_json, ".jsonl": _read_json, ".parquet": _read_parquet,
            ".arrow": _read_arrow}.get(suffix, _read_table)  # fmt: skip
    return _with_place(path, read)


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
    classes = {name: found for name, each in features.items() if (found := _class_names(each))}
    for row in rows:
        there = classes.keys() & row.columns.keys()
        named = {column: _named(row.columns[column], classes[column]) for column in there}
        yield replace(row, columns={**row.columns, **named}) if named else row


def _kind(path: Path) -> tuple[str, bool]:
    """Return a file's suffix without .gz, and whether it had .gz."""
    name = path.name.lower()
    return Path(name.removesuffix(".gz")).suffix, name.endswith(".gz")


def _with_place(path: Path, read: Callable[[Path], Iterator[Row]]) -> Iterator[Row]:
    """Add file and row to errors of reading."""
    last = None
    try:
        for last in read(path):
            yield last
    except (EOFError, OSError, zlib.error, pa.ArrowException) as error:
        if getattr(error, "errno", None) is not None:
            raise  # errors of the system, such as missing permission
        place = f"after {last.where}" if last else path.name
        raise ValueError(
            f"{place}: expected a whole {_kind(path)[0]} file, got one that is damaged, cut off or "
            f"in another format; restore it from a copy, or fetch it again"
        ) from error


# --- Text ---


@contextmanager
def _text(path: Path) -> Iterator[TextIO]:
    """Open a text file, skip a byte-order mark, and keep bytes that are not UTF-8 recognisable."""
    with gzip.open(path) if _kind(path)[1] else path.open("rb") as file:
        raw = io.BufferedReader(file)
        start = raw.peek(512)[:512]
        if found := format_of_bytes(start):
            told = f"expected text in UTF-8, got {found}; unpack or convert it, and rename it so"
            raise ValueError(f"{path.name}: {told}")
        most = max(len(start) // 4, 1)
        signs = {
            "UTF-16": start.startswith((b"\xff\xfe", b"\xfe\xff")),
            "UTF-16LE": start[1::2].count(0) >= most,
            "UTF-16BE": start[::2].count(0) >= most,
        }
        if encoding := next((name for name, is_there in signs.items() if is_there), None):
            told = f"expected UTF-8, got {encoding}; {_conversion(path.name, encoding)}"
            raise ValueError(f"{path.name}: {told}")
        yield io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _conversion(name: str, encoding: str) -> str:
    unpacked = name.removesuffix(".gz")
    return (
        f'convert it: iconv -f {encoding} -t UTF-8 "{unpacked}" > "utf8-{unpacked}", or save it as '
        f'"UTF-8" in the program it comes from'
    )


def _undecoded(name: str, where: str, line: str) -> Row | None:
    """Make the error row for a line with bytes that are not UTF-8; None for other lines."""
    found = _UNDECODED.search(line)
    if found is None:
        return None
    byte, before = ord(found.group()) - 0xDC00, line[: found.start()][-20:]
    advice = f"if it is in Latin-1 (Windows-1252), {_conversion(name, 'WINDOWS-1252')}"
    problem = f"expected UTF-8, got the byte {byte:#04x} after {before!r}"
    return Row(where, problem=problem, remedy=advice)


def _read_json(path: Path) -> Iterator[Row]:
    """Read an object per line, or an array of objects."""
    with _text(path) as file:
        lines = enumerate(file, start=1)
        is_first = True
        for number, line in lines:
            if not line.strip():
                continue
            if is_first and line.lstrip().startswith("["):
                before = "\n" * (number - 1)
                yield from _read_array(path.name, before + line + file.read())
                return
            is_first, where = False, f"{path.name}:{number}"
            undecoded = _undecoded(path.name, where, line)
            if undecoded:
                yield undecoded
                continue
            try:
                yield Row(where, parse_object(line))
            except ValueError as error:
                yield Row(where, problem=f"{error}")


def _read_array(name: str, text: str) -> Iterator[Row]:
    """Read an array of objects, parsed as a whole; a syntax error ends the reading."""
    found = _UNDECODED.search(text)
    if found:
        number = text.count("\n", 0, found.start()) + 1
        line = text[text.rfind("\n", 0, found.start()) + 1 : found.end()]
        row = _undecoded(name, f"{name}:{number}", line)
        assert row is not None
        raise ValueError(f"{row.where}: {row.problem}; {row.remedy}")
    for number, value in parse_array(text, name):
        where = f"{name}:{number}"
        if isinstance(value, ValueError):
            yield Row(where, problem=f"{value}")
        else:
            yield Row(where, value)


def _read_table(path: Path) -> Iterator[Row]:
    """Read rows of cells below a header; tab-separated files have literal quotation marks."""
    is_csv = _kind(path)[0] == ".csv"
    csv.field_size_limit(LONGEST_CELL)
    with _text(path) as file:
        start = file.readline()
        usual = "," if is_csv else "\t"
        candidates = [usual, *(each for each in _DELIMITERS if each != usual)]
        delimiter = next(
            (d for d in candidates if len(next(csv.reader([start], delimiter=d), ())) > 1), usual
        )
        quoting: Any = csv.QUOTE_MINIMAL if is_csv or delimiter != "\t" else csv.QUOTE_NONE
        reader = csv.reader(chain([start], file), delimiter=delimiter, quoting=quoting, strict=True)
        header: list[str] | None = None
        while True:
            where = f"{path.name}:{reader.line_num + 1}"
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                problem = _quoting_fault(error)
                if "expected after" not in str(error):  # the row has no end, so none can follow
                    raise ValueError(f"{where}: {problem}") from error
                yield Row(where, problem=problem)
                continue
            if not cells:
                continue
            undecoded = _undecoded(path.name, where, "\t".join(cells))
            if header is None:
                if undecoded:
                    raise ValueError(f"{where}: {undecoded.problem}; {undecoded.remedy}")
                header = _require_distinct(cells, where)
            elif undecoded:
                yield undecoded
            elif len(cells) != len(header):
                quoted = " (texts with a separator in them go in quotation marks)"
                problem = f"expected {len(header)} columns, got {len(cells)}"
                problem += quoted if len(cells) > len(header) else ""
                yield Row(where, problem=problem)
            else:
                yield Row(where, dict(zip(header, cells, strict=True)))


def _quoting_fault(error: csv.Error) -> str:
    if "expected after" in str(error):
        return (
            "a quotation mark stands inside a cell: write it twice, and put the cell in quotation "
            "marks"
        )
    return "a quotation mark is opened and never closed: the file is cut off, or lacks one"


def _require_distinct(names: Sequence[str], where: str) -> list[str]:
    """Require distinct names of columns, as one would hide the other."""
    twice = [name for name, times in Counter(names).items() if times > 1 and name]
    if twice:
        raise ValueError(f"{where}: expected each column once, got {twice[0]!r} twice")
    return list(names)


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
    """Read the description of columns that `datasets` stores in a file, if any."""
    written = (schema.metadata or {}).get(b"huggingface")
    if written is None:
        return {}
    try:
        features = parse_object(written.decode())["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def _class_names(feature: Any) -> list[str]:
    """Return the class names of a column, or of the elements of its lists."""
    if isinstance(feature, list) and feature:
        return _class_names(feature[0])
    if not isinstance(feature, dict):
        return []
    if feature.get("_type") == "ClassLabel":
        return list(map(str, feature.get("names") or ()))
    return _class_names(feature.get("feature"))


def _named(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_named(each, names) for each in value]
    text = label_text(value)
    if text in names or not _NUMBER.fullmatch(text):
        return value
    number = int(text)
    if number < 0:
        return ""
    return names[number] if number < len(names) else f"class {number} of {len(names)}"


# --- Columns of a CSV file ---


def read_rows(
    path: Path,
    required: Sequence[str],
    optional: Sequence[str] = (),
    *,
    ended: bool = False,
    full: bool = False,
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a CSV file with a header, each with the number of its last line.

    Cells missing at the end of a row are empty, as some spreadsheets leave them out; with `full`, a
    missing cell of a required column is an error. With `ended`, a last line without a line end is
    an error, as it was truncated.
    """
    head = _head(path)
    delimiter = max(",;\t", key=head.count)
    csv.field_size_limit(LONGEST_CELL)
    file = path.open(encoding="utf-8-sig", newline="")
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        if missing := describe_missing(required, header):
            raise ValueError(
                f"expected the columns {', '.join(required)} in its first line, {missing}"
            )
        if twice := [name for name in required if header.count(name) > 1]:
            raise ValueError(f"expected each column once, got {twice[0]} several times in {head!r}")
        names = [name for name in (*required, *optional) if name in header]
        places = [header.index(name) for name in names]
        least = max(places[: len(required)]) + 1 if full else 0
        for cells in reader:
            if len(cells) > len(header):
                raise ValueError(
                    f"line {reader.line_num}: expected {len(header)} cells, as in the header, got "
                    f"{len(cells)}; put cells with a {_DELIMITERS[delimiter]} in quotation marks"
                )
            if cells and len(cells) < least:
                raise ValueError(
                    f"line {reader.line_num}: expected {len(header)} cells, as in the header, got "
                    f"{len(cells)}; is the file cut off?"
                )
            if cells:
                cells += [""] * (len(header) - len(cells))
                yield reader.line_num, dict(zip(names, map(cells.__getitem__, places), strict=True))
        if ended and path.read_bytes()[-1:] not in (b"\n", b"\r"):
            raise ValueError(
                f"line {reader.line_num}: expected a line end after the last row, got none: the "
                f"file was cut off there; or, if it is whole, end its last line"
            )
    except csv.Error as error:
        raise ValueError(f"{path}: line {reader.line_num}: {_quoting_fault(error)}") from error
    except UnicodeDecodeError:
        read_text(path)  # says which line
        raise
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    finally:
        file.close()


def read_batches(
    path: Path, columns: Mapping[str, Sequence[pa.DataType]], *, optional: Collection[str]
) -> Iterator[pa.Table]:
    """Read columns of a CSV file in batches, typed as in `json_lines.read_batches`."""
    required = [name for name in columns if name not in optional]
    further = [name for name in columns if name in optional]
    rows = read_rows(path, required, further, full=True)
    some = list(islice(rows, _ROWS))
    if not some:
        yield pa.table({name: pa.array([], pa.string()) for name in required})
    while some:
        arrays: dict[str, pa.Array] = {}
        for name in some[0][1]:
            values = [row[name].strip() or None for _, row in some]
            if NUMBERS in columns[name]:
                lines = [line for line, _ in some]
                arrays[name] = pa.array(_numbers(values, path, lines, name), NUMBERS)
            else:
                arrays[name] = pa.array(values, pa.string())
        yield pa.table(arrays)
        some = list(islice(rows, _ROWS))


def _numbers(
    cells: Sequence[str | None], path: Path, lines: Sequence[int], name: str
) -> list[list[float] | None]:
    """Parse lists of numbers as JSON: all at once, which is much faster, or else one by one."""
    there = [cell for cell in cells if cell is not None]
    # A list must not begin in one cell and end in another.
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
                f"[1, 0, 0], got {str(cell)[:60]!r}"
            )
        found.append(None if cell is None else value)
    return found


def _head(path: Path) -> str:
    """Read the first line of a file, without its line end."""
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            return file.readline().removesuffix("\n")
    except UnicodeDecodeError:
        read_text(path)  # says which line
        raise


def read_header(path: Path) -> list[str]:
    """Read the names of a CSV file's columns, as in `read_rows`."""
    head = _head(path)
    rows = csv.reader([head], delimiter=max(",;\t", key=head.count))
    return [name.strip() for name in next(rows, [])]


def describe_missing(required: Sequence[str], there: Sequence[str]) -> str:
    """Say which columns a table lacks, for a message; empty if it has all.

    >>> describe_missing(["id", "label"], ["id", "gold"]), describe_missing(["id"], ["gold"])
    ('found no label', 'found gold alone')
    """
    missing = [name for name in required if name not in there]
    if 0 < len(missing) < len(required):
        *first, last = missing
        return f"found no {', no '.join(first)}{' and no ' if first else ''}{last}"
    shown = ", ".join(there)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}…"
    return f"found {f'{shown} alone' if shown else 'none of them'}" if missing else ""


def plain(text: str) -> str:
    """Mark a text so that no spreadsheet takes it for a formula (OWASP, CSV injection).

    >>> plain("=HYPERLINK(1)"), plain("A girl runs.")
    ("'=HYPERLINK(1)", 'A girl runs.')
    """
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text
