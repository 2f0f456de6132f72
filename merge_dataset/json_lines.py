"""JSON lines: fast conversion from and to tables, errors with line numbers, single objects."""

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.json as pj

from merge_dataset.files import atomic, format_of_bytes

NUMBERS: Final = pa.list_(pa.float64())

_NAMES: Final = {
    pa.string(): "a string",
    pa.int64(): "an integer of 64 bits",
    NUMBERS: "a list of numbers",
}

_BLOCK: Final = 2**24
"""Bytes that are parsed at a time; the longest possible line."""

_SHOWN: Final = 60
"""Number of characters of a malformed line that a message shows."""

_SEALED: Final = re.compile(rb'(.*), "crc32": "([0-9a-f]{8})"\}\r?\n?', re.DOTALL)
"""Pattern of a line from `sealed`: the content, and its checksum."""


def read_batches(path: Path, columns: Mapping[str, Sequence[pa.DataType]]) -> Iterator[pa.Table]:
    """Read some columns of JSON lines, gzip by its suffix, some megabytes at a time.

    Each column has possible types (string, int64, `NUMBERS`); the first line with a value decides.
    Values are null in lines without the key.
    """
    # pyarrow is fast, but its messages have no line number: if it fails, Python finds the line.
    types: dict[str, pa.DataType] = {}
    try:
        line = _first_line(path)
        row = _first_row(line)
        for name, kinds in columns.items():
            value = row.get(name)
            if value is None and name in row and len(kinds) > 1:
                rest = (_first_row(each).get(name) for _, each in _lines(path))
                value = next((each for each in rest if each is not None), None)
            types[name] = next((kind for kind in kinds if _fits(value, kind)), kinds[0])
        if _SEALED.fullmatch(line):
            for _, each in _lines(path):
                check_line(each)
        options = pj.ParseOptions(pa.schema(types.items()), unexpected_field_behavior="ignore")
        for lines in _blocks(path):
            source = pa.BufferReader(lines)
            table = pj.read_json(source, pj.ReadOptions(block_size=_BLOCK), options)
            table.validate(full=True)
            yield table
    except (ValueError, OSError, EOFError, RecursionError, zlib.error) as error:
        raise ValueError(f"{path}: {_first_problem(path, types) or error}") from error


def first_names(path: Path) -> list[str]:
    """List the keys in the first line of a file that `read_batches` can read."""
    return list(_first_row(_first_line(path)))


def write_rows(path: Path, tables: Iterable[pa.Table], *, compress: bool) -> None:
    """Write tables one after the other, atomically; the same rows give the same bytes."""
    with atomic(path) as partial, partial.open("wb") as raw:
        # Without time and file name in the gzip header, which would change the bytes.
        file = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if compress else nullcontext(raw)
        with file as lines:
            for batch in chain.from_iterable(t.to_batches(max_chunksize=10_000) for t in tables):
                rows = (sealed(row) for row in batch.to_pylist())
                lines.write("".join(f"{row}\n" for row in rows).encode())


def parse_object(text: str) -> dict[str, Any]:
    """Parse the JSON object of a line.

    >>> parse_object('{"label": 1, "label": 2}')
    Traceback (most recent call last):
    ValueError: expected each key once, got 'label' twice
    """
    try:
        return _require_object(_DECODER.decode(text.rstrip()), _PER_LINE)
    except json.JSONDecodeError as error:
        fault = f"{error.msg} in column {error.colno}"
        raise ValueError(f"expected {_PER_LINE}, got {_shown(text)} ({fault})") from error
    except RecursionError:
        raise ValueError(f"expected {_PER_LINE}, got one {_TOO_DEEP}") from None


def parse_array(text: str, name: str) -> Iterator[tuple[int, dict[str, Any] | ValueError]]:
    """Parse a JSON array of objects; yield for each its line, from 1, and the object or error."""
    at = _skip_space(text, _skip_space(text, 0) + 1)
    line, counted = 1, 0
    goes_on = text[at : at + 1] != "]"
    while goes_on:
        line, counted = line + text.count("\n", counted, at), at
        try:
            value, at = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise _unexpected(name, text, error.pos, f"JSON ({error.msg})") from None
        except RecursionError:
            raise ValueError(f"{name}:{line}: expected JSON, got an object {_TOO_DEEP}") from None
        except ValueError as error:
            raise ValueError(f"{name}:{line}: {error}") from None
        try:
            yield line, _require_object(value)
        except ValueError as error:
            yield line, error
        at = _skip_space(text, at)
        goes_on = text[at : at + 1] == ","
        if goes_on:
            at = _skip_space(text, at + 1)
        elif text[at : at + 1] != "]":
            raise _unexpected(name, text, at, "a comma or the end of the JSON array")
    at = _skip_space(text, at + 1)
    if at < len(text):
        raise _unexpected(name, text, at, "nothing after the JSON array")


def sealed(row: Mapping[str, Any]) -> str:
    """Write a row as JSON, with a checksum at its end for `check_line`.

    >>> sealed({"a": 1})
    '{"a": 1, "crc32": "7aa88204"}'
    """
    content = json.dumps(row, ensure_ascii=False).removesuffix("}")
    return f'{content}, "crc32": "{zlib.crc32(content.encode()):08x}"}}'


def check_line(line: bytes) -> None:
    """Raise ValueError if a line does not match its checksum; lines without one pass."""
    if (seal := _SEALED.fullmatch(line)) and zlib.crc32(seal[1]) != int(seal[2], 16):
        raise ValueError(
            "expected the line that was written, got one that does not fit its checksum: the file "
            "is damaged; or, if you changed the line, remove crc32 from it"
        )


def parse_line(line: bytes) -> dict[str, Any]:
    """Parse a line, after checking its checksum if it has one."""
    check_line(line)
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"expected UTF-8, got the byte {line[error.start]:#04x} in byte {error.start + 1}"
        ) from None
    return parse_object(text)


def line_number(path: Path, row: int) -> int:
    """Find the line number, from 1, of a row, from 0; blank lines are not rows."""
    number, _ = next(islice(_lines(path), row, None))
    return number


def _require_object(value: Any, wanted: str = "a JSON object") -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected {wanted}, got {_shown(json.dumps(value))}")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of keys and values; raise ValueError for a repeated key."""
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"expected each key once, got {twice!r} twice")
    return made


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique_keys)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_PER_LINE: Final = "a JSON object per line"
_TOO_DEEP: Final = "nested too deeply"


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _unexpected(name: str, text: str, at: int, wanted: str) -> ValueError:
    line = text.count("\n", 0, at) + 1
    return ValueError(f"{name}:{line}: expected {wanted}, got {_shown(text[at:])}")


def _shown(text: str) -> str:
    """Quote the beginning of a text."""
    first = text.strip()[: _SHOWN + 1]
    return repr(first if len(first) <= _SHOWN else f"{first[:_SHOWN]}…") if first else "nothing"


def _opened(path: Path) -> BinaryIO | gzip.GzipFile:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers from 1."""
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield blocks of whole lines, of about `_BLOCK` bytes; skip blank blocks."""
    with _opened(path) as file:
        begun = b""
        while block := file.read(_BLOCK):
            lines, end, rest = block.rpartition(b"\n")
            if not end:
                begun += rest
                continue
            if (whole := begun + lines).strip():
                yield whole
            begun = rest
        if begun.strip():
            yield begun


def _first_line(path: Path) -> bytes:
    _, line = next(_lines(path), (0, b""))
    return line


def _first_row(line: bytes) -> dict[str, Any]:
    if not line:
        raise EOFError(f"expected {_PER_LINE}, got an empty file")
    return parse_object(line.decode("utf-8-sig"))


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Return whether a JSON value is null or of a type."""
    if value is None:
        return True
    if isinstance(value, bool):
        return False
    if kind == NUMBERS:
        return isinstance(value, list) and all(
            isinstance(each, int | float | None) and not isinstance(each, bool) for each in value
        )
    if kind == pa.string():
        return isinstance(value, str)
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _first_problem(path: Path, types: Mapping[str, pa.DataType]) -> str | None:
    """Describe the error in the first wrong line, if there is one."""
    number = 0
    try:
        for number, line in _lines(path):
            if number == 1 and (found := format_of_bytes(line)):
                return f"expected JSON lines, got {found}; unpack or convert it"
            try:
                row = parse_line(line)
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
