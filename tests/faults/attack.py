"""Seeded fault injection: FAULTS_SHARE, FAULTS_SEED and FAULTS_ONLY choose the tries."""

from __future__ import annotations

import math
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self

import pytest

PROPERTY: Final = "fault injection"
"""Property of a test's report: counts by area, and the intended end of tries."""

RESULTS: Final = Path(__file__).parents[2] / "build" / "faults" / "results.md"


@dataclass
class Try:
    attack: Attack
    area: str
    number: int
    random: Random  # drawn only from seed, area and number

    def of(self, area: str, ends: str) -> Self:
        self.area, self.attack.ends[area] = area, ends
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> bool:
        held = error is None
        if not held and not isinstance(error, Exception | pytest.fail.Exception):
            return False
        self.attack.counts[self.area, held] += 1
        if not held:
            text = "".join(traceback.format_exception(kind, error, tb, limit=-3)).strip()
            self.attack.failures.append(
                f"{self.area}, try {self.number}; again: FAULTS_SEED={self.attack.seed} "
                f"FAULTS_SHARE={self.attack.share:g} FAULTS_ONLY={self.number} .venv/bin/pytest "
                f"-m '' '{self.attack.test}'\n{text}"
            )
        return True


@dataclass
class Attack:
    test: str
    seed: int
    share: float
    only: int | None = None
    counts: Counter[tuple[str, bool]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)
    """Area → intended end of its tries (refused, said or let pass), and why."""

    def tries(self, area: str, whole: int, ends: str = "", least: int = 0) -> Iterator[Try]:
        """Yield the chosen tries of an area: the share of `whole`, and the first `least`."""
        if ends:
            self.ends[area] = ends
        numbers = range(math.ceil(whole * max(self.share, 1)))
        if self.only is not None:
            chosen = [self.only] if self.only in numbers else []
        elif self.share < 1:
            count = round(whole * self.share)
            drawn = Random(f"{self.seed} {area}").sample(numbers, count)
            chosen = sorted({*numbers[:least], *drawn})
        else:
            chosen = list(numbers)
        for number in chosen:
            yield Try(self, area, number, Random(f"{self.seed} {area} {number}"))

    def finish(self) -> None:
        if self.failures:
            shown = "\n\n".join(self.failures[:20])
            pytest.fail(f"{len(self.failures)} failed tries\n\n{shown}", pytrace=False)


@contextmanager
def noted(say: Callable[[], str]) -> Iterator[None]:
    """Add a note to a failure: the try that failed."""
    try:
        yield
    except BaseException as error:
        error.add_note(say())
        raise


def from_environment(test: str) -> Attack:
    only = os.environ.get("FAULTS_ONLY")
    return Attack(
        test,
        seed=int(os.environ.get("FAULTS_SEED") or 0),
        share=float(os.environ.get("FAULTS_SHARE") or 0.1),
        only=None if only is None else int(only),
    )


def table_of(reports: Iterable[pytest.TestReport]) -> str:
    """Sum up the tries of all tests in a Markdown table; empty if there were none."""
    totals: Counter[tuple[str, bool]] = Counter()
    meant: dict[str, str] = {}
    for report in reports:
        for name, value in getattr(report, "user_properties", ()):
            if name == PROPERTY:
                counts, ends = value
                totals.update({(area, held): count for area, held, count in counts})
                meant |= ends
    rows = [
        f"| {area} | {totals[area, True] + totals[area, False]} | {totals[area, True]} "
        f"| {totals[area, False]} | {meant.get(area, '')} |"
        for area in sorted({area for area, _ in totals})
    ]
    head = ["| area | tried | held | failures | meant to end |", "|---|---:|---:|---:|---|"]
    return "\n".join([*head, *rows, ""]) if rows else ""
