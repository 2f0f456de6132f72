"""Which problems and words yield no variants, and why (besides D9, see `sampling`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from generation.records import Exclusion, Replacement, Seed, SharedWord


def without_replacement(
    seeds: Iterable[Seed],
    words: Mapping[str, Sequence[SharedWord]],
    found: Iterable[Replacement],
) -> Iterator[Exclusion]:
    """Problems without a shared word, and shared words without a replacement.

    Args:
        seeds: All problems.
        words: Seed id → its shared words.
        found: All replacements.
    """
    replaced = {(r.seed_id, r.word_class, r.word) for r in found}
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
