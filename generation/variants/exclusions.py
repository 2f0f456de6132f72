"""Which problems and words yield no variants, and why (besides D9, see `sampling`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from generation.records import Exclusion, Seed, SharedWord

REJECTED: Final = "rejected_by_signals"
"""Reason of a word all of whose replacements are below the limits of the settings."""


def without_replacement(
    seeds: Iterable[Seed],
    words: Mapping[str, Sequence[SharedWord]],
    replacements: pa.Table,
    rejected: pa.Table | None = None,
) -> Iterator[Exclusion]:
    """Problems without a shared word, and shared words without a replacement.

    Args:
        seeds: All problems.
        words: Seed id → its shared words.
        replacements: All of them.
        rejected: Those that signals rejected.
    """
    replaced = _per_word(replacements)
    gone = {} if rejected is None else _per_word(rejected)
    for seed in seeds:
        if not words[seed.seed_id]:
            yield Exclusion(
                seed_id=seed.seed_id,
                source=seed.source,
                word=None,
                word_class=None,
                reason="no_shared_word",
            )
        for word in words[seed.seed_id]:
            key = (seed.seed_id, word.word_class, word.word)
            if key not in replaced:
                yield Exclusion(
                    seed_id=seed.seed_id,
                    source=seed.source,
                    word=word.word,
                    word_class=word.word_class,
                    reason=REJECTED if key in gone else "no_replacement",
                    replacements=gone.get(key, 0),
                )


def _per_word(replacements: pa.Table) -> dict[tuple[str, ...], int]:
    """(seed, class, word) → how many replacements."""
    names = ["seed_id", "word_class", "word"]
    counted = replacements.group_by(names).aggregate([([], "count_all")])
    *keys, counts = (counted[name].to_pylist() for name in (*names, "count_all"))
    return dict(zip(zip(*keys, strict=True), counts, strict=True))


def unlabelled(seed_ids: Iterable[str], source: str) -> Iterator[Exclusion]:
    """Rows of the source without a gold label (D15)."""
    for seed_id in seed_ids:
        yield Exclusion(
            seed_id=seed_id, source=source, word=None, word_class=None, reason="unlabelled"
        )
