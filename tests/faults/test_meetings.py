"""Two commands, or a command and a folder's move, the first stopped at one of its changes."""

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from faults.attack import Attack, Try, noted
from faults.commands import Workshop, snapshot, words
from merge_dataset.checks import check_dataset
from merge_dataset.layout import collections

pytestmark = pytest.mark.slow

_PREDICT = "predict --model {classifier} --dataset merge-nli --out new.parquet"
PAIRS = {
    "making": (18, [
        ("build", "build --run run --set subsamples=3 --out merge-nli --overwrite"),
        ("suggest-overwrite", "build"),
        ("build", "suggest-overwrite"),
        ("generate", "generate {small} --set subsamples=1 --run new --out new-data"),
        ("build-into", "build --run run --set subsamples=3 --into other --out new-data"),
        ("suggest-overwrite", "build-into"),
        ("build", "signals"),
        ("paraphrase", "build"),
        ("generate-overwrite", "paraphrase"),
    ]),
    "predicting": (10, [
        (_PREDICT, "baseline majority --dataset merge-nli --out new.parquet"),
        (_PREDICT, f"{_PREDICT} --batch-tokens 100"),
        (_PREDICT, f"{_PREDICT} --executor local --tasks 2"),
        ("predict-overwrite", "baseline hypothesis-only --train {problems} --dataset merge-nli "
                              "--out m.parquet --overwrite"),
        ("baseline majority --dataset merge-nli --out new.jsonl", "hypothesis-only"),
    ]),
    "annotating": (6, [
        ("annotate", "annotate merge-nli --out new --per-class 1"),
        ("annotate", "annotate"),
        ("annotate-more", "annotate-more"),
    ]),
    "exporting": (12, [
        ("jsonl", "export csv merge-nli --out new"),
        ("jsonl", "jsonl"),
        ("lm-eval", "inspect"),
        ("csv-overwrite", "export jsonl merge-nli --out flat --overwrite"),
        ("croissant", "croissant"),
        ("mini-datasets", "export mini-datasets merge-nli --config demo --out new"),
    ]),
    "registering and reporting": (12, [
        ("register", "register"),
        ("report", "report p.parquet --dataset merge-nli --n-bootstrap 0 --out new.html"),
        ("report-overwrite", "report m.parquet p.parquet --dataset merge-nli --n-bootstrap 0 "
                             "--out report.md --figures plots"),
        ("analyse", "analyse matching p.parquet m.parquet --dataset merge-nli --out new.svg"),
        ("agreement", "agreement study --n-bootstrap 0 --plots new"),
        ("register", "build"),
    ]),
}  # fmt: skip
"""Area → number of tries, and pairs of commands (names or lines) that write to one place."""


REFUSALS = ("expected no", "expected none or the same data", "to stay", "another --out",
            "another command is ")  # fmt: skip


@pytest.mark.parametrize("group", PAIRS)
def test_two_at_once(group: str, attack: Attack, workshop: Workshop) -> None:
    count, pairs = PAIRS[group]
    serial: dict[tuple[str, str], list[dict[str, str]]] = {}
    ends = "either: both end as if one had come after the other, or one says who is at work"
    for attempt in attack.tries("pairs at once", count, ends):
        first, second = pair = pairs[attempt.number % len(pairs)]
        with attempt:
            if pair not in serial:
                orders = ((first,), (second,), (first, second), (second, first))
                serial[pair] = [_after(workshop, *names) for names in orders]
            _meet(workshop, first, second, serial[pair], attempt)


def _after(workshop: Workshop, *names: str) -> dict[str, str]:
    workshop.restore()
    for name in names:
        workshop.run(name)
    return snapshot(workshop.folder)


def _meet(
    workshop: Workshop, first: str, second: str, good: list[dict[str, str]], attempt: Try
) -> None:
    number = attempt.random.randrange(len(workshop.begin(first).changes))
    one = workshop.stopped(first, at=number)
    other = workshop.forks.start(*words(second))
    ended = workshop.forks.ended(other, attempt.random.choice((2.0, 8.0)))
    os.kill(one, signal.SIGCONT)
    text = [workshop.forks.end(one), ended or workshop.forks.end(other)]
    meeting = f"{first} | {second}; the first stopped before change {number}"
    lines = [f"{end.code}: {end.err[-300:]}" for end in text]
    with noted(lambda: "\n".join([meeting, *lines])):
        assert 0 in [end.code for end in text]
        for end in text:
            assert end.code in (0, 2)
            line = end.err.rstrip().rpartition("\n")[2]
            refused = line.startswith("error: ") and any(word in line for word in REFUSALS)
            assert refused or not end.code, line
        after = snapshot(workshop.folder)
        assert set(after) <= {name for known in good for name in known}, "temporary files stay"
        others = [sorted(name for name, _ in after.items() ^ known.items()) for known in good]
        assert [] in others, "neither before nor after: " + str(min(others, key=len))
        for data in ("merge-nli", "new-data"):
            if (workshop.folder / data).is_dir():
                assert check_dataset(workshop.folder / data) == []


# --- Folders that are renamed, replaced or copied midway ---

MOVED = {
    "build": ("run", "merge-nli"), "predict": ("merge-nli", "new"), "jsonl": ("merge-nli",),
    "report": ("merge-nli",), "annotate": ("merge-nli", "new"), "signals": ("run",),
}  # fmt: skip

REPLACE = "build --run run --set subsamples=1 --out merge-nli --overwrite"


def _stopped(workshop: Workshop, name: str, attempt: Try) -> int:
    good, random = workshop.begin(name), attempt.random
    if good.changes and random.random() < 0.6:
        return workshop.stopped(name, at=random.randrange(len(good.changes)))
    return workshop.stopped(name, after=random.random() * good.seconds)


def _go_on(workshop: Workshop, pid: int) -> None:
    if workshop.forks.ended(pid, 0) is None:
        os.kill(pid, signal.SIGCONT)
        ended = workshop.forks.end(pid)
        assert "Traceback" not in ended.err, ended
        assert ended.code in (0, 2), ended
        assert not ended.code or "error: " in ended.err, ended


def test_renamed_midway(attack: Attack, workshop: Workshop) -> None:
    pairs = [(name, folder) for name, folders in MOVED.items() for folder in folders]
    ends = "either: refused, where the files are wanted after that"
    for attempt in attack.tries("folders renamed midway", 4 * len(pairs), ends):
        name, moved = pairs[attempt.number % len(pairs)]
        with attempt:
            pid = _stopped(workshop, name, attempt)
            place, away = workshop.folder / moved, workshop.folder.with_name("away")
            shutil.rmtree(away, ignore_errors=True)
            if place.is_dir():
                place.rename(away)
            _go_on(workshop, pid)
            is_whole = moved == "merge-nli" and place.is_dir() and collections(place)
            if away.is_dir() and place.is_dir() and not is_whole:
                shutil.rmtree(place)  # a new beginning under the old name
            if away.is_dir() and not place.is_dir():
                away.rename(place)
            workshop.require_whole(name)
            workshop.again(name, renamed=True)


def test_replaced_midway(attack: Attack, workshop: Workshop) -> None:
    """A result comes from the old dataset or from the new one, never from both."""
    names = ("predict", "jsonl", "report", "per-seed", "majority", "annotate")
    after: dict[str, dict[str, str]] = {}
    ends = "either: refused where the files changed while they were read"
    for attempt in attack.tries("datasets replaced midway", 4 * len(names), ends):
        name = names[attempt.number % len(names)]
        with attempt:
            if name not in after:
                after[name] = _after(workshop, REPLACE, name)
            pid = _stopped(workshop, name, attempt)
            assert workshop.run(REPLACE).code == 0
            _go_on(workshop, pid)
            made = {f: d for f, d in snapshot(workshop.folder).items() if f.startswith("new")}
            known = (workshop.outcomes[name].after, after[name])
            assert any(made.items() <= files.items() for files in known), f"{name}: {sorted(made)}"


def test_copied_midway(attack: Attack, workshop: Workshop) -> None:
    ends = "said by `check`, unless the copy is whole"
    for attempt in attack.tries("datasets copied midway", 24, ends):
        with attempt:
            workshop.restore()
            source, copy = workshop.folder / "merge-nli", workshop.folder / "copy"
            files = sorted(path.relative_to(source) for path in source.rglob("*.*"))
            attempt.random.shuffle(files)
            first = attempt.random.randrange(len(files) + 1)
            for number, file in enumerate([*files, Path()]):
                if number == first:
                    assert workshop.run(REPLACE).code == 0
                (copy / file).parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError, IsADirectoryError):
                    shutil.copyfile(source / file, copy / file)
            result = check_dataset(copy) if collections(copy) else ["none"]
            whole = snapshot(workshop.base / "merge-nli"), snapshot(source)
            assert bool(result) == (snapshot(copy) not in whole), (first, files, result)
