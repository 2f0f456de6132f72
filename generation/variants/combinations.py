"""Combinations of members of some sets, k sets at a time: by rank, and in a keyed order.

There may be very many, so they are never listed: a combination is computed from its rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import islice

Member = tuple[int, int]
"""Number of the set, number in the set."""

_DIGEST_BYTES = 32


@dataclass(frozen=True)
class Combinations:
    """All ways to take one member each of k of some sets."""

    sizes: Sequence[int]
    k: int

    @property
    def total(self) -> int:
        """How many there are: the k-th elementary symmetric polynomial of the sizes.

        >>> Combinations((2, 3, 4), 2).total  # 2·3 + 2·4 + 3·4
        26
        """
        return self._beyond[0][self.k]

    def at(self, rank: int) -> tuple[Member, ...]:
        """The combination of a rank, 0 ≤ rank < total; another for each.

        >>> [Combinations((1, 2), 2).at(rank) for rank in range(2)]
        [((0, 0), (1, 0)), ((0, 0), (1, 1))]
        """
        found: list[Member] = []
        for number, size in enumerate(self.sizes):
            if len(found) == self.k:
                break
            rest = self._beyond[number + 1][self.k - len(found) - 1]
            if rank < size * rest:
                member, rank = divmod(rank, rest)
                found.append((number, member))
            else:
                rank -= size * rest
        return tuple(found)

    @cached_property
    def _beyond(self) -> list[list[int]]:
        """[sets + 1][k + 1] How many combinations of so many sets there are from a set on."""
        ways = [[1] + [0] * self.k]
        for size in reversed(self.sizes):
            after = ways[-1]
            ways.append([1] + [after[n] + size * after[n - 1] for n in range(1, self.k + 1)])
        return ways[::-1]


def shuffled(n: int, key: str) -> Iterator[int]:
    """The numbers below n in an order that hangs on the key alone, as far as it is read.

    Fisher and Yates's shuffle, of which only what has moved is kept. Every order is as likely
    as every other, to the extent that digests are random.
    """
    moved: dict[int, int] = {}
    for i in range(n):
        j = i + _below(n - i, f"{key}\n{i}")
        first = moved.pop(i, i)
        chosen = first if i == j else moved.get(j, j)
        if i != j:
            moved[j] = first
        yield chosen


@dataclass(slots=True)
class Walk:
    """Somebody who goes through the combinations of a group until there are enough good ones."""

    group: int
    ranks: Iterator[int]
    wanted: int
    found: list[int] = field(default_factory=list)
    """Ranks of good ones, in the order in which they were met."""

    def ask(self) -> list[int]:
        """The next ranks to look at; none when there are enough, or no more."""
        return list(islice(self.ranks, self.wanted - len(self.found)))


class Walks:
    """Walks together, so that many combinations are judged at a time, and each once."""

    def __init__(self, judge: Callable[[Sequence[tuple[int, int]]], Sequence[bool]]) -> None:
        """Judge with a function of (group, rank) that says which are good."""
        self._judge = judge
        self._known: dict[tuple[int, int], bool] = {}

    def finish(self, walks: Sequence[Walk]) -> None:
        """Let each go on until it has found what it wants, or all that there is."""
        while asked := [(walk, ranks) for walk in walks if (ranks := walk.ask())]:
            keys = dict.fromkeys((walk.group, rank) for walk, ranks in asked for rank in ranks)
            new = [key for key in keys if key not in self._known]
            self._known.update(zip(new, self._judge(new), strict=True))
            for walk, ranks in asked:
                walk.found += [rank for rank in ranks if self._known[walk.group, rank]]


def _below(n: int, key: str) -> int:
    """A number below n, by a digest."""
    digest = blake2b(key.encode(), digest_size=_DIGEST_BYTES).digest()
    return int.from_bytes(digest) * n >> 8 * _DIGEST_BYTES
