"""Compare what commands print and write with the record in `kept`, or renew it (`--keep`).

Of a long text, the record has the first lines and a digest of each line; `build/golden` of the
checkout that made the record has the whole text, from which `--before FOLDER` shows old lines.
`VOLATILE` has everything that may differ. The commands are those of the record: its lines `$ …`.
"""

from __future__ import annotations

import argparse
import base64
import difflib
import gzip
import hashlib
import json
import logging
import platform
import re
import shlex
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from golden.worlds import KEPT, SHARED, WORLDS, World

WHOLE: Final = Path(__file__).parents[2] / "build" / "golden"
SHORT: Final = 2_000
"""Most characters of a text that is kept whole."""
FIRST: Final = 12
"""Number of lines kept of a longer text."""
MANY: Final = 50_000
"""Most rows of a Parquet file that are recorded one by one."""
SHOWN: Final = 20

VOLATILE: Final[tuple[tuple[str, str, str], ...]] = (
    ("version of the package", r"version:\d+\.\d+\.\d+\w*", "version:…"),
    ("version of NumPy in signatures", r"numpy:\d+\.\d+\.\d+\w*", "numpy:…"),
    ("how long it took, and how fast it was", r"\b[\d.,]+ (s|min|h|problems/s|ms)\b", "… s"),
    ("how many a second", r"\([\d,]+ per second\)", "(… per second)"),
    ("dates with times", r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?", "…"),
    ("today's date", time.strftime(r"\b%Y-%m-%d\b"), "…"),
    ("years of copyright or of a citation", time.strftime(r"\byear = \{?%Y\}?"), "year = …"),
)
"""Description, pattern and replacement of each text that may differ."""

VOLATILE_KEYS: Final = frozenset({
    "started", "finished", "seconds", "packages", "merge_nli_digest", "memory",
    "machine", "host", "pid", "commit", "dateModified", "dateCreated",
})  # fmt: skip
"""Keys of JSON objects whose values are times, places or versions of a run."""

PROCESSOR: Final = KEPT / "processor.txt"
"""File with the processor features that NumPy found when the record was made."""

Lines = list[str]
Parts = dict[str, Lines]
"""Part of a command's output (exit, stdout, stderr, files by name) → lines."""


def processor() -> str:
    result = np._core._multiarray_umath.__cpu_features__
    return " ".join([platform.machine(), *sorted(name for name, has in result.items() if has)])


def run(world: World, folder: Path) -> Iterator[tuple[str, Parts]]:
    with chdir(folder):
        world.make(folder)
        inputs = {name: "\n".join(lines) for name, lines in _files(folder, {}).items()}
        yield (
            "(files of this world)",
            {"digests": [f"{name} {_digest(text.encode())}" for name, text in inputs.items()]},
        )
        for command in world.commands:
            before = _state(folder)
            if command in world.steps:
                world.steps[command](folder)
                yield command, _files(folder, before)
                continue
            code, printed, message = _call(command)
            parts = {"exit": [str(code)]}
            if printed:
                parts["stdout"] = _text_lines(printed, folder)
            if message:
                parts["stderr"] = _text_lines(_without_progress(message), folder)
            yield command, parts | _files(folder, before)


def _call(command: str) -> tuple[int | str, str, str]:
    from generation.cli import app

    logging.getLogger().handlers.clear()  # one that writes to the last command's stderr
    result = CliRunner().invoke(app, shlex.split(command), prog_name="merge-nli")
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        return f"{type(error).__name__}: {error}", result.stdout, result.stderr
    return result.exit_code, result.stdout, result.stderr


def _state(folder: Path) -> dict[str, tuple[int, int]]:
    """Times and sizes of all files by name, to detect the files that a command writes."""
    result = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            status = path.stat()
            result[path.relative_to(folder).as_posix()] = (status.st_mtime_ns, status.st_size)
    return result


_UNREAD: Final = re.compile(r"\.(lock|log|pyc|npy|npz)$|(^|/)(stores|suggestions|questions)/|^hf/")
"""Names of files of the implementation, which are not results."""


def _files(folder: Path, before: Mapping[str, object]) -> Parts:
    return {
        name: list(_file_lines(folder / name, folder))
        for name, status in _state(folder).items()
        if before.get(name) != status and not _UNREAD.search(name)
    }


def _file_lines(path: Path, folder: Path) -> Iterator[str]:
    content = path.read_bytes()
    if path.suffix == ".gz":
        with suppress(gzip.BadGzipFile):
            content = gzip.decompress(content)
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if path.suffix == ".parquet":
        yield from _parquet_lines(path, folder)
    elif suffix in (".png", ".pdf", ".xlsx", ".safetensors", ".bin", ".svg"):
        # Drawings vary with the libraries, and contain times; only their existence is kept.
        yield f"a file of {suffix}" + (
            "" if suffix in (".png", ".pdf", ".svg") else _digest(content)
        )
    else:
        yield from _text_lines(content.decode("utf-8", "replace"), folder)


def _parquet_lines(path: Path, folder: Path) -> Iterator[str]:
    """Yield schema, metadata, rows; also the digest of the bytes, if they do not vary."""
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid:
        yield f"no Parquet, bytes {_digest(path.read_bytes())}"
        return
    metadata = {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}
    if "merge_nli_digest" not in metadata and "text_digest" not in table.column_names:
        yield f"bytes {_digest(path.read_bytes())}"
    for column in table.schema:
        yield f"column {column.name}: {column.type}"
    for key, value in sorted(metadata.items()):
        if key not in VOLATILE_KEYS and not key.startswith("ARROW"):
            yield from (f"metadata {line}" for line in _json_lines(_parsed(value), key))
    yield f"{len(table)} rows"
    if len(table) > MANY:
        return
    for row in table.to_pylist():
        row = {k: v for k, v in row.items() if k not in VOLATILE_KEYS}
        yield _normal(json.dumps(row, ensure_ascii=False, default=repr), folder)


_DATA: Final = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def _text_lines(text: str, folder: Path) -> Lines:
    """Split text into lines, JSON into values, and the data embedded in a page into values."""
    if result := _DATA.search(text):
        rest = text[: result.start(1)] + text[result.end(1) :]
        data = json.loads(result[1].replace("<\\/", "</"))
        return [
            *(_normal(line, folder) for line in _json_lines(data, "data")),
            *_normal(rest, folder).splitlines(),
        ]
    value = _parsed(text)
    if isinstance(value, dict | list):
        lines = [_normal(line, folder) for line in _json_lines(value)]
        is_steady = VOLATILE_KEYS.isdisjoint(re.findall(r"\w+", text))
        layout = re.sub(r"[^\s\[\]{},:]", "", text) if is_steady else ""
        return [*lines, f"layout {_digest(layout.encode())}"]
    return [line.rstrip() for line in _normal(text, folder).splitlines()]


def _parsed(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _json_lines(value: Any, path: str = "") -> Iterator[str]:
    """Yield the values of JSON, each after its path; a list of plain values is one line."""
    if isinstance(value, str) and isinstance(inner := _parsed(value), dict | list):
        value = inner
    if isinstance(value, dict) and value:
        for key, item in value.items():
            below = f"{path}.{key}" if path else str(key)
            if key in VOLATILE_KEYS:
                yield f"{below} = …"
            else:
                yield from _json_lines(item, below)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for number, item in enumerate(value):
            yield from _json_lines(item, f"{path}[{number}]")
    elif isinstance(value, list) and any(isinstance(item, list) for item in value):
        for number, item in enumerate(value):
            yield f"{path}[{number}] = {json.dumps(item, ensure_ascii=False)}"
    else:
        yield f"{path} = {json.dumps(value, ensure_ascii=False)}"


def _normal(text: str, folder: Path) -> str:
    """Replace each text that may differ, mostly by "…"."""
    for place in sorted({str(folder), str(folder.resolve())}, key=len, reverse=True):
        text = text.replace(place, "…")
    for place in (str(SHARED), str(SHARED.resolve())):
        text = text.replace(place, "../shared")
    for _, pattern, instead in VOLATILE:
        text = re.sub(pattern, instead, text)
    return text


_BAR: Final = re.compile(r"^[^|]*\d+%\|[^|]*\|[^\[]*\[[^\]]*\]")


def _without_progress(text: str) -> str:
    """Remove progress bars from stderr, as they depend on the speed; keep messages."""
    lines = re.split(r"[\r\n]", text)
    return "\n".join(left for part in lines if (left := _BAR.sub("", part, count=1).strip()))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _short_digest(line: str) -> str:
    """Digest of a line in two characters, to find changed lines; the text's digest is longer."""
    return base64.urlsafe_b64encode(hashlib.sha256(line.encode()).digest()[:3]).decode()[:2]


@dataclass(slots=True)
class Kept:
    lines: Lines
    """All lines, or the first ones."""
    digest: str = ""
    """Digest of the whole text, if `lines` are only the first ones."""
    digests: Lines = field(default_factory=list)
    """Digest of each line, in that case."""

    @classmethod
    def of(cls, lines: Lines) -> Kept:
        if sum(map(len, lines)) <= SHORT:
            return cls(lines)
        digests = [_short_digest(line) for line in lines]
        return cls([line[:200] for line in lines[:FIRST]], _digest_of(lines), digests)


def _digest_of(lines: Lines) -> str:
    return _digest("\n".join(lines).encode())


def write(path: Path, commands: Mapping[str, Parts]) -> None:
    out = []
    for command, parts in commands.items():
        out.append(f"$ {command}")
        for name, lines in parts.items():
            kept = Kept.of(lines)
            out.append(f"# {name}" + (f", all of {kept.digest}" if kept.digest else ""))
            out += [f"  {line}" for line in kept.lines]
            joined = "".join(kept.digests)
            out += [f"~ {joined[i : i + 96]}" for i in range(0, len(joined), 96)]
        out.append("")
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(out), encoding="utf-8")


def read(path: Path) -> dict[str, dict[str, Kept]]:
    result: dict[str, dict[str, Kept]] = {}
    parts: dict[str, Kept] = {}
    kept = Kept([])
    for line in path.read_text(encoding="utf-8").split("\n"):
        mark, rest = line[:1], line[2:]
        if mark == "$":
            parts = result[rest] = {}
        elif mark == "#":
            name, _, digest = rest.partition(", all of ")
            kept = parts[name] = Kept([], digest)
        elif mark == "~":
            kept.digests += [rest[i : i + 2] for i in range(0, len(rest), 2)]
        elif mark == " ":
            kept.lines.append(rest)
    return result


def differences(
    before: Mapping[str, Mapping[str, Kept]], now: Mapping[str, Parts], whole: Mapping[str, Parts]
) -> Iterator[str]:
    """Yield a text on each changed command; `whole` has all former lines, if they are known."""
    for command in [*before, *(item for item in now if item not in before)]:
        if command not in now:
            yield f"$ {command}\n  is no longer run"
            continue
        if command not in before:
            yield f"$ {command}\n  is not in the record: make golden-keep"
            continue
        old, new = before[command], now[command]
        result = []
        for name in [*old, *(item for item in new if item not in old)]:
            if name not in new:
                result.append(f"# {name}: there is none now; it was")
                result += [f"- {line}" for line in old[name].lines[:SHOWN]]
            elif name not in old:
                result.append(f"# {name}: there was none; it is")
                result += [f"+ {line}" for line in new[name][:SHOWN]]
            elif lines := list(_changed(old[name], new[name], whole.get(command, {}).get(name))):
                result.append(f"# {name}: {len(lines)} lines of difference")
                result += lines[:SHOWN]
        if result:
            yield "\n  ".join([f"$ {command}", *result])


def _changed(old: Kept, new: Lines, whole: Lines | None) -> Iterator[str]:
    """Yield the changed lines, with the old ones as far as they are known."""
    if old.digest == _digest_of(new) if old.digest else old.lines == new:
        return
    if old.digest and whole and _digest_of(whole) == old.digest:
        old = Kept(whole)
    before, now = (old.digests, list(map(_short_digest, new))) if old.digests else (old.lines, new)
    matcher = difflib.SequenceMatcher(None, before, now, autojunk=False)
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind == "equal":
            continue
        for n in range(i, j):
            known = old.lines[n] if n < len(old.lines) else f"(a line of digest {before[n]})"
            yield f"- {n + 1}: {known[:300]}"
        for n in range(k, m):
            yield f"+ {n + 1}: {new[n][:300]}"
    if before == now:
        yield "(a line whose short digest is the same)"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("worlds", nargs="*", help=f"of {', '.join(WORLDS)}; by default all")
    parser.add_argument("--quick", action="store_true", help="only the worlds of a minute")
    parser.add_argument("--keep", action="store_true", help="record anew")
    parser.add_argument("--before", type=Path, default=WHOLE, help="folder with the old lines")
    asked = parser.parse_args(arguments)
    names = asked.worlds or [n for n, world in WORLDS.items() if world.quick or not asked.quick]
    differing = 0
    if not asked.keep and processor() != PROCESSOR.read_text(encoding="utf-8").strip():
        print("the record is of another processor: the last bits of figures may differ")
    for name in names:
        world = WORLDS[name]
        if missing := [str(path) for path in world.needs if not path.exists()]:
            print(f"{name}: left out, as there is no {', '.join(missing)}")
            continue
        with tempfile.TemporaryDirectory(prefix="golden-") as place:
            folder = Path(place).resolve() / "world"
            folder.mkdir()
            now = dict(run(world, folder))
        copy = f"{name}.json.gz"
        WHOLE.mkdir(parents=True, exist_ok=True)
        text = json.dumps(now, ensure_ascii=False).encode()
        if asked.keep:
            write(world.record, now)
            PROCESSOR.write_text(processor() + "\n", encoding="utf-8")
            (WHOLE / copy).write_bytes(gzip.compress(text, mtime=0))
            print(f"{name}: {len(now)} commands recorded")
            continue
        (WHOLE / f"today-{copy}").write_bytes(gzip.compress(text, mtime=0))
        old = asked.before / copy
        whole = json.loads(gzip.decompress(old.read_bytes())) if old.is_file() else {}
        result = list(differences(read(world.record), now, whole))
        differing += len(result)
        print(*result, sep="\n\n")
        print(f"{name}: {len(now)} commands, {len(result)} differ", flush=True)
    return 1 if differing else 0
