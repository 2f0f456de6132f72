"""Which seeds are eligible (D9) and which variants each subsample draws (D10)."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from generation.records import Exclusion, Replacement, Variant

TOO_FEW = "too_few_replacements"
"""Reason of an exclusion under D9."""


def eligible(
    replacements: Sequence[Replacement], *, minimum: int, scope: str
) -> tuple[list[Replacement], list[Exclusion]]:
    """Keep the replacements of eligible (seed, class) pairs (D9).

    Args:
        replacements: Of one seed or of many, in any order.
        minimum: Replacements needed.
        scope: `class` counts over a seed's words of a class (paper, section 4);
            `problem` over all its words; `word` over each word, and leaves a word with
            fewer as it is (the poster).

    Returns:
        The replacements kept, in order, and what was left out: one record per seed and
        class, per seed, or per seed and word, by scope.
    """

    def _unit(replacement: Replacement) -> tuple[str, str | None, str | None]:
        match scope:
            case "class":
                return replacement.seed_id, replacement.word_class, None
            case "problem":
                return replacement.seed_id, None, None
            case "word":
                return replacement.seed_id, replacement.word_class, replacement.word
        raise ValueError(f"scope: expected 'class', 'problem' or 'word', got {scope!r}")

    counts = Counter(_unit(replacement) for replacement in replacements)
    sources = {replacement.seed_id: replacement.source for replacement in replacements}
    kept = [r for r in replacements if counts[_unit(r)] >= minimum]
    excluded = [
        Exclusion(
            seed_id=seed_id,
            source=sources[seed_id],
            word=word,
            word_class=word_class,
            reason=TOO_FEW,
            replacements=count,
        )
        for (seed_id, word_class, word), count in counts.items()
        if count < minimum
    ]
    return kept, excluded


def draw(
    replacements: Iterable[Replacement], *, subsamples: int, size: int, rng_seed: int
) -> list[Variant]:
    """Draw each subsample: `size` replacements per seed and class, without repetition (D10).

    A draw depends on (rng_seed, seed_id, class, subsample) and on the set it draws from,
    so neither order nor sharding nor interruption can change it. `random.Random` seeded
    with a string and its method `random` are the part of Python's generators that is
    documented to stay the same between versions.

    Args:
        replacements: The eligible ones, in any order.
        subsamples: How many subsamples.
        size: Replacements per seed and class; where there are fewer, all of them.
        rng_seed: Any integer.

    Returns:
        Each replacement drawn at least once, with the numbers of its subsamples from 0,
        sorted by seed, class, word and replacement.
    """
    groups: dict[tuple[str, str], list[Replacement]] = defaultdict(list)
    for replacement in replacements:
        groups[replacement.seed_id, replacement.word_class].append(replacement)
    variants = []
    for (seed_id, word_class), members in sorted(groups.items()):
        members.sort(key=lambda r: (r.word, r.replacement))
        drawn = _draw_group(
            len(members), f"{rng_seed}\n{seed_id}\n{word_class}", subsamples=subsamples, size=size
        )
        variants += [Variant(members[i], tuple(numbers)) for i, numbers in sorted(drawn.items())]
    return variants


def _draw_group(members: int, key: str, *, subsamples: int, size: int) -> Mapping[int, list[int]]:
    """Member → the subsamples it is drawn into."""
    drawn: dict[int, list[int]] = defaultdict(list)
    for subsample in range(subsamples):
        rng = random.Random(f"{key}\n{subsample}")
        ranks = [rng.random() for _ in range(members)]
        for i in sorted(range(members), key=ranks.__getitem__)[:size]:
            drawn[i].append(subsample)
    return drawn
