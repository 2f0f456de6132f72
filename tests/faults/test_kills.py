"""Commands that are killed: nothing is half-written, and the same command later succeeds."""

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers.forks import Ended

from faults.attack import Attack, Try, noted
from faults.commands import COMMANDS, Workshop, snapshot, words
from merge_dataset.checks import check_dataset
from merge_dataset.commands.command_line import INTERRUPTED, STOPPED
from merge_dataset.layout import collections

GROUPS = {
    "making": (28, ["generate", "generate-overwrite", "suggest", "suggest-overwrite", "build",
                    "build-into", "paraphrase"]),
    "predicting": (32, ["predict", "predict-json", "predict-overwrite", "predict-tasks",
                        "majority", "hypothesis-only", "signals"]),
    "annotating": (8, ["annotate", "annotate-more"]),
    "registering": (8, ["register", "publish", "publish-metric"]),
    "exporting": (24, ["lm-eval", "inspect", "croissant", "mini-datasets", "jsonl",
                       "csv-overwrite"]),
    "reporting": (20, ["report", "report-overwrite", "per-seed", "analyse", "agreement"]),
    "demo": (2, ["demo"]),
}  # fmt: skip

FINISHED = ("expected no file, found one", "got an earlier export", "in which no model is named")
"""Refusals by a command that was already finished when it was killed."""

SAYS_NOTHING = "found a file in which no model is named"
"""Refusal of finished JSON lines that do not name their model; --overwrite replaces them."""


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_killed_commands_go_on(group: str, attack: Attack, workshop: Workshop) -> None:
    count, names = GROUPS[group]
    assert set(names) <= set(COMMANDS)
    ends = "passes: nothing is half-written, and the same command goes on to the usual end"
    for attempt in attack.tries("kills", count, ends):
        with attempt:
            _kill(workshop, names[attempt.number % len(names)], attempt)


@pytest.mark.slow
def test_interrupts_at_any_time(attack: Attack, workshop: Workshop) -> None:
    names = ("build", "build", "predict", "report", "score p.parquet --dataset merge-nli")
    ends = "said: in a line what is kept and how to go on, or too late to stop anything"
    for attempt in attack.tries("interrupts", 120, ends):
        with attempt:
            name = names[attempt.number % len(names)]
            seconds = attempt.random.random() * workshop.undisturbed(name).seconds
            workshop.restore()
            pid = workshop.forks.start(*words(name))
            workshop.forks.kill(pid, signal.SIGINT, after=seconds)
            ended = workshop.forks.end(pid)
            assert "Traceback" not in ended.err + ended.out, ended
            if ended.code:
                _require_message(ended)


def test_every_command_is_killed() -> None:
    assert sorted(COMMANDS) == sorted(name for _, names in GROUPS.values() for name in names)


def _kill(workshop: Workshop, name: str, attempt: Try) -> None:
    good = workshop.undisturbed(name)
    workshop.restore()
    arguments, text = words(name), [name]
    with noted(lambda: "; ".join(text)):
        for _ in range(attempt.random.choice((1, 1, 2))):
            text.append(_killed_once(workshop, name, arguments, attempt))
            require_whole(workshop, name)
        ended = workshop.forks.run(*arguments)
        if SAYS_NOTHING in ended.err:
            ended = workshop.forks.run(*arguments, "--overwrite")
        if ended.code == 2 and any(word in ended.err for word in FINISHED):
            text.append("was finished")
        else:
            assert ended.code == 0, ended.err
        after = snapshot(workshop.folder)
        assert set(after) - set(good.after) == set(), "temporary files stay"
        assert after == good.after


def _killed_once(workshop: Workshop, name: str, arguments: Sequence[str], attempt: Try) -> str:
    """Kill a command at a file change or at any time; return a description."""
    good = workshop.undisturbed(name)
    by = attempt.random.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM))
    if good.changes and attempt.random.random() < 0.75:
        number = attempt.random.randrange(len(good.changes))
        ended = workshop.forks.run(*arguments, end_at=number, signal=int(by))
        when = f"before {good.changes[number]}"
    else:
        seconds = attempt.random.uniform(0, good.seconds)
        pid = workshop.forks.start(*arguments)
        workshop.forks.kill(pid, by, after=seconds)
        ended = workshop.forks.end(pid)
        when = f"after {seconds:.2f} s"
    if by == signal.SIGINT:
        assert "Traceback" not in ended.err, ended.err
        if ended.code not in (0, 2):
            _require_message(ended)
    return f"{by.name} {when}: {ended.code}"


def _require_message(ended: Ended) -> None:
    assert ended.code == INTERRUPTED, ended.err
    assert ended.err.rstrip().rpartition("\n")[2] == STOPPED, ended.err


def require_whole(workshop: Workshop, name: str) -> None:
    """Require that each visible file is as before the command or as after it."""
    good = workshop.outcomes[name]
    for file, digest in snapshot(workshop.folder).items():
        if any(part.startswith(".") for part in Path(file).parts) or file.startswith("hf/"):
            continue
        if (workshop.folder / file).is_dir():  # a store, which may hold a part of the answers
            continue
        known = {files[file] for files in (good.before, good.after) if file in files}
        assert not known or digest in known, f"{file} is half-written"
    for data in (workshop.folder / "merge-nli", workshop.folder / "new-data"):
        if data.is_dir() and collections(data):
            # An interrupted export may leave files behind, and lack the card.
            result = check_dataset(data)
            assert [name for name in result if not name.startswith((".", "README.md"))] == []
