"""What a check finds, and how it is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    where: str
    """A file or configuration, relative to the dataset folder."""
    expected: str
    """The same words for every finding of a kind."""
    got: str
    """What came, with the row's id."""


def summarise(findings: Iterable[Finding]) -> list[str]:
    """One line per place and kind, in order of appearance: a few examples and the count.

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
