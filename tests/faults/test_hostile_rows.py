import json
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import chdir
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from helpers.scored_folder import predicted, write_folder

from faults import hostile_predictions, hostile_rows, small_world
from faults.attack import Attack
from faults.hostile_rows import Kept, Row
from generation.config import Config
from generation.problems.sources import ProblemReader
from generation.problems.tagging import Tagger
from merge_dataset.files import read_json, read_table

pytestmark = pytest.mark.slow

ROWS = 16
COLUMNS = {f"{name}_column": name for name in hostile_rows.COLUMNS}
OPTIONS = [word for name in COLUMNS for word in (f"--{name.replace('_', '-')}", COLUMNS[name])]

PYTHON = re.compile(r"Traceback|\[Errno|<class|codec|NoneType|object has no|not supported between")


@pytest.fixture(autouse=True)
def _one_tagger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tagger, "load", cache(Tagger.load))


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

COMMANDS = (
    "score {} --dataset merge-nli --n-bootstrap 0 --format json",
    "compare {} other.jsonl --dataset merge-nli --n-bootstrap 10 --format json",
    "analyse hardest {} --dataset merge-nli --format json",
    "report {} --dataset merge-nli --n-bootstrap 0 --out report.json",
    "publish results {} --dataset merge-nli --dataset-repo a/b --repo a/m --format json",
)


def make_scored(folder: Path) -> None:
    write_folder(folder / "merge-nli")
    rows = predicted()
    hostile_predictions.write(folder / "model.jsonl", rows, Random(0))
    others = [{**row, "prediction": 0} for row in rows]
    hostile_predictions.write(folder / "other.jsonl", others, Random(0))


def figures(command: str, file: Path) -> tuple[int, str, str]:
    code, printed, error = small_world.call(*command.format(file).split())
    if "report.json" in command and not code:
        printed = Path("report.json").read_text(encoding="utf-8")
    return code, ",".join(re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])", printed)), error


def test_predictions(attack: Attack, once: Callable[..., Path], tmp_path: Path) -> None:
    shutil.copytree(once("scored", make_scored), tmp_path, dirs_exist_ok=True)
    with chdir(tmp_path):
        known = {}
        for command in COMMANDS:
            code, known[command], error = figures(command, Path("model.jsonl"))
            assert code == 0, error
        ends = "either: odd but harmless rows give the same figures, wrong ones are refused"
        for attempt in attack.tries("hostile predictions", 300, ends):
            with attempt:
                command = COMMANDS[attempt.number % len(COMMANDS)]
                path = Path(f"model{hostile_predictions.KINDS[attempt.number % 3]}")
                is_wrong = _write_odd(path, attempt.random)
                code, result, error = figures(command, path)
                if is_wrong:
                    assert path.name in message_of(error)
                    assert code == 2
                else:
                    assert (code, result) == (0, known[command])


def _write_odd(path: Path, random: Random) -> bool:
    """Write predictions with oddities; return whether they are invalid."""
    rows = predicted()
    if path.suffix == ".jsonl" and random.random() < 0.4:
        hostile_predictions.write(path, rows, random)
        lines = path.read_bytes().split(b"\n")
        lines.insert(random.randrange(len(lines)), random.choice(hostile_predictions.RAW).encode())
        path.write_bytes(b"\n".join(lines))
        return True
    changes = hostile_predictions.HARMLESS if random.random() < 0.4 else hostile_predictions.WRONG
    random.choice(changes)(random, rows)
    hostile_predictions.write(path, rows, random)
    return changes is hostile_predictions.WRONG
