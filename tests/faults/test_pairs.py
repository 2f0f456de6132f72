"""Two commands, the first stopped at each file change: as if one ran after the other."""

import os
import signal
import time
from pathlib import Path

import pytest
from helpers.forks import Ended

from faults.attack import Attack, Try, noted
from faults.commands import Workshop, snapshot, words
from merge_dataset.checks import check_dataset

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

BUSY = "another command is "
REFUSALS = ("expected no", "expected none or the same data", "to stay", "another --out",
            BUSY)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("group", PAIRS)
def test_two_at_once(group: str, attack: Attack, workshop: Workshop) -> None:
    count, pairs = PAIRS[group]
    serial: dict[tuple[str, str], list[dict[str, str]]] = {}
    ends = "either: both end as if one had come after the other, or one says who is at work"
    for attempt in attack.tries("pairs at once", count, ends):
        first, second = pairs[attempt.number % len(pairs)]
        with attempt:
            if (first, second) not in serial:
                serial[first, second] = _in_turn(workshop, first, second)
            _both(workshop, first, second, serial[first, second], attempt)


def _in_turn(workshop: Workshop, first: str, second: str) -> list[dict[str, str]]:
    result = []
    for lines in ((first,), (second,), (first, second), (second, first)):
        workshop.restore()
        for line in lines:
            workshop.forks.run(*words(line))
        result.append(snapshot(workshop.folder))
    return result


def _both(
    workshop: Workshop, first: str, second: str, good: list[dict[str, str]], attempt: Try
) -> None:
    changes = len(workshop.undisturbed(first).changes)
    workshop.restore()
    number = attempt.random.randrange(changes)
    one = workshop.forks.start(*words(first), end_at=number, signal=int(signal.SIGSTOP))
    wait_until_stopped(one)
    other = workshop.forks.start(*words(second))
    ended = workshop.forks.ended(other, attempt.random.choice((2.0, 8.0)))
    os.kill(one, signal.SIGCONT)
    text = [workshop.forks.end(one), ended or workshop.forks.end(other)]
    meeting = f"{first} | {second}; the first stopped before change {number}"
    lines = [f"{end.code}: {end.err[-300:]}" for end in text]
    with noted(lambda: "\n".join([meeting, *lines])):
        assert 0 in [end.code for end in text]
        for end in text:
            _require_words(end)
        after = snapshot(workshop.folder)
        names = {name for known in good for name in known}
        assert set(after) <= names, "temporary files stay"
        others = [sorted(name for name, _ in after.items() ^ known.items()) for known in good]
        assert [] in others, "neither before nor after: " + str(min(others, key=len))
        for data in ("merge-nli", "new-data"):
            if (workshop.folder / data).is_dir():
                assert check_dataset(workshop.folder / data) == []


def wait_until_stopped(pid: int) -> None:
    for _ in range(6000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state in "TZ":
            return
        time.sleep(0.01)
    raise TimeoutError("a command neither stops nor ends")


def _require_words(ended: Ended) -> None:
    assert ended.code in (0, 2), ended.err
    if ended.code:
        line = ended.err.rstrip().rpartition("\n")[2]
        assert line.startswith("error: "), ended.err
        assert any(word in line for word in REFUSALS), line
