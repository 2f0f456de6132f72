from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from typing import Any

import pyarrow as pa
import pytest
from helpers.reference import tag
from helpers.replacement_tables import Replacement, table_of
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from generation.config import Config
from generation.problems.shared_words import TaggedProblems, tag_problems
from generation.problems.tagging import Tagger
from generation.reasons import KEPT, Reason
from generation.records import Exclusion, Seed, sorted_replacements, substitute
from generation.variants.adaptation import Fate, adapt, shuffle_letters
from generation.variants.perturbations import (
    ARTICLE,
    WORD,
    Edit,
    Perturbation,
    in_full,
    text_edits_of,
)
from generation.variants.sampling import (
    COMBINATIONS,
    Combinations,
    combined,
    draw_several,
    first_valid,
    shuffled,
)
from merge_dataset.schema import WORD_CLASSES


def listed(sizes: Sequence[int], k: int) -> list[tuple[tuple[int, int], ...]]:
    return [
        tuple(zip(sets, members, strict=True))
        for sets in combinations(range(len(sizes)), k)
        for members in product(*(range(sizes[number]) for number in sets))
    ]


@given(st.lists(st.integers(0, 4), max_size=5), st.integers(1, 4))
def test_ranks_are_all_combinations(sizes: list[int], k: int) -> None:
    found = Combinations(sizes, k)
    assert found.total == len(listed(sizes, k))
    assert [found.at(rank) for rank in range(found.total)] == sorted(listed(sizes, k))


@given(st.integers(0, 50), st.text(max_size=5))
def test_shuffled_has_each_number_once(n: int, key: str) -> None:
    order = list(shuffled(n, key))
    assert sorted(order) == list(range(n))
    assert list(islice(shuffled(n, key), 7)) == order[:7]


def walked(total: int, wanted: int, good: set[int], key: str) -> list[int]:
    walk = (0, shuffled(total, key), wanted)
    (found,) = first_valid([walk], lambda asked: [rank in good for _, rank in asked], {})
    return found


@given(st.integers(0, 30), st.integers(1, 10), st.sets(st.integers(0, 29)), st.text(max_size=3))
def test_a_walk_takes_the_first_good_ones(
    total: int, wanted: int, good: set[int], key: str
) -> None:
    order = [rank for rank in shuffled(total, key) if rank in good]
    assert walked(total, wanted, good, key) == order[:wanted]


def test_walks() -> None:
    """Six sets of two are equally likely; a set that two walks meet is judged only once."""
    good = {0, 3, 4, 8}
    counts = Counter(frozenset(walked(9, 2, good, f"key {n}")) for n in range(3000))
    assert set(counts) == {frozenset(pair) for pair in combinations(good, 2)}
    assert chisquare(list(counts.values())).pvalue > 0.001
    calls: list[list[tuple[int, int]]] = []

    def judge(asked: Sequence[tuple[int, int]]) -> list[bool]:
        calls.append(list(asked))
        return [rank != 2 for _, rank in asked]

    known: dict[tuple[int, int], bool] = {}
    walks = [(7, iter([0, 1, 2, 3]), 3), (7, iter([2, 1, 0]), 3)]
    assert first_valid(walks, judge, known) == [[0, 1, 3], [1, 0]]
    assert calls == [[(7, 0), (7, 1), (7, 2)], [(7, 3)]]
    assert first_valid([(7, iter([1, 3]), 2), (8, iter([0]), 1)], judge, known) == [[1, 3], [0]]
    assert calls[2:] == [[(8, 0)]]


@pytest.mark.parametrize("wanted", [1, 5])
def test_a_walk_does_not_go_further_than_it_has_to(wanted: int) -> None:
    seen: list[tuple[int, int]] = []

    def judge(asked: Sequence[tuple[int, int]]) -> list[bool]:
        seen.extend(asked)
        return [True] * len(asked)

    first_valid([(0, shuffled(10**30, "key"), wanted)], judge, {})
    assert len(seen) == wanted


TEXTS = ("A boy and a dog see a house.", "A dog and a boy run to the house.")
WORDS = {"boy": ("girl", "man", "owl"), "dog": ("cat", "girl", "bird"), "house": ("tree", "cat")}
"""Nouns of both texts → replacements: 3·3 + 3·2 + 3·2 = 21 pairs, 18 triples."""


def problems_of(tagger: Tagger, *problems: tuple[str, str]) -> TaggedProblems:
    seeds = [
        Seed(seed_id=f"s:{n}", source="s", texts=texts, label="neutral")
        for n, texts in enumerate(problems)
    ]
    return tag_problems(seeds, tagger, WORD_CLASSES)


def found_of(words: Mapping[str, Sequence[str]], seed_id: str = "s:0", **more: Any) -> pa.Table:
    settings: dict[str, Any] = {"premise_mlms": ("m",), "hypothesis_mlms": ("m",), "log_odds": 1.0}
    return table_of(
        Replacement(
            seed_id=seed_id, source="s", word=word, word_class="noun", replacement=text,
            **{**settings, **more},
        )
        for word, texts in sorted(words.items())
        for text in sorted(texts)
    )  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    variants: pa.Table
    problems: TaggedProblems
    exclusions: list[Exclusion]
    fates: Counter[Fate]


def drawn(
    tagger: Tagger,
    problems: TaggedProblems,
    found: pa.Table,
    *,
    pairs: pa.Table | None = None,
    **options: Any,
) -> Drawn:
    settings = {"words_at_once": 2, "min_replacements": 1, "subsamples": 1, **options}
    config = Config(**settings)
    rows, reasons = adapt(problems, found, tagger, config)
    rows = rows.filter(pa.array([reason is None for reason in reasons], pa.bool_()))
    if config.scramble:
        rows, _ = shuffle_letters(rows, problems, config.rng_seed)
    rows = sorted_replacements(rows)
    variants, exclusions, fates = draw_several(rows, problems, tagger, config, pairs=pairs)
    return Drawn(variants, problems, exclusions, fates)


def rows_of(made: Drawn) -> list[dict[str, Any]]:
    return list(in_full(made.variants, made.problems).to_pylist())


def names(made: Drawn) -> set[str]:
    return {f"{row['word']} → {row['replacement']}" for row in rows_of(made)}


def texts_of(made: Drawn) -> list[tuple[str, ...]]:
    seeds = {seed.seed_id: seed for seed in made.problems.seeds}
    every = text_edits_of(made.variants, made.problems)
    return [
        tuple(
            substitute(text, *edits)[0]
            for text, edits in zip(seeds[seed_id].texts, of_variant, strict=True)
        )
        for seed_id, of_variant in zip(made.variants["seed_id"].to_pylist(), every, strict=True)
    ]


def test_with_articles_and_families(tagger: Tagger) -> None:
    texts = ("An owl sees a dog near the dogs.", "A dog sees an owl.")
    problems = problems_of(tagger, texts)
    found = found_of({"owl": ("cat", "eagle"), "dog": ("ape", "fox")})
    made = drawn(tagger, problems, found, repair_articles=True, families="inflect")
    assert {row["replacement"]: row["word"] for row in rows_of(made)} == {
        "cat ape apes A an An a": "owl dog dogs An a A an",
        "cat fox foxes A a": "owl dog dogs An an",
        "eagle ape apes an An": "owl dog dogs a A",
        "eagle fox foxes": "owl dog dogs",
    }
    assert set(texts_of(made)) == {
        ("A cat sees an ape near the apes.", "An ape sees a cat."),
        ("A cat sees a fox near the foxes.", "A fox sees a cat."),
        ("An eagle sees an ape near the apes.", "An ape sees an eagle."),
        ("An eagle sees a fox near the foxes.", "A fox sees an eagle."),
    }


def test_two_words_of_one_family(tagger: Tagger) -> None:
    problems = problems_of(tagger, ("A dog and the dogs sat.", "The dogs and a dog ate."))
    found = found_of({"dog": ("cat",), "dogs": ("girls",)})
    made = drawn(tagger, problems, found, families="inflect")
    assert (names(made), made.fates) == (set(), {(COMBINATIONS, "noun", Reason.SAME_TOKEN): 1})
    made = drawn(tagger, problems, found)
    assert names(made) == {"dog dogs → cat girls"}


def test_against_tagging_every_combination(tagger: Tagger) -> None:
    """D8 with both words in place gives the same as tagging whole sentences, one by one."""
    texts = ("The dog show has a walk.", "A dog show is no walk.")
    words = {
        "dog": ("cat", "play", "can", "first", "light", "run"),
        "show": ("light", "runs", "long", "play", "sing", "park"),
        "walk": ("play", "set", "run", "light", "sound"),
    }
    problems = problems_of(tagger, texts)

    def valid(first: str, one: str, second: str, other: str) -> bool:
        if one == other:
            return False
        for text in texts:
            classes = [t.tag[:2] for t in tag(text)]
            new = [{first: one, second: other}.get(t.text, t.text) for t in tag(text)]
            shown = " ".join(new[:-1]) + "."
            if [t.tag[:2] for t in tag(shown) if t.text in (one, other)] != [
                c for c, t in zip(classes, tag(text), strict=True) if t.text in (first, second)
            ]:
                return False
        return True

    expected = {
        f"{first} {second} → {one} {other}"
        for first, second in combinations(words, 2)
        for one, other in product(words[first], words[second])
        if valid(first, one, second, other)
    }
    made = drawn(tagger, problems, found_of(words), variants_per_class=1000)
    assert names(made) == expected
    assert made.fates[COMBINATIONS, "noun", Reason.WORD_CLASS] > 5
    assert made.fates[COMBINATIONS, "noun", KEPT] > 5


def test_columns(tagger: Tagger) -> None:
    """Columns have the least log-odds, the rarest word, and masked LMs of any word: in p, in h."""
    problems = problems_of(tagger, TEXTS)
    found = pa.concat_tables(
        [
            found_of({"boy": ("girl",)}, premise_mlms=("a", "b"), hypothesis_mlms=("a",)),
            found_of({"dog": ("cat",)}, premise_mlms=("b", "c"), hypothesis_mlms=("b",),
                     log_odds=0.25),
        ]
    )  # fmt: skip
    (row,) = rows_of(drawn(tagger, problems, found, subsamples=3))
    assert {name: value for name, value in row.items() if value is not None} == {
        "seed_id": "s:0",
        "source": "s",
        "word": "boy dog",
        "word_class": "noun",
        "replacement": "girl cat",
        "premise_mlms": ["a", "b", "c"],
        "hypothesis_mlms": ["a", "b"],
        "log_odds": 0.25,
        "mlm_count": 3,
        "zipf_frequency": pytest.approx(4.78),
        "article_fits": True,
        "subsamples": [0, 1, 2],
    }


def test_eligibility(tagger: Tagger) -> None:
    """Scopes are classes or words; one word is no pair, which an ablation reports for its seeds."""
    problems = problems_of(tagger, TEXTS)
    settings = {"min_replacements": 20, "min_replacements_scope": "problem"}
    (excluded,) = drawn(tagger, problems, found_of(WORDS), **settings).exclusions
    assert (excluded.word_class, excluded.reason, excluded.replacements) == (
        None, Reason.TOO_FEW, 19,
    )  # fmt: skip
    settings = {"min_replacements": 3, "min_replacements_scope": "word"}
    made = drawn(tagger, problems, found_of(WORDS), variants_per_class=100, **settings)
    assert {row["word"] for row in rows_of(made)} == {"boy dog"}
    assert [(e.word, e.replacements) for e in made.exclusions] == [("house", 2)]
    problems = problems_of(tagger, TEXTS)
    made = drawn(tagger, problems, found_of({"boy": ("girl", "man")}))
    assert len(made.variants) == 0
    (excluded,) = made.exclusions
    assert (excluded.seed_id, excluded.word_class, excluded.word) == ("s:0", "noun", None)
    assert (excluded.reason, excluded.replacements) == (Reason.TOO_FEW_WORDS, None)
    problems = problems_of(tagger, TEXTS, TEXTS)
    found = pa.concat_tables([found_of(WORDS), found_of({"boy": ("girl",)}, "s:1")])
    pairs = pa.table({"seed_id": ["s:0", "s:1"], "word_class": ["noun", "noun"]})
    made = drawn(tagger, problems, found, pairs=pairs)
    assert {row["seed_id"] for row in rows_of(made)} == {"s:0"}
    assert [(e.seed_id, e.reason) for e in made.exclusions] == [("s:1", Reason.TOO_FEW_WORDS)]
    problems = problems_of(tagger, TEXTS, TEXTS)
    found = pa.concat_tables([found_of(WORDS), found_of(WORDS, "s:1")])
    pairs = pa.table({"seed_id": ["s:1", "s:2"], "word_class": ["noun", "noun"]})
    made = drawn(tagger, problems, found, pairs=pairs, min_replacements=1000)
    assert {row["seed_id"] for row in rows_of(made)} == {"s:1"}
    assert made.exclusions == []


def test_scrambled_words_are_not_tagged(tagger: Tagger) -> None:
    problems = problems_of(tagger, TEXTS)
    found = found_of({"boy": ("owl",), "dog": ("bird",)})
    made = drawn(tagger, problems, found, scramble=True, repair_articles=True)
    (row,) = rows_of(made)
    assert row["word"] == "boy dog A a"
    one, other, *articles = row["replacement"].split()
    assert (sorted(one), sorted(other), articles) == (sorted("owl"), sorted("bird"), ["An", "an"])


def test_few_of_many_are_looked_at(tagger: Tagger) -> None:
    problems = problems_of(tagger, TEXTS)
    nouns = [f"{a}{b}{c}" for a in "bdgk" for b in "aeiou" for c in "bdfgklmnpt"]
    found = found_of({"boy": nouns, "dog": [f"{noun}s" for noun in nouns]})
    made = drawn(tagger, problems, found, subsamples=2, variants_per_class=5, min_replacements=20)
    assert len(made.variants) == 10
    assert made.fates.total() < 200


def test_combined(tagger: Tagger) -> None:
    """Changes of all parts are in order, or there is a reason against them."""
    sentences = list(tagger.tag(["A dog and an owl.", "Dogs."]))

    def part(*changes: tuple[int, int, int, str]) -> Perturbation:
        return Perturbation(sentences, tuple(Edit(*each) for each in changes))

    dog = part((WORD, 0, 1, "ape"), (ARTICLE, 0, 0, "An"))
    owl = part((WORD, 0, 4, "cat"), (ARTICLE, 0, 3, "a"))
    both = combined([owl, dog])
    assert isinstance(both, Perturbation)
    assert both.pairs() == [("dog", "ape"), ("owl", "cat"), ("A", "An"), ("an", "a")]
    assert combined([dog, part((WORD, 0, 4, "Ape"))]) == Reason.SAME_WORD
    assert combined([dog, part((WORD, 0, 1, "cat"))]) == Reason.SAME_TOKEN
