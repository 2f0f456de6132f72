"""Eligibility and sampling: seeds with enough replacements (D9), and the subsamples (D10)."""

from hashlib import shake_128
from typing import Final

import numpy as np
import pyarrow as pa

from generation.config import Config
from generation.records import REPLACEMENT_KEY, Exclusion, groups_of, lists_of
from generation.variants.reasons import Reason

_GROUPS: Final = {
    "class": ("seed_id", "word_class"),
    "problem": ("seed_id",),
    "word": ("seed_id", "word_class", "word"),
}
"""Scope → columns by which replacements are grouped for counting."""


def eligible(replacements: pa.Table, config: Config) -> tuple[pa.Table, list[Exclusion]]:
    """Keep replacements of each class, problem or word that has enough (D9); list the others."""
    minimum, scope = config.min_replacements, config.min_replacements_scope
    _, first, group, counts = np.unique(
        groups_of(replacements, _GROUPS[scope]),
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    kept = replacements.filter(pa.array(counts[group] >= minimum))
    few = np.sort(first[counts < minimum])
    names = ("source", *_GROUPS[scope])
    left_out = replacements.take(few).select(names).to_pylist()
    return kept, [
        {**row, "reason": Reason.TOO_FEW, "replacements": int(count)}
        for row, count in zip(left_out, counts[group[few]], strict=True)
    ]


def of_pairs(replacements: pa.Table, pairs: pa.Table) -> pa.Table:
    """Return the replacements of given (seed, class) pairs, in order."""
    wanted = set(zip(*(pairs[name].to_pylist() for name in _GROUPS["class"]), strict=True))
    every = zip(*(replacements[name].to_pylist() for name in _GROUPS["class"]), strict=True)
    return replacements.filter(pa.array([pair in wanted for pair in every], pa.bool_()))


def draw(replacements: pa.Table, config: Config) -> pa.Table:
    """Draw each subsample: some replacements per seed and class, without repetition (D10).

    In each subsample a replacement has a key, a hash of (rng_seed, seed_id, class, word,
    replacement), and the replacements with the smallest keys are drawn. So if one is taken away,
    at most one other takes its place in each subsample. Returns the drawn replacements, sorted by
    `REPLACEMENT_KEY`, with a column `subsamples` of numbers from 0.
    """
    subsamples, size, rng_seed = config.subsamples, config.variants_per_class, config.rng_seed
    members = replacements.sort_by([(name, "ascending") for name in REPLACEMENT_KEY])
    is_first = np.diff(groups_of(members, _GROUPS["class"]), prepend=-1) != 0
    starts, groups = np.flatnonzero(is_first), is_first.cumsum() - 1
    # Longer digests of this extendable hash begin with the shorter ones, so a subsample does not
    # depend on the number of subsamples.
    columns = [members[name].to_pylist() for name in REPLACEMENT_KEY]
    digests = b"".join(
        shake_128("\0".join((str(rng_seed), *key)).encode()).digest(8 * subsamples)
        for key in zip(*columns, strict=True)
    )
    keys = np.frombuffer(digests, ">u8").reshape(-1, subsamples)
    drawn = np.zeros(keys.shape, bool)
    for subsample in range(subsamples):
        order = np.lexsort((keys[:, subsample], groups))  # groups stay where they are
        rank = np.arange(len(order)) - starts[groups]
        drawn[order[rank < size], subsample] = True
    rows = np.flatnonzero(drawn.any(axis=1))
    names = pa.array(range(subsamples), pa.int32())
    taken = members.take(pa.array(rows, pa.int64()))
    return taken.append_column("subsamples", lists_of(names, drawn[rows]))
