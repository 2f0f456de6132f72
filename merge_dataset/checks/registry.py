"""Findings, and the registry of checks.

A check is a function with the decorator `check`, in a module that the room imports. Nothing else
needs to know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

_EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    where: str
    """A file or configuration, relative to the dataset folder."""
    expected: str
    """Expectation, in words that are alike for all findings of a kind."""
    got: str
    """The value that came, with the row's id."""


class Stage(IntEnum):
    """The time at which a check runs."""

    STRUCTURE = 0
    """First: files and columns."""
    ALWAYS = 1
    """Then, whether or not anything was found."""
    CONTENTS = 2
    """Then, if nothing was found in the structure: rows and card."""
    BYTES = 3
    """Last, if nothing else was found."""


Find = TypeVar("Find", bound=Callable[..., Iterator[Finding]])
"""Dataset folder → findings; of a check with a kind, folder and name of a collection → findings."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check that registered itself."""

    name: str
    looks_at: str
    """Subject of the check, in a sentence."""
    stage: Stage
    kind: str | None
    """The kind of collections whose rows it looks at, one at a time; None: the whole folder."""
    find: Callable[..., Iterator[Finding]]


CHECKS: Final[dict[str, Check]] = {}
"""Checks by name; those of a module in their order."""


def check(
    name: str, *, looks_at: str, stage: Stage = Stage.CONTENTS, kind: str | None = None
) -> Callable[[Find], Find]:
    """Register a check; see `Check`."""

    def register(find: Find) -> Find:
        CHECKS[name] = Check(name, looks_at, stage, kind, find)
        return find

    return register


def summarise(findings: Iterable[Finding]) -> list[str]:
    """Write one line per place and kind, in order of appearance: a few examples and the count.

    >>> summarise([Finding("seeds", "unique ids", f"{n} twice") for n in range(5)])
    ['seeds: expected unique ids; got 0 twice; 1 twice; 2 twice; and 2 more']
    """
    examples: dict[tuple[str, str], list[str]] = {}
    counts: dict[tuple[str, str], int] = {}
    for finding in findings:
        kind = finding.where, finding.expected
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= _EXAMPLES:
            examples.setdefault(kind, []).append(finding.got)
    lines = []
    for (where, expected), got in examples.items():
        more = counts[where, expected] - len(got)
        tail = [f"and {more:,} more"] if more else []
        lines.append(f"{where}: expected {expected}; got {'; '.join(got + tail)}")
    return lines
