"""Names with a meaning for a shell or DuckDB: the results are those of plain names."""

import os
import shutil
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import pyarrow.parquet as pq
import pytest

from faults import small_world
from faults.attack import Attack, noted
from faults.commands import MLM, snapshot
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


Change = Callable[[Path], object]
"""Changes the working folder; its argument is a folder elsewhere."""


@dataclass(frozen=True)
class Fault:
    what: str
    change: Change
    command: str
    ends: Literal["refused", "passes"]
    why: str
    kept: bool = True
    """Whether what a link leads to stays unchanged."""
    usual: bool = False
    """Whether `build` makes what it makes without the change."""


def _link(place: str, leads: Literal["there", "nowhere", "itself"]) -> Change:
    """Put a link in place of a file or folder, which lies elsewhere if the link leads there."""

    def change(elsewhere: Path) -> None:
        path = Path(place)
        elsewhere.mkdir()
        if path.exists():
            shutil.move(path, elsewhere / ("kept" if leads == "there" else "unlinked"))
        is_relative = elsewhere.parent.name == "relative"
        up = Path(*[".."] * len(path.parts), elsewhere.name, "kept")
        target = up if is_relative else elsewhere / "kept"
        path.symlink_to(path.absolute() if leads == "itself" else target)

    return change


def _replaced(name: str, old: str, new: str) -> Change:
    path = Path(name)
    return lambda _: path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")


def _other_model(_: Path) -> None:
    (weights,) = Path("mlm").glob("*.safetensors")
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)


def _other_settings(_: Path) -> None:
    path = Path("begun/config.toml")
    path.write_text(path.read_text("utf-8") + "\nsuggestions_per_occurrence = 7\n", "utf-8")


def _nothing(_: Path) -> None:
    pass


_SCORE = "score a.parquet --dataset merge-nli --n-bootstrap 0"
_BUILD = "build --run runs/demo --out merge-nli"
_LINES = "export jsonl merge-nli --out flat"
_SUGGEST = "suggest --recipe demo --source mine --data problems.jsonl --mlm mlm --run begun"
_BUILD_NEW = (
    "build --run begun --out new-data --overwrite --set min_replacements=2 "
    "--set variants_per_class=2"
)
_FOLLOWED = "links are followed where files are read"
_INTO = "the folder that it leads to is the one that was meant"
_IN_PLACE = "the link is replaced, as any file of that name; what it leads to stays"
_ITSELF = "there is no file"

FAULTS: Final = (
    Fault("predictions: a link", _link("a.parquet", "there"), _SCORE, "passes", _FOLLOWED),
    Fault("predictions: a link to itself", _link("a.parquet", "itself"), _SCORE, "refused",
          _ITSELF),
    Fault("the dataset folder: a link", _link("merge-nli", "there"), _SCORE, "passes", _FOLLOWED),
    Fault("the dataset folder: a link to itself", _link("merge-nli", "itself"), "check merge-nli",
          "refused", _ITSELF),
    Fault("a folder of the dataset: a link", _link("merge-nli/demo", "there"), "check merge-nli",
          "passes", _FOLLOWED),
    Fault("a file of the dataset: a link", _link("merge-nli/demo/seeds.parquet", "there"),
          "check merge-nli", "passes", _FOLLOWED),
    Fault("a file of the dataset: a link to itself",
          _link("merge-nli/demo/seeds.parquet", "itself"), _SCORE, "refused", _ITSELF),
    Fault("the run: a link", _link("runs/demo", "there"), f"{_BUILD} --overwrite", "passes", _INTO,
          kept=False),
    Fault("the run: a dangling link", _link("runs/demo", "nowhere"), _BUILD, "refused", _ITSELF),
    Fault("a file of the run: a link", _link("runs/demo/suggested.json", "there"),
          f"{_BUILD} --overwrite", "passes", _FOLLOWED),
    Fault("problems: a link", _link("problems.jsonl", "there"),
          "suggest --recipe demo --source mine --data problems.jsonl --run new", "passes",
          _FOLLOWED),
    Fault("a dataset made anew: a link", _link("merge-nli", "there"),
          f"{_BUILD} --set subsamples=3 --overwrite", "passes", _INTO, kept=False),
    Fault("a dataset made anew: a dangling link", _link("new-data", "nowhere"),
          "build --run runs/demo --out new-data", "passes", _INTO),
    Fault("a dataset made anew: a link to itself", _link("new-data", "itself"),
          "build --run runs/demo --out new-data", "refused", "nothing can be there"),
    Fault("an export made anew: a link", _link("flat", "there"), f"{_LINES} --overwrite", "passes",
          _INTO, kept=False),
    Fault("a report: a dangling link", _link("r.html", "nowhere"),
          f"report{_SCORE[5:]} --out r.html", "passes", _IN_PLACE),
    Fault("predictions made anew: a link", _link("majority.parquet", "there"),
          "baseline majority --dataset merge-nli --out majority.parquet --overwrite", "passes",
          _IN_PLACE),
    Fault("an annotation session: a link", _link("study", "there"),
          "annotate --out study --annotator bo", "passes", _INTO, kept=False),
    Fault("a folder above: a link to itself", _link("new", "itself"),
          f"report{_SCORE[5:]} --out new/r.html", "refused", "nothing can be there"),
    Fault("a folder above: a dangling link", _link("new", "nowhere"),
          f"report{_SCORE[5:]} --out new/r.html", "refused",
          "the folder that it leads to is not there"),
    Fault("the source file before build: other texts", _replaced("problems.jsonl", "red", "blue"),
          _BUILD_NEW, "passes", "the run folder has its own problems", usual=True),
    Fault("the source file before suggest: other texts", _replaced("problems.jsonl", "red", "blue"),
          _SUGGEST, "passes", "no build is of the old ones; answers stay"),
    Fault("the model before build: other weights", _other_model, _BUILD_NEW, "passes",
          "its answers are in the run", usual=True),
    Fault("the model before suggest: other weights", _other_model, _SUGGEST, "passes",
          "it asks the other revision, too"),
    Fault("another model before suggest", _nothing,
          _SUGGEST.replace("--mlm mlm", "--mlm mlm --mlm mlm2"), "passes",
          "it asks that model, too"),
    Fault("another source before suggest", _nothing, _SUGGEST.replace("mine", "other"), "passes",
          "no build is of the old one; answers stay"),
    Fault("another limit before build", _nothing, f"{_BUILD_NEW} --set limit=1", "refused",
          "it was taken by suggest"),
    Fault("the run's settings before build: by hand", _other_settings, _BUILD_NEW, "refused",
          "they are not the run's"),
)  # fmt: skip


def make(folder: Path) -> None:
    small_world.make(folder)
    for name in ("mlm", "mlm2"):
        shutil.copytree(MLM, folder / name)
    with chdir(folder):
        small_world.do(_LINES, _SUGGEST)


def test_changed_between_commands(
    attack: Attack, once: Callable[..., Path], tmp_path: Path
) -> None:
    world, usual = once("changed", make), dict[str, str]()
    for attempt in attack.tries("changed between commands", 2 * len(FAULTS)):
        fault = FAULTS[attempt.number % len(FAULTS)]
        with attempt.of(f"changed: {fault.what}", f"{fault.ends}: {fault.why}"):
            if fault.usual and not usual:
                shutil.copytree(world, tmp_path / "usual")
                with chdir(tmp_path / "usual"):
                    small_world.do(_BUILD_NEW)
                    usual |= snapshot(Path("new-data"))
            kind_of_links = "relative" if attempt.number < len(FAULTS) else "absolute"
            folder = tmp_path / kind_of_links / str(attempt.number)
            _try(fault, world, folder, usual)


def _try(fault: Fault, world: Path, folder: Path, usual: dict[str, str]) -> None:
    shutil.copytree(world, folder)
    elsewhere = folder.with_name("elsewhere")
    shutil.rmtree(elsewhere, ignore_errors=True)
    with chdir(folder):
        fault.change(elsewhere)
        before = snapshot(elsewhere), snapshot(Path())
        code, printed, text = small_world.call(*fault.command.split())
        after = snapshot(elsewhere), snapshot(Path())
    with noted(lambda: f"{fault}: {code}, {printed[-300:]} {text[-600:]}"):
        assert (code == 0) == (fault.ends == "passes")
        assert not fault.kept or before[0].items() <= after[0].items()
        if code:
            assert code in (1, 2)
            assert "error: " in text if code == 2 else "merge-nli" in printed
            assert [name for name in after[1] if "partial" in name or ".old" in name] == []
            assert before[1].items() <= after[1].items()
            assert "[Errno" not in text + printed
        elif fault.usual:
            made = {name.removeprefix("new-data/"): digest for name, digest in after[1].items()
                    if name.startswith("new-data/")}  # fmt: skip
            tables = {name for name in usual if name.endswith(".parquet")}
            assert {name: made[name] for name in tables} == {name: usual[name] for name in tables}
