"""Symbolic links instead of files and folders: followed, replaced or refused, without loss."""

import shutil
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from faults import small_world
from faults.attack import Attack, noted
from faults.commands import snapshot

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Kind:
    what: str
    command: str
    place: str
    leads: Literal["there", "nowhere", "itself"]
    ends: Literal["refused", "passes"]
    why: str
    kept: bool = True
    """Whether the target of the link stays unchanged."""


_SCORE = "score a.parquet --dataset merge-nli --n-bootstrap 0"
_BUILD = "build --run runs/demo --out merge-nli"
_LINES = "export jsonl merge-nli --out flat"
_FOLLOWED = "links are followed where files are read"
_INTO = "the folder that it leads to is the one that was meant"
_IN_PLACE = "the link is replaced, as any file of that name; what it leads to stays"
_ITSELF = "there is no file"

KINDS = (
    Kind("predictions", _SCORE, "a.parquet", "there", "passes", _FOLLOWED),
    Kind("predictions", _SCORE, "a.parquet", "itself", "refused", _ITSELF),
    Kind("the dataset folder", _SCORE, "merge-nli", "there", "passes", _FOLLOWED),
    Kind("the dataset folder", "check merge-nli", "merge-nli", "itself", "refused", _ITSELF),
    Kind("a folder of the dataset", "check merge-nli", "merge-nli/demo", "there", "passes",
         _FOLLOWED),
    Kind("a file of the dataset", "check merge-nli", "merge-nli/demo/seeds.parquet", "there",
         "passes", _FOLLOWED),
    Kind("a file of the dataset", _SCORE, "merge-nli/demo/seeds.parquet", "itself", "refused",
         _ITSELF),
    Kind("the run", f"{_BUILD} --overwrite", "runs/demo", "there", "passes", _INTO, kept=False),
    Kind("the run", _BUILD, "runs/demo", "nowhere", "refused", _ITSELF),
    Kind("a file of the run", f"{_BUILD} --overwrite", "runs/demo/suggested.json", "there",
         "passes", _FOLLOWED),
    Kind("problems", "suggest --recipe demo --source mine --data problems.jsonl --run new",
         "problems.jsonl", "there", "passes", _FOLLOWED),
    Kind("a dataset made anew", f"{_BUILD} --set subsamples=3 --overwrite", "merge-nli", "there",
         "passes", _INTO, kept=False),
    Kind("a dataset made anew", "build --run runs/demo --out new-data", "new-data", "nowhere",
         "passes", _INTO),
    Kind("a dataset made anew", "build --run runs/demo --out new-data", "new-data", "itself",
         "refused", "nothing can be there"),
    Kind("an export made anew", f"{_LINES} --overwrite", "flat", "there", "passes", _INTO,
         kept=False),
    Kind("a report", f"report{_SCORE[5:]} --out r.html", "r.html", "nowhere", "passes", _IN_PLACE),
    Kind("predictions made anew", "baseline majority --dataset merge-nli --out majority.parquet "
         "--overwrite", "majority.parquet", "there", "passes", _IN_PLACE),
    Kind("an annotation session", "annotate --out study --annotator bo", "study", "there",
         "passes", _INTO, kept=False),
    Kind("a folder above", f"report{_SCORE[5:]} --out new/r.html", "new", "itself", "refused",
         "nothing can be there"),
    Kind("a folder above", f"report{_SCORE[5:]} --out new/r.html", "new", "nowhere", "refused",
         "the folder that it leads to is not there"),
)  # fmt: skip


def make(folder: Path) -> None:
    small_world.make(folder)
    with chdir(folder):
        small_world.do(_LINES)


def test_links(attack: Attack, once: Callable[..., Path], tmp_path: Path) -> None:
    world = once("links", make)
    for attempt in attack.tries("links", 2 * len(KINDS)):
        kind = KINDS[attempt.number % len(KINDS)]
        with attempt.of(f"links: {kind.what}, {kind.leads}", f"{kind.ends}: {kind.why}"):
            folder = tmp_path / str(attempt.number)
            shutil.copytree(world, folder / "work")
            _try(kind, folder, is_relative=attempt.number < len(KINDS))


def _try(kind: Kind, folder: Path, *, is_relative: bool) -> None:
    with chdir(folder / "work"):
        place, elsewhere = Path(kind.place), folder / "elsewhere" / "kept"
        elsewhere.parent.mkdir()
        if place.exists():
            name = "kept" if kind.leads == "there" else "unlinked"
            shutil.move(place, elsewhere.with_name(name))
        up = Path(*[".."] * len(place.parts), "elsewhere", "kept")
        target = place.absolute() if kind.leads == "itself" else up if is_relative else elsewhere
        place.symlink_to(target)
        before = snapshot(folder / "elsewhere"), snapshot(folder / "work")
        code, printed, text = small_world.call(*kind.command.split())
        after = snapshot(folder / "elsewhere"), snapshot(folder / "work")
    with noted(lambda: f"{kind}: {code}, {printed[-300:]} {text[-600:]}"):
        assert (code == 0) == (kind.ends == "passes")
        assert not kind.kept or before[0].items() <= after[0].items()
        if code:
            assert code in (1, 2)
            assert "error: " in text if code == 2 else "merge-nli" in printed
            assert [name for name in after[1] if "partial" in name or ".old" in name] == []
            assert before[1].items() <= after[1].items()
            assert "[Errno" not in text + printed
