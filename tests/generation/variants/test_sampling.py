"""Eligibility (D9) and the subsamples (D10)."""

import random
from collections import Counter
from collections.abc import Iterable
from hashlib import shake_128

import pyarrow as pa
from helpers.replacement_tables import Replacement, Variant, replacements_in, table_of, variants_in
from hypothesis import given
from hypothesis import strategies as st

from generation.config import Config
from generation.records import Exclusion
from generation.variants.reasons import Reason
from generation.variants.validation import draw, of_pairs
from generation.variants.validation import eligible as eligible_columns
from merge_dataset.provenance import DRAW


def replacement(seed_id: str, word_class: str, word: str, text: str) -> Replacement:
    return Replacement(
        seed_id=seed_id, source=seed_id.partition(":")[0], word=word, word_class=word_class,
        replacement=text, premise_mlms=("m",), hypothesis_mlms=("m",), log_odds=1.0,
    )  # fmt: skip


def several(seed_id: str, word_class: str, word: str, count: int) -> list[Replacement]:
    return [replacement(seed_id, word_class, word, f"{word}{n:03}") for n in range(count)]


def drawn(
    replacements: Iterable[Replacement], *, subsamples: int = 10, size: int = 20, rng_seed: int = 0
) -> list[Variant]:
    config = Config(subsamples=subsamples, variants_per_class=size, rng_seed=rng_seed)
    table = draw(table_of(replacements), config)
    return variants_in(table)


def eligible(
    replacements: Iterable[Replacement], *, minimum: int, scope: str
) -> tuple[list[Replacement], list[Exclusion]]:
    config = Config.from_mapping({"min_replacements": minimum, "min_replacements_scope": scope})
    kept, excluded = eligible_columns(table_of(replacements), config)
    return replacements_in(kept), excluded


def members(variants: Iterable[Variant], subsample: int) -> list[str]:
    return [v.replacement.replacement for v in variants if subsample in v.subsamples]


PROBLEM = [
    *several("s:1", "noun", "boy", 12),
    *several("s:1", "noun", "dog", 8),
    *several("s:1", "verb", "runs", 19),
    *several("s:2", "noun", "boy", 19),
    *several("s:2", "verb", "runs", 1),
    *several("t:3", "adjective", "big", 25),
]
"""Seed 1: nouns 12 + 8 = 20, verb 19. Seed 2: 19 + 1 = 20 in all. Seed 3: one word, 25."""


def kept_by(scope: str, minimum: int = 20) -> tuple[Counter[tuple[str, str]], list[Exclusion]]:
    kept, excluded = eligible(PROBLEM, minimum=minimum, scope=scope)
    assert [r for r in PROBLEM if r in kept] == kept
    return Counter((r.seed_id, r.word) for r in kept), excluded


def excluded(
    seed_id: str, word_class: str | None, word: str | None, replacements: int
) -> Exclusion:
    named = {"seed_id": seed_id, "source": seed_id[0], "word": word, "word_class": word_class}
    made = {"reason": Reason.TOO_FEW, "replacements": replacements}
    return {name: value for name, value in named.items() if value is not None} | made


def test_scopes() -> None:
    """At least 20 for the words of a class, for all classes of a problem, or for each word."""
    kept, left_out = kept_by("class")
    assert kept == {("s:1", "boy"): 12, ("s:1", "dog"): 8, ("t:3", "big"): 25}
    assert left_out == [
        excluded("s:1", "verb", None, 19),
        excluded("s:2", "noun", None, 19),
        excluded("s:2", "verb", None, 1),
    ]
    kept, left_out = kept_by("problem")
    assert sum(kept.values()) == len(PROBLEM)
    assert left_out == []
    kept, left_out = kept_by("problem", 25)
    assert set(kept) == {("s:1", "boy"), ("s:1", "dog"), ("s:1", "runs"), ("t:3", "big")}
    assert left_out == [excluded("s:2", None, None, 20)]
    kept, left_out = kept_by("word")
    assert kept == {("t:3", "big"): 25}
    assert left_out == [
        excluded("s:1", "noun", "boy", 12),
        excluded("s:1", "noun", "dog", 8),
        excluded("s:1", "verb", "runs", 19),
        excluded("s:2", "noun", "boy", 19),
        excluded("s:2", "verb", "runs", 1),
    ]
    assert kept_by("word", 12)[0] == {
        ("s:1", "boy"): 12, ("s:1", "runs"): 19, ("s:2", "boy"): 19, ("t:3", "big"): 25,
    }  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from("12"), st.sampled_from(["noun", "verb"]),
                       st.sampled_from("ab"), st.integers(0, 5)), unique=True, max_size=30),
    st.integers(1, 6),
    st.sampled_from(["class", "problem", "word"]),
)  # fmt: skip
def test_every_replacement_is_kept_or_accounted_for(
    keys: list[tuple[str, str, str, int]], minimum: int, scope: str
) -> None:
    given_ = [replacement(f"s:{s}", c, w, f"{w}{n}") for s, c, w, n in keys]
    kept, left_out = eligible(given_, minimum=minimum, scope=scope)
    assert len(kept) + sum(e["replacements"] for e in left_out) == len(given_)
    assert all(0 < e["replacements"] < minimum for e in left_out)
    stricter, _ = eligible(given_, minimum=minimum + 1, scope=scope)
    assert all(r in kept for r in stricter)
    coarser = {"word": "class", "class": "problem", "problem": "problem"}[scope]
    assert all(r in eligible(given_, minimum=minimum, scope=coarser)[0] for r in kept)


def test_the_pairs_of_another_build() -> None:
    """An ablation keeps (seed, class) pairs, whatever it finds for them or for others (D13)."""
    kept, _ = eligible_columns(table_of(PROBLEM), Config())
    pairs = kept.group_by(["seed_id", "word_class"]).aggregate([])
    assert sorted(map(tuple, zip(*pairs.to_pydict().values(), strict=True))) == [
        ("s:1", "noun"),
        ("t:3", "adjective"),
    ]
    others = [
        *several("s:2", "noun", "boy", 30),
        *several("s:1", "verb", "runs", 30),
        *several("s:1", "noun", "dog", 1),
    ]
    assert replacements_in(of_pairs(table_of(others), pairs)) == others[-1:]
    assert replacements_in(of_pairs(table_of([]), pairs)) == []


POOLS = st.lists(
    st.tuples(st.sampled_from("123"), st.sampled_from(["noun", "verb"]), st.integers(0, 40)),
    unique=True,
    max_size=40,
)


@given(POOLS, st.randoms(), st.integers(-5, 5))
def test_a_draw_depends_on_its_group_alone(
    keys: list[tuple[str, str, int]], rng: random.Random, rng_seed: int
) -> None:
    """Neither the input order nor other seeds and classes change a draw, nor do shards."""
    pool = [replacement(f"s:{s}", c, "boy", f"boy{n:02}") for s, c, n in keys]
    whole = drawn(pool, subsamples=3, size=4, rng_seed=rng_seed)
    shuffled = list(pool)
    rng.shuffle(shuffled)
    assert drawn(shuffled, subsamples=3, size=4, rng_seed=rng_seed) == whole
    groups = sorted({(r.seed_id, r.word_class) for r in pool})
    pieces = [
        v
        for group in groups
        for v in drawn(
            [r for r in pool if (r.seed_id, r.word_class) == group],
            subsamples=3,
            size=4,
            rng_seed=rng_seed,
        )
    ]
    assert pieces == whole


def slowly_drawn(pool: list[Replacement], subsample: int, size: int, rng_seed: int) -> set[str]:
    """The replacements of one seed and class with the smallest hashes."""

    def key(of: Replacement) -> bytes:
        text = f"{rng_seed}\0{of.seed_id}\0{of.word_class}\0{of.word}\0{of.replacement}"
        return shake_128(text.encode()).digest(8 * (subsample + 1))[-8:]

    return {of.replacement for of in sorted(pool, key=key)[:size]}


def test_a_small_draw_stays_as_it_is() -> None:
    """Golden values: every version draws published subsamples alike, or has a new draw number."""
    variants = drawn(several("snli:1", "noun", "boy", 6), subsamples=3, size=2, rng_seed=0)
    assert {v.replacement.replacement: v.subsamples for v in variants} == {
        "boy000": (1,), "boy002": (0, 2), "boy003": (2,), "boy004": (1,), "boy005": (0,),
    }  # fmt: skip
    pool = [*several("s:1", "noun", "boy", 30), *several("s:1", "noun", "dog", 15)]
    others = [*several("s:1", "verb", "boy", 9), *several("s:0", "noun", "boy", 9)]
    variants = drawn([*pool, *others], subsamples=4, size=6, rng_seed=7)
    mine = [v for v in variants if v.replacement in pool]
    for subsample in range(4):
        assert set(members(mine, subsample)) == slowly_drawn(pool, subsample, 6, 7)
    names = [f"word{number}" for number in range(30)]
    rows = pa.table({
        "seed_id": ["snli:1"] * 30, "word_class": ["noun"] * 30, "word": ["dog"] * 30,
        "replacement": names, "source": ["snli"] * 30,
    })  # fmt: skip
    made = draw(rows, Config(subsamples=2, variants_per_class=5))
    assert DRAW == 2
    result = zip(made["replacement"].to_pylist(), made["subsamples"].to_pylist(), strict=True)
    assert {int(name.removeprefix("word")): numbers for name, numbers in result} == {
        15: [0, 1], 16: [0], 21: [1], 24: [1], 27: [0], 4: [0, 1], 5: [0, 1],
    }  # fmt: skip
