"""Names with a meaning for a shell or DuckDB: the results are those of plain names."""

import os
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from faults import small_world
from faults.attack import Attack
from faults.test_changes import make
from merge_dataset.files import digest_of

pytestmark = pytest.mark.slow

COMMANDS = (
    "check {d}",
    "score {p}.parquet --dataset {d} --n-bootstrap 0",
    "score {p}.jsonl --dataset {d} --n-bootstrap 0",
    "score {p}.csv --dataset {d} --n-bootstrap 0 --per-seed {o}.csv",
    "compare {p}.parquet {p}.jsonl --dataset {d} --n-bootstrap 10",
    "show {d} --n 1",
    "analyse filters --run {r}",
    "agreement {s} --dataset {d} --n-bootstrap 0",
    "analyse hardest {p}.parquet --dataset {d}",
    "export jsonl {d} --out {o}",
    "report {p}.parquet {p}.jsonl --dataset {d} --n-bootstrap 0 --out {o}.html",
    "analyse curves {p}.csv --dataset {d} --out {o}.svg",
    "baseline majority --dataset {d} --out {o}.parquet",
    "baseline hypothesis-only --train {q}.jsonl --dataset {d} --out {o}.jsonl",
    "annotate {d} --out {o} --per-class 2",
    "annotate --out {s} --annotator bo",
    "build --run {r} --out {o}",
    "generate --recipe demo --source mine --data {q}.jsonl --set min_replacements=2 "
    "--set variants_per_class=2 --run {o}-run --out {o}",
    "register {d} --name d --cache-dir {o}",
)
"""Commands with names of a dataset, predictions, a run, a session, problems and results."""

INPUTS = {"{d}": "merge-nli", "{r}": "runs/demo", "{s}": "study", "{p}.parquet": "a.parquet",
          "{p}.jsonl": "b.jsonl", "{p}.csv": "c.csv", "{q}.jsonl": "problems.jsonl"}  # fmt: skip

NAMES = {
    "spaces and quotes": ("it's", 'a "b" c', " a", "`a`", "a  b"),
    "characters of patterns": ("[a]*?", "a[0-9]", "*", "?", "**", "{a,b}", "[!a]"),
    "characters of other languages": ("a%20b", "%s", "a;b", "a;DROP TABLE x", "$HOME", "~", "{0}",
                                      "a\\b", "a=1", "a#b", "a&b", "a|b", "<a>", "a\nb"),
    "leading dashes": ("./-a", "./--out"),
    "letters of other scripts": ("Mädchen", "女孩", "👩‍👧", "e\u0301", "\u202ea"),
    "not UTF-8": (os.fsdecode(b"M\xe4dchen"), os.fsdecode(b"\xff\xfe")),
}  # fmt: skip


def _run(
    folder: Path, world: Path, name: str, command: str
) -> tuple[int, str, str, dict[str, str]]:
    """Run a command; last come digests of tables and names of other files, by name.

    In names of files `o` replaces `name`.
    """
    plain = name.removeprefix("./")
    for place in ("in", "out"):
        shutil.rmtree(folder / place, ignore_errors=True)
        (folder / place / name).mkdir(parents=True)
    places = {letter: f"in/{name}/{letter}{plain}" for letter in "drspq"}
    places["o"] = f"out/{name}/o{plain}"
    for text, source in INPUTS.items():
        if text in command:
            copy = shutil.copytree if (world / source).is_dir() else shutil.copyfile
            copy(world / source, folder / text.format(**places))
    with chdir(folder):
        code, printed, text = small_world.call(*(w.format(**places) for w in command.split()))
    made = {}
    for path in sorted((folder / "out").rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            is_table = path.suffix == ".parquet"
            rows = pq.read_table(path, partitioning=None).to_pylist() if is_table else []
            made[str(path.relative_to(folder)).replace(plain, "o")] = digest_of(repr(rows))
    return code, printed, text, made


@pytest.mark.parametrize("kind", NAMES)
def test_names(kind: str, attack: Attack, once: Callable[..., Path], tmp_path: Path) -> None:
    world = once("changed", make)
    whole = 2 * len(COMMANDS)
    ends = "passes: nothing in a name means anything"
    if kind == "not UTF-8":
        ends = "either: what pyarrow or DuckDB cannot open is refused, with the advice to rename it"
    for attempt in attack.tries(f"names: {kind}", whole, ends):
        name = NAMES[kind][attempt.number % len(NAMES[kind])]
        command = COMMANDS[attempt.random.randrange(len(COMMANDS))]
        with attempt:
            code, printed, message, made = _run(tmp_path, world, name, command)
            note = f"{name!r}: {command}: {code}, {message[-600:]}"
            usual = _run(tmp_path, world, "plain", command)
            if kind == "not UTF-8" and code and not usual[0]:
                assert "UTF-8" in message + printed, note
                continue
            assert (code, sorted(made)) == (usual[0], sorted(usual[3])), note
            assert made == usual[3], note
            if command.startswith(("score", "check", "compare")):
                last, before = (text.split("\n")[-20:-1] for text in (printed, usual[1]))
                assert last == before or name.removeprefix("./") in printed, note
