import json
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from helpers.scored_folder import predicted, write_folder

from faults import hostile_rows, small_world
from faults.attack import Attack
from faults.hostile_rows import Kept, Row
from generation.config import Config
from generation.problems.sources import ProblemReader
from merge_dataset.files import read_json, read_table

pytestmark = pytest.mark.slow

ROWS = 16
COLUMNS = {f"{name}_column": name for name in hostile_rows.COLUMNS}
OPTIONS = [word for name in COLUMNS for word in (f"--{name.replace('_', '-')}", COLUMNS[name])]

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
    settings = {**COLUMNS, "skip_bad_rows": skip, "data": str(path)}
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
        for kind in hostile_rows.KINDS:
            with attempt:
                rows = hostile_rows.draw(attempt.random, kind, ROWS)
                path = tmp_path / kind / f"test.{kind}"
                path.parent.mkdir(exist_ok=True)
                hostile_rows.write(path, rows, attempt.random)
                _check_problems(path, rows, path.parent if attempt.number % 2 else path)


def _check_problems(path: Path, rows: Sequence[Row], given: Path) -> None:
    """Check what is read from a file, which is given alone or as its folder."""
    wanted = list(hostile_rows.expected(rows))
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
            kind = hostile_rows.KINDS[attempt.number % 3]
            rows = hostile_rows.draw(attempt.random, kind, ROWS)
            path = Path(f"rows.{kind}")
            hostile_rows.write(path, rows, attempt.random)
            _check_generate(path, rows)
        shutil.rmtree(folder)


def _check_generate(path: Path, rows: Sequence[Row]) -> None:
    wanted = list(hostile_rows.expected(rows))
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
