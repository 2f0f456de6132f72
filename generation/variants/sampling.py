"""Eligibility and sampling: seeds with enough replacements (D9), and the subsamples (D10)."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from generation.ragged import groups_of
from generation.reasons import Reason
from generation.records import REPLACEMENT_KEY, Exclusion

_UNITS: Final = {
    "class": ("seed_id", "word_class"),
    "problem": ("seed_id",),
    "word": ("seed_id", "word_class", "word"),
}
"""Scope → the columns that say over what replacements are counted."""


def eligible(
    replacements: pa.Table, *, minimum: int, scope: str
) -> tuple[pa.Table, list[Exclusion]]:
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
    if scope not in _UNITS:
        raise ValueError(f"scope: expected 'class', 'problem' or 'word', got {scope!r}")
    _, first, unit, counts = np.unique(
        groups_of(replacements, _UNITS[scope]),
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    kept = replacements.filter(pa.array(counts[unit] >= minimum))
    few = np.sort(first[counts < minimum])
    names = ("source", *_UNITS[scope])
    left_out = replacements.take(few).select(names).to_pylist()
    return kept, [
        Exclusion(
            **{"word": None, "word_class": None, **row},
            reason=Reason.TOO_FEW,
            replacements=int(count),
        )
        for row, count in zip(left_out, counts[unit[few]], strict=True)
    ]


def eligible_pairs(kept: pa.Table) -> pa.Table:
    """Return the distinct (seed_id, word_class) of replacements."""
    return kept.group_by(_UNITS["class"]).aggregate([])


def of_pairs(replacements: pa.Table, pairs: pa.Table) -> pa.Table:
    """Return the replacements of the (seed, class) pairs given, in order.

    In an ablation these are the pairs eligible without it (paper, A.2).
    """
    wanted = set(zip(*(pairs[name].to_pylist() for name in _UNITS["class"]), strict=True))
    mine = zip(*(replacements[name].to_pylist() for name in _UNITS["class"]), strict=True)
    return replacements.filter(pa.array([pair in wanted for pair in mine], pa.bool_()))


def draw(replacements: pa.Table, *, subsamples: int, size: int, rng_seed: int) -> pa.Table:
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
        Each replacement drawn at least once, with a column `subsamples` of the numbers of
        its subsamples from 0, sorted by seed, class, word and replacement.
    """
    members = replacements.sort_by([(name, "ascending") for name in REPLACEMENT_KEY])
    starts = np.flatnonzero(np.diff(groups_of(members, _UNITS["class"]), prepend=-1))
    sizes = np.diff(starts, append=len(members)).tolist()
    keys = members.take(starts).select(_UNITS["class"]).to_pylist()
    rows, numbers = list[int](), list[list[int]]()
    for start, size_of_group, key in zip(starts.tolist(), sizes, keys, strict=True):
        text = f"{rng_seed}\n{key['seed_id']}\n{key['word_class']}"
        drawn = _draw_group(size_of_group, text, subsamples=subsamples, size=size)
        rows += [start + member for member in sorted(drawn)]
        numbers += [drawn[member] for member in sorted(drawn)]
    column = pa.array(numbers, pa.list_(pa.int32()))
    return members.take(pa.array(rows, pa.int64())).append_column("subsamples", column)


def _draw_group(members: int, key: str, *, subsamples: int, size: int) -> Mapping[int, list[int]]:
    """Return the members drawn, each with the subsamples it is drawn into."""
    drawn: dict[int, list[int]] = defaultdict(list)
    for subsample in range(subsamples):
        rng = random.Random(f"{key}\n{subsample}")
        ranks = [rng.random() for _ in range(members)]
        for i in sorted(range(members), key=ranks.__getitem__)[:size]:
            drawn[i].append(subsample)
    return drawn
