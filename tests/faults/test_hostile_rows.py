import csv
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.scored_folder import predicted, write_folder

from faults import small_world
from faults.attack import Attack
from generation.config import Config
from generation.problems.sources import ProblemReader
from merge_dataset.files import read_json, read_table

pytestmark = pytest.mark.slow

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


# --- What is tested ---

ROWS = 16
NAMED = {f"{name}_column": name for name in COLUMNS}
OPTIONS = [word for name in NAMED for word in (f"--{name.replace('_', '-')}", NAMED[name])]

PYTHON = re.compile(r"Traceback|\[Errno|<class|codec|NoneType|object has no|not supported between")


def message_of(error: str, *, lines: int = 1) -> str:
    """Return an error's message, which is not Python's and has at most `lines` lines."""
    message = error[error.index("error: ") :].strip()
    assert not PYTHON.search(message)
    assert message.count("\n") < lines, message
    return message


# --- Problems ---


def read(path: Path, *, skip: bool) -> tuple[list[Kept], int]:
    seeds: list[Any] = []
    settings = {**NAMED, "skip_bad_rows": skip, "data": str(path)}
    problems = ProblemReader(Config(source="mine", **settings))
    problems.read(seeds.append)
    kept = [Kept(s.seed_id.removeprefix("mine:"), *s.texts, s.label) for s in seeds]
    return kept, len(problems.skipped)


def is_refused_whole(rows: Sequence[Row], wanted: Sequence[Kept | str]) -> bool:
    """Whether a file must be refused as a whole: an id of a variant, an array, no problem."""
    ids = {row.id for row in wanted if isinstance(row, Kept)}
    begins = next((row.raw for row in rows), None) or b""
    is_variant = any(name.startswith("1/noun/dog/cat") for name in ids) and "1" in ids
    return is_variant or begins.startswith(b"[") or not ids


def test_problems(attack: Attack, tmp_path: Path) -> None:
    ends = "either: a bad row is refused by its number, or skipped where --skip-bad-rows says so"
    for attempt in attack.tries("hostile problems", 240, ends):
        for kind in KINDS:
            with attempt:
                rows = draw(attempt.random, kind, ROWS)
                path = tmp_path / kind / f"test.{kind}"
                path.parent.mkdir(exist_ok=True)
                write(path, rows, attempt.random)
                _check_problems(path, rows, path.parent if attempt.number % 2 else path)


def _check_problems(path: Path, rows: Sequence[Row], given: Path) -> None:
    """Check what is read from a file, which is given alone or as its folder."""
    wanted = list(expected(rows))
    bad = [number for number, verdict in enumerate(wanted) if verdict == "bad"]
    if is_refused_whole(rows, wanted):
        with pytest.raises(ValueError, match=re.escape(path.name)):
            read(given, skip=True)
        return
    assert read(given, skip=True) == ([v for v in wanted if isinstance(v, Kept)], len(bad))
    if not bad:
        assert read(given, skip=False)[1] == 0
        return
    with pytest.raises(ValueError, match=re.escape(path.name)) as error:
        read(given, skip=False)
    message = f"{error.value}"
    assert not PYTHON.search(message)
    named = len(re.findall(rf"{re.escape(path.name)}:(?: row )?\d+: ", message))
    assert named == min(len(bad), 10) or "…" in message


def test_problems_through_the_commands(attack: Attack, tmp_path: Path) -> None:
    ends = "passes: with --skip-bad-rows the rest is built, and what is left out is listed"
    for attempt in attack.tries("hostile problems, commands", 60, ends):
        folder = tmp_path / f"{attempt.number}"
        folder.mkdir()
        with attempt, chdir(folder):
            kind = KINDS[attempt.number % 3]
            rows = draw(attempt.random, kind, ROWS)
            path = Path(f"rows.{kind}")
            write(path, rows, attempt.random)
            _check_generate(path, rows)
        shutil.rmtree(folder)


def _check_generate(path: Path, rows: Sequence[Row]) -> None:
    wanted = list(expected(rows))
    command = [*f"generate --recipe demo --source mine --data {path} --run run".split(), *OPTIONS]
    command += ["--set", "min_replacements=2"]
    code, _, error = small_world.call(*command)
    if "bad" in wanted or is_refused_whole(rows, wanted):
        assert path.name in message_of(error, lines=13)
        assert code == 2
    code, _, error = small_world.call(*command, "--skip-bad-rows")
    if is_refused_whole(rows, wanted):
        assert path.name in message_of(error, lines=13)
        assert code == 2
        return
    if code:  # a few problems may have no replacements
        assert re.search("shared by|has a replacement left|no seed has", message_of(error))
    ids = sorted(row.id for row in wanted if isinstance(row, Kept))
    assert sorted(read_table(Path("run/problems.parquet"))["seed_id"].to_pylist()) == sorted(
        f"mine:{name}" for name in ids
    )
    if count := wanted.count("bad"):
        assert len(read_json(Path("run/skipped_rows.json"))) == count
        assert f"cannot be used and are left out: {count}\n" in error
    if not code:
        _check_the_rest(len(ids))


def _check_the_rest(count: int) -> None:
    small_world.do(
        "check",
        "baseline majority --dataset merge-nli --out p.parquet",
        "baseline majority --dataset run/problems.parquet --out all.parquet",
        "score p.parquet --dataset merge-nli --n-bootstrap 0",
        "report p.parquet --dataset merge-nli --n-bootstrap 0",
        "analyse hardest p.parquet --dataset merge-nli",
        "export csv --out as-csv",
        "export jsonl --out as-jsonl",
        "annotate merge-nli --out study --per-class 3",
        "annotate --out study --annotator ann",
    )
    assert len(read_table(Path("all.parquet"))) == count
    variants = read_table(Path("merge-nli/mine/seeds.parquet")).to_pylist()
    lines = Path("as-jsonl/mine/seeds.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    assert [json.loads(line)["premise"] for line in lines] == [v["premise"] for v in variants]


# --- Predictions ---

RAW = (
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


@pytest.mark.parametrize("line", RAW, ids=range(len(RAW)))
def test_predictions_in_json_that_no_reader_accepts(
    line: str, once: Callable[..., Path], tmp_path: Path
) -> None:
    """The golden record has what is wrong in rows; here is what is no row."""
    dataset = once("scored", lambda folder: write_folder(folder / "merge-nli")) / "merge-nli"
    lines = [json.dumps(row) for row in predicted()]
    path = tmp_path / "model.jsonl"
    path.write_text("\n".join([*lines[:3], line, *lines[3:]]), encoding="utf-8")
    for command in ("score", "report"):
        code, _, error = small_world.call(command, str(path), "--dataset", str(dataset))
        assert path.name in message_of(error)
        assert code == 2
