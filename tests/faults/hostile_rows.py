"""Hostile random rows, and a slow and obvious reader with the expected result of each."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

KINDS = ("csv", "jsonl", "parquet")
COLUMNS = ("id", "premise", "hypothesis", "label")

TEXTS = (
    '=HYPERLINK("http://x.test","a dog") and a dog', "@SUM(1+1)*cmd|' /C calc'!A0 a dog",
    "<script>alert(1)</script> a dog runs", "a dog \u202egnirts sdrawkcab\u202c runs",
    "a\u200bdog\u200d r\u0301u\u0323ns", "ein Hund la\u0308uft \U0001f415\u200d\U0001f9ba",
    "a dog\u0000runs", 'a dog "quoted", and; a\tcat', "two\nlines of a dog",
    "two\r\nlines of a dog", "old\rMac dog", "a dog\u2028runs\u2029far\u0085",
    "../../etc/passwd a dog", "C:\\dogs\\run", "null", "NaN", "\ufeffa dog runs", "hund " * 20_000,
    "x" * 140_000, "{hypothesis} {0} %s $(dog) `dog`", "'; DROP TABLE dogs; --",
    "\u3000a dog\u3000", "\u0661\u0662\u0663 dogs",
)  # fmt: skip
"""Odd but valid texts."""

NO_TEXTS = ("", " ", "\t\n", "\u3000", "\u00a0", "a" * 100_001)
NO_STRINGS = (None, 7, 1.5, True, float("nan"), float("inf"), [], ["a dog"], {"text": "a dog"})
HALVES = ("a dog \ud83d runs", "\udc00")

LABELS = {
    "entailment": ("entailment", "Entailment", "ENTAILMENT ", "e", "0", 0, "0.0", 0.0),
    "neutral": ("neutral", " nEUTRAL", "n", "N", "1", 1, 1.0),
    "contradiction": ("contradiction", "CONTRADICTION", "c", "2", 2),
    "": ("", "-", "-1", -1, None, "none", "hidden", " ", "null"),
}
NO_LABELS = ("yes", "3", 3, 1.5, True, "entail", "not_entailment", [0], {}, float("nan"), "3.0",
             "neutral,", "=1", "\u0661", "Neutralisation")  # fmt: skip

IDS = ("../../etc/passwd", "/abs/olute", "a b", "=1+1", "x,y", "1/noun/dog/cat/and/more", "~2",
       "1~2", "id\u202e", "\U0001f415", "snli:1", "1", "1", "1", 1, 1.5, "-", "NULL")  # fmt: skip
NO_IDS = (" ", "\t", [1], {"a": 1}, True, "a\ud83d")

RAW_JSON = (
    "[" * 100_000,
    '{"id": ' + "[" * 100_000 + "]" * 100_000 + "}",
    '{"id": "d", "premise": ' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}",
    '{"id": "a", "premise": "a dog", "premise": "a cat", "hypothesis": "x", "label": "e"}',
    '{"id": ' + "9" * 5_000 + ', "premise": "a dog", "hypothesis": "a cat", "label": "e"}',
    '{"id": "a", "premise": "a dog", "hypothesis": "a cat", "label": ' + "1" * 5_000 + "}",
    '{"id": "a", "premise": "a dog", "hypo',
    "7", "null", '"a dog"', "[]", "{}", "{", "}", "not JSON", "nan",
    '{"id": "a" "premise": "a dog"}',
    "{'id': 'a', 'premise': 'a dog'}",
    '{"id": "a", "premise": "a\\x20dog", "hypothesis": "b", "label": "e"}',
)  # fmt: skip
RAW_CSV = ("a,b", "a,b,c,d,e,f", "only one", ",,,,,,,", 'a,"b" c,d,e')
BYTES = b"a,caf\xe9 dog,a dog,e"


@dataclass(frozen=True)
class Row:
    columns: dict[str, Any]
    raw: bytes | None = None
    """Line in place of the columns; never a problem."""


def draw(random: Random, kind: str, count: int) -> list[Row]:
    """Draw rows; about a third are valid."""
    return [_row(random, kind, number) for number in range(count)]


def _row(random: Random, kind: str, number: int) -> Row:
    columns: dict[str, Any] = {
        "id": f"p{number}",
        "premise": f"A dog runs over hill {number}.",
        "hypothesis": "A dog runs.",
        "label": random.choice(("entailment", "neutral", "contradiction")),
    }
    if random.random() < 0.3:
        return Row(columns)
    if kind != "parquet" and random.random() < 0.2:
        raw = random.choice(RAW_JSON if kind == "jsonl" else RAW_CSV).encode()
        return Row({}, BYTES if random.random() < 0.1 else raw)
    for name in random.sample(COLUMNS, random.choice((1, 1, 1, 2, 4))):
        columns[name] = _value(random, name, kind)
    if kind == "jsonl" and random.random() < 0.05:
        del columns[random.choice(COLUMNS[1:])]
    return Row(columns)


def _value(random: Random, name: str, kind: str) -> Any:
    many: tuple[Any, ...]
    if name == "label":
        good = random.choice(list(LABELS.values()))
        many = random.choice((good, good, NO_LABELS))
    elif name == "id":
        many = random.choice((IDS, IDS, NO_IDS))
    else:
        many = random.choice((TEXTS, TEXTS, NO_TEXTS, NO_STRINGS, HALVES))
    fitting = [value for value in many if kind == "jsonl" or _is_cell(value, kind)]
    return random.choice(fitting) if fitting else ""


def _is_cell(value: Any, kind: str) -> bool:
    if value is None:
        return kind == "parquet"
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


# --- Files ---


def write(path: Path, rows: Sequence[Row], random: Random) -> None:
    if path.suffix == ".parquet":
        columns = {name: [row.columns[name] for row in rows] for name in COLUMNS}
        types = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
        arrays = {
            n: pa.array(c, pa.string()).cast(random.choice(types)) for n, c in columns.items()
        }
        pq.write_table(pa.table(arrays), path, row_group_size=random.choice((1, 3, 1000)))
        return
    end = random.choice((b"\n", b"\r\n"))
    lines = [b",".join(name.encode() for name in COLUMNS)] if path.suffix == ".csv" else []
    for row in rows:
        lines.append(row.raw if row.raw is not None else _line(path.suffix, row).encode())
        if path.suffix == ".jsonl" and random.random() < 0.05:
            lines.append(b"  ")
    start = random.choice((b"", b"\xef\xbb\xbf"))
    path.write_bytes(start + end.join(lines) + random.choice((b"", end)))


def _line(suffix: str, row: Row) -> str:
    if suffix == ".jsonl":
        return json.dumps(row.columns)
    cells = io.StringIO(newline="")
    csv.writer(cells, lineterminator="", quoting=csv.QUOTE_ALL).writerow(
        [row.columns[name] for name in COLUMNS]
    )
    return cells.getvalue()


# --- The slow and obvious reading ---


@dataclass(frozen=True)
class Kept:
    id: str
    premise: str
    hypothesis: str
    label: str


def expected(rows: Sequence[Row]) -> Iterator[Kept | str]:
    """Yield for each row the problem, "unlabelled" or "bad"."""
    taken: list[str] = []
    for number, row in enumerate(rows):
        given = row.columns.get("id")
        label = "bad" if row.raw is not None else _label(row.columns.get("label", "bad"))
        texts = [row.columns.get(name) for name in ("premise", "hypothesis")]
        name = _name(number if given in (None, "") else given, taken)
        if row.raw is not None or label == "bad" or (label and not all(map(_is_text, texts))):
            yield "bad"
        elif not label:
            yield "unlabelled"
        elif given not in (None, "") and not _is_id(given):
            yield "bad"
        else:
            yield Kept(name, *texts, label)


def _name(given: Any, taken: list[str]) -> str:
    """Number repeated ids, in the order of the rows."""
    base = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in str(given))
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}~{number}"
    taken.append(name)
    return name


def _label(value: Any) -> str:
    for label, spellings in LABELS.items():
        if any(value is s or (type(value) is type(s) and value == s) for s in spellings):
            return label
    return "bad"


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > 100_000:
        return False
    return value.strip() != "" and not any("\ud800" <= c <= "\udfff" for c in value)


def _is_id(value: Any) -> bool:
    return type(value) in (int, float) or _is_text(value)
