"""Seeded fault injection: FAULTS_SHARE, FAULTS_SEED and FAULTS_ONLY choose the tries."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

RESULTS: Final = Path(__file__).parents[2] / "build" / "faults" / "results.md"
_AGAIN: Final = "; again: "


@dataclass
class Try:
    subtests: pytest.Subtests
    area: str
    ends: str
    """Intended end (refused, said or let pass), and why."""
    number: int
    seed: str
    random: Random  # drawn only from seed, area and number

    def of(self, area: str, ends: str) -> AbstractContextManager[None]:
        """A subtest of one try of an area, whose failure says how to repeat it."""
        again = f"{_AGAIN}FAULTS_SEED={self.seed} FAULTS_ONLY={self.number}"
        return self.subtests.test(f"{area} | {ends}{again}")

    def __enter__(self) -> None:
        self._subtest = self.of(self.area, self.ends)
        self._subtest.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._subtest.__exit__(*error)


@dataclass(frozen=True)
class Attack:
    subtests: pytest.Subtests

    def tries(self, area: str, whole: int, ends: str = "", least: int = 0) -> Iterator[Try]:
        """Yield the chosen tries of an area: the share of `whole`, and the first `least`."""
        seed, only = (os.environ.get(f"FAULTS_{name}") or "" for name in ("SEED", "ONLY"))
        seed = seed or "0"
        share = float(os.environ.get("FAULTS_SHARE") or 0.1)
        numbers = range(math.ceil(whole * max(share, 1)))
        chosen = [int(only)] if only else list(numbers)
        if share < 1 and not only:
            drawn = Random(f"{seed} {area}").sample(numbers, round(whole * share))
            chosen = sorted({*numbers[:least], *drawn})
        for number in chosen:
            random = Random(f"{seed} {area} {number}")
            yield Try(self.subtests, area, ends, number, seed, random)


@contextmanager
def noted(say: Callable[[], str]) -> Iterator[None]:
    """Add a note to a failure: the try that failed."""
    try:
        yield
    except BaseException as error:
        error.add_note(say())
        raise


def table_of(reports: Iterable[pytest.TestReport]) -> str:
    """Sum up the tries of all tests in a Markdown table; empty if there were none."""
    counts: Counter[tuple[str, bool]] = Counter()
    for report in reports:
        if _AGAIN in (getattr(getattr(report, "context", None), "msg", None) or ""):
            counts[report.context.msg.partition(_AGAIN)[0], report.passed] += 1
    rows = [
        f"| {area} | {counts[area, True] + counts[area, False]} | {counts[area, False]} |"
        for area in sorted({area for area, _ in counts})
    ]
    head = ["| area | meant to end | tried | failures |", "|---|---|---:|---:|"]
    return "\n".join([*head, *rows, ""]) if rows else ""
