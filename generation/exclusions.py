"""Which problems and words yield no variants, and why (besides D9, see `sampling`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from generation.records import Exclusion, Seed, SharedWord


def without_replacement(
    seeds: Iterable[Seed],
    words: Mapping[str, Sequence[SharedWord]],
    replacements: pa.Table,
) -> Iterator[Exclusion]:
    """Problems without a shared word, and shared words without a replacement.

    Args:
        seeds: All problems.
        words: Seed id → its shared words.
        replacements: All of them.
    """
    names = ["seed_id", "word_class", "word"]
    distinct = replacements.group_by(names).aggregate([])
    replaced = set(zip(*(distinct[name].to_pylist() for name in names), strict=True))
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
            if (seed.seed_id, word.word_class, word.word) not in replaced:
                yield Exclusion(
                    seed_id=seed.seed_id,
                    source=seed.source,
                    word=word.word,
                    word_class=word.word_class,
                    reason="no_replacement",
                    replacements=0,
                )


def unlabelled(seed_ids: Iterable[str], source: str) -> Iterator[Exclusion]:
    """Rows of the source without a gold label (D15)."""
    for seed_id in seed_ids:
        yield Exclusion(
            seed_id=seed_id, source=source, word=None, word_class=None, reason="unlabelled"
        )
