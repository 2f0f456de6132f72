"""Predictions files with oddities: harmless, or errors in a row that messages can name."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from merge_dataset.schema import LABELS

KINDS = (".csv", ".jsonl", ".parquet")
COLUMNS = ("variant_id", "seed_id", "label", "prediction")

Rows = list[dict[str, Any]]
Change = Callable[[Random, Rows], object]


def _spelt(random: Random, rows: Rows) -> None:
    how = random.choice((str.upper, str.title, lambda name: f" {name} ", str))
    for row in rows:
        for name in ("label", "prediction"):
            row[name] = how(LABELS[row[name]])


def _more_columns(random: Random, rows: Rows) -> None:
    odd = random.choice(("=1+1", "\u202e", "x" * 10_000, "a\nb", '"', "", "\u0000"))
    for row in rows:
        row["comment"] = odd


def _set(random: Random, rows: Rows, name: str, *values: Any) -> None:
    rows[random.randrange(len(rows))][name] = random.choice(values)


def _other_label(random: Random, rows: Rows) -> None:
    _spelt(random, rows)
    name = random.choice(("label", "prediction"))
    none = ("", " ", "-1") if name == "label" else ()  # a prediction may be no label
    _set(random, rows, name, "yes", "entail", "3", "=1", "neutral\u200b", "NaN", "\u0661",
         "e", "LABEL_0", *none)  # fmt: skip


def _other_number(random: Random, rows: Rows) -> None:
    name = random.choice(("label", "prediction"))
    _set(random, rows, name, 3, 10**12, *((-1, None) if name == "label" else ()))


def _other_id(random: Random, rows: Rows) -> None:
    _set(random, rows, "variant_id", "../../etc/passwd", "", "x", "=1", "\u202e", None)


def _wrong_gold(random: Random, rows: Rows) -> None:
    row = rows[random.randrange(len(rows))]
    row["label"] = (row["label"] + random.choice((1, 2))) % 3


def _wrong_seed(random: Random, rows: Rows) -> None:
    _set(random, rows, "seed_id", "snli:x", "", None, "snli:a/", "\u202esnli:a")


HARMLESS: tuple[Change, ...] = (
    _spelt, lambda random, rows: random.shuffle(rows), _more_columns, lambda random, rows: None,
)  # fmt: skip
WRONG: tuple[Change, ...] = (
    _other_label, _other_number, _other_id, _wrong_gold, _wrong_seed,
    lambda random, rows: rows.insert(random.randrange(len(rows)), dict(random.choice(rows))),
    lambda random, rows: rows.pop(random.randrange(len(rows))),
)  # fmt: skip


def write(path: Path, rows: Sequence[dict[str, Any]], random: Random) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
        return
    end = random.choice(("\n", "\r\n"))
    if path.suffix == ".jsonl":
        lines = [json.dumps(row, ensure_ascii=random.random() < 0.5) for row in rows]
    else:
        names = list(dict.fromkeys(name for row in rows for name in row))
        cells = io.StringIO(newline="")
        writer = csv.writer(cells, lineterminator=end, delimiter=random.choice((",", ";", "\t")))
        writer.writerow(names)
        writer.writerows([row.get(name) for name in names] for row in rows)
        lines = [cells.getvalue().removesuffix(end)]
    start = random.choice((b"", b"\xef\xbb\xbf"))
    path.write_bytes(start + (end.join(lines) + random.choice(("", end))).encode())


RAW: tuple[str, ...] = (
    "[" * 100_000,
    '{"variant_id": ' + "[" * 100_000,
    '{"variant_id": "snli:a", "variant_id": "snli:b", "seed_id": "snli:a", "label": 0}',
    '{"variant_id": "snli:a", "seed_id": "snli:a", "label": ' + "1" * 5_000 + ', "prediction": 0}',
    '{"variant_id": "snli:a", "seed_id": "snli:a", "label": 0, "prediction": 1e999}',
    '{"variant_id": "snli:a", "seed_id": "snli:a", "label": 0, "prediction": NaN}',
    '{"variant_id": "snli:\\ud83d", "seed_id": "snli:a", "label": 0, "prediction": 0}',
    '{"variant_id": ["snli:a"], "seed_id": "snli:a", "label": 0, "prediction": 0}',
    '{"variant_id": {"a": "b"}, "seed_id": "snli:a", "label": 0, "prediction": 0}',
    '{"variant_id": "snli:a", "seed_id": "snli:a", "label": true, "prediction": 0}',
    '{"variant_id": "snli:a", "seed_id": "snli:a", "label": 0, "prediction": 0.0}',
    '{"variant_id": "snli:a", "seed_id": "snli:a", "label": 0, "prediction": 0',
    "{}", "7", "null", "not JSON", "[]", "\u0000", '{"variant_id": "snli:a"}}',
)  # fmt: skip
"""Lines of JSON that no reader accepts."""
