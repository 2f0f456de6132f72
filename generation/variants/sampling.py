"""Eligibility and sampling: seeds with enough replacements (D9), and the subsamples (D10)."""

from __future__ import annotations

from hashlib import shake_128
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from generation.ragged import groups_of, lists_of
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

    In each subsample a replacement has a key, a hash of (rng_seed, seed_id, class, word,
    replacement); drawn are those with the smallest keys. So neither order nor shards nor
    interruption change a draw, and where one replacement is taken away, at most one other
    takes its place in each subsample: ablations compare the same variants as far as both have
    them.

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
    is_first = np.diff(groups_of(members, _UNITS["class"]), prepend=-1) != 0
    starts, groups = np.flatnonzero(is_first), is_first.cumsum() - 1
    keys = _draw_keys(members, subsamples, rng_seed)
    drawn = np.zeros(keys.shape, bool)
    for subsample in range(subsamples):
        order = np.lexsort((keys[:, subsample], groups))  # groups stay where they are
        rank = np.arange(len(order)) - starts[groups]
        drawn[order[rank < size], subsample] = True
    rows = np.flatnonzero(drawn.any(axis=1))
    names = pa.array(range(subsamples), pa.int32())
    taken = members.take(pa.array(rows, pa.int64()))
    return taken.append_column("subsamples", lists_of(names, drawn[rows]))


def _draw_keys(members: pa.Table, subsamples: int, rng_seed: int) -> NDArray[np.uint64]:
    """Hash each replacement for each subsample: (n, subsamples).

    An extendable hash, whose longer digests begin with the shorter ones: a subsample does not
    depend on how many there are.
    """
    columns = [members[name].to_pylist() for name in REPLACEMENT_KEY]
    digests = b"".join(
        shake_128("\0".join((str(rng_seed), *key)).encode()).digest(8 * subsamples)
        for key in zip(*columns, strict=True)
    )
    return np.frombuffer(digests, ">u8").reshape(-1, subsamples)
