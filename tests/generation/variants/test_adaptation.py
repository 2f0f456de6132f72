"""Families and articles: what else changes with a word, against worked examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from helpers.replacement_tables import Replacement, table_of
from threadpoolctl import threadpool_limits

from generation.config import Config
from generation.problems.shared_words import TaggedProblems, tag_problems
from generation.problems.tagging import Tagger
from generation.reasons import KEPT, Reason
from generation.records import Seed, Sentence, Token
from generation.variants.adaptation import (
    REPLACEMENTS,
    Fate,
    adapt,
    count_fates,
    rejected_families,
    shuffle_letters,
)
from generation.variants.funnel import WordKey
from generation.variants.perturbations import (
    ARTICLE,
    WORD,
    Edit,
    Perturbation,
    in_full,
    text_edits_of,
)
from generation.variants.rows import substitute
from generation.variants.words import scramble
from merge_dataset.schema import WORD_CLASSES


@pytest.fixture(scope="module")
def tagger() -> Iterator[Tagger]:
    with threadpool_limits(1):
        yield Tagger.load()


def found_of(word: str, word_class: str, *texts: str) -> pa.Table:
    """Replacements of a word of the seed."""
    return table_of(
        Replacement(
            seed_id="s:1",
            source="s",
            word=word,
            word_class=word_class,
            replacement=text,
            premise_mlms=("m",),
            hypothesis_mlms=("m",),
            log_odds=1.0,
        )
        for text in sorted(texts)
    )


@dataclass(frozen=True)
class Adapted:
    """Replacements after options."""

    rows: pa.Table
    """Replacements that are left, with their further edits."""
    problems: TaggedProblems
    fates: Counter[Fate]
    families: dict[WordKey, tuple[Reason, int]]
    """The words left out for their families."""


def adapted_rows(
    problems: TaggedProblems, found: pa.Table, tagger: Tagger, config: Config
) -> Adapted:
    rows, reasons = adapt(problems, found, tagger, config)
    kept = rows.filter(pa.array([reason is None for reason in reasons], pa.bool_()))
    fates, families = count_fates(rows, reasons), rejected_families(rows, reasons)
    return Adapted(kept, problems, fates, families)


def adapted(
    tagger: Tagger,
    premise: str,
    hypothesis: str,
    word: str,
    word_class: str,
    *texts: str,
    **options: Any,
) -> Adapted:
    """Apply options to the replacements of a word."""
    seed = Seed(seed_id="s:1", source="s", texts=(premise, hypothesis), label="neutral")
    problems = tag_problems([seed], tagger, WORD_CLASSES)
    assert (word, word_class) in {(w.word, w.word_class) for w in problems.words["s:1"]}
    found = found_of(word, word_class, *texts)
    return adapted_rows(problems, found, tagger, Config(**options))


def variants(made: Adapted) -> dict[str, tuple[str, ...]]:
    """Pairs as "original → replacement" → the texts of the variant."""
    rows = in_full(made.rows, made.problems).to_pylist()
    every = text_edits_of(made.rows, made.problems)
    seeds = {seed.seed_id: seed for seed in made.problems.seeds}
    return {
        f"{row['word']} → {row['replacement']}": tuple(
            substitute(text, *edits)[0]
            for text, edits in zip(seeds[row["seed_id"]].texts, each, strict=True)
        )
        for row, each in zip(rows, every, strict=True)
    }


def fates(made: Adapted) -> dict[str, int]:
    """Counts by reason; there is one class in each of these problems."""
    assert {what for what, _, _ in made.fates} <= {REPLACEMENTS}
    return {fate: count for (_, _, fate), count in made.fates.items()}


CAT = (
    "The cat sleeps here; it was sleeping there before.",
    "A cat sleeps, as cats have always slept.",
)

# --- Families ---


def test_families_are_inflected(tagger: Tagger) -> None:
    """A verb's other forms follow it into their own tense; its tense does not follow them."""
    made = adapted(tagger, *CAT, "sleeps", "verb", "runs", "plays", families="inflect")
    assert variants(made) == {
        "sleeps sleeping slept → runs running run": (
            "The cat runs here; it was running there before.",
            "A cat runs, as cats have always run.",
        ),
        "sleeps sleeping slept → plays playing played": (
            "The cat plays here; it was playing there before.",
            "A cat plays, as cats have always played.",
        ),
    }
    assert fates(made) == {KEPT: 2}
    assert made.families == {}


def test_two_shared_words_of_one_family(tagger: Tagger) -> None:
    """Where each takes the other with it to the same words, the variant is there once."""
    texts = ("He walked and she was walking.", "She was walking as he walked.")
    seed = Seed(seed_id="s:1", source="s", texts=texts, label="neutral")
    problems = tag_problems([seed], tagger, WORD_CLASSES)
    words = {"walked": ("jumped", "sat"), "walking": ("jumping", "talking")}
    found = pa.concat_tables([found_of(word, "verb", *new) for word, new in words.items()])
    made = adapted_rows(problems, found, tagger, Config(families="inflect"))
    assert variants(made) == {
        "walked walking → jumped jumping": (
            "He jumped and she was jumping.",
            "She was jumping as he jumped.",
        ),
        "walked walking → sat sitting": (
            "He sat and she was sitting.",
            "She was sitting as he sat.",
        ),
        "walking walked → talking talked": (
            "He talked and she was talking.",
            "She was talking as he talked.",
        ),
    }
    assert fates(made) == {KEPT: 3, Reason.SAME_TEXT: 1}


def test_families_reject_the_word(tagger: Tagger) -> None:
    """With its replacements counted; a word without a family stays as it was."""
    made = adapted(tagger, *CAT, "sleeps", "verb", "runs", "sings", families="reject")
    assert len(made.rows) == 0
    assert made.families == {("s:1", "verb", "sleeps"): (Reason.FAMILY_REJECTED, 2)}
    assert fates(made) == {Reason.FAMILY_REJECTED: 2}
    made = adapted(tagger, "A cat runs.", "The cat sat.", "cat", "noun", "dog", families="reject")
    assert variants(made) == {"cat → dog": ("A dog runs.", "The dog sat.")}
    assert (made.families, fates(made)) == ({}, {})


def test_families_are_ignored_by_default(tagger: Tagger) -> None:
    """As the paper does it."""
    made = adapted(tagger, *CAT, "sleeps", "verb", "runs")
    assert variants(made) == {
        "sleeps → runs": (
            "The cat runs here; it was sleeping there before.",
            "A cat runs, as cats have always slept.",
        )
    }


def test_a_form_that_differs_in_case_alone(tagger: Tagger) -> None:
    """It takes over the replacement as it is, in its own casing (D6)."""
    made = adapted(tagger, "Children play; the children laugh.", "The children sing.",
                   "children", "noun", "girls", families="inflect")  # fmt: skip
    assert variants(made) == {
        "children Children → girls Girls": ("Girls play; the girls laugh.", "The girls sing.")
    }


def test_forms_that_cannot_follow(tagger: Tagger) -> None:
    """No such form, a form that stands in the problem, one that is the replacement itself."""
    texts = ("One woman and two women watch the men.", "A woman walks.")
    made = adapted(tagger, *texts, "woman", "noun", "man", "sheep", "frisbee", "girl",
                   families="inflect")  # fmt: skip
    assert variants(made) == {
        "woman women → girl girls": ("One girl and two girls watch the men.", "A girl walks.")
    }
    assert fates(made) == {
        KEPT: 1,
        Reason.IN_PROBLEM: 1,
        Reason.AMBIGUOUS: 1,
        Reason.NO_INFLECTION: 1,
    }


def test_families_keep_their_class(tagger: Tagger) -> None:
    """D8 with all changes in place: the tagger takes this "sings" for a noun."""
    made = adapted(tagger, *CAT, "sleeps", "verb", "sings", families="inflect")
    assert (variants(made), fates(made)) == ({}, {Reason.WORD_CLASS: 1})


def test_compounds_are_left_alone(tagger: Tagger) -> None:
    """Nobody knows from what dogs become what "dog show" becomes, nor the other way round."""
    texts = ("A dog show is no show of dogs.", "The dog show is here.")
    made = adapted(tagger, *texts, "dog", "noun", "cat", families="inflect")
    assert fates(made) == {Reason.FAMILY_IN_COMPOUND: 1}
    made = adapted(tagger, "The dogs are at a dog show.", "The dogs run.", "dogs", "noun",
                   "cats", "boys", families="inflect")  # fmt: skip
    assert len(made.rows) == 0
    assert made.families == {("s:1", "noun", "dogs"): (Reason.FAMILY_IN_COMPOUND, 2)}


def test_auxiliaries_are_left_alone(tagger: Tagger) -> None:
    """A replacement of "is" cannot help another verb."""
    made = adapted(tagger, "He is old and was sleeping.", "He is there.", "is", "verb", "looks",
                   families="inflect")  # fmt: skip
    assert len(made.rows) == 0
    assert made.families == {("s:1", "verb", "is"): (Reason.FAMILY_AUXILIARY, 1)}


def test_texts_that_need_not_share_the_word(tagger: Tagger) -> None:
    """One text of three has only another form of the word, which follows too."""
    texts = ("The cat sleeps here.", "It was sleeping.", "A cat sleeps.")
    seed = Seed(seed_id="s:1", source="s", texts=texts, label="neutral")
    problems = tag_problems([seed], tagger, WORD_CLASSES, (0, 2))
    found = found_of("sleeps", "verb", "plays")
    made = adapted_rows(problems, found, tagger, Config(families="inflect"))
    assert variants(made) == {
        "sleeps sleeping → plays playing": (
            "The cat plays here.", "It was playing.", "A cat plays.",
        )
    }  # fmt: skip


# --- Articles ---


def test_articles_are_repaired_both_ways(tagger: Tagger) -> None:
    """In their casing, wherever the word stands."""
    texts = ("An owl sees another owl.", "There is an owl.")
    made = adapted(tagger, *texts, "owl", "noun", "dog", "eagle", repair_articles=True)
    assert variants(made) == {
        "owl An an → dog A a": ("A dog sees another dog.", "There is a dog."),
        "owl → eagle": ("An eagle sees another eagle.", "There is an eagle."),
    }
    assert fates(made) == {KEPT: 1}
    texts = ("A dog sees a dog.", "A dog is there.")
    made = adapted(tagger, *texts, "dog", "noun", "owl", "cat", repair_articles=True)
    assert variants(made) == {
        "dog → cat": ("A cat sees a cat.", "A cat is there."),
        "dog A a → owl An an": ("An owl sees an owl.", "An owl is there."),
    }


def test_whether_articles_fit() -> None:
    """As they are then, where they are tagged as articles; None where there are none."""
    tokens = [("A", 0, "DT"), ("dog", 2, "NN"), ("A", 6, "NN"), ("cat", 8, "NN"), ("cat", 12, "NN")]
    sentence = Sentence("A dog A cat cat", tuple(Token(*each) for each in tokens))

    def fits(*changes: tuple[int, int, int, str]) -> bool | None:
        edits = tuple(sorted(Edit(*each) for each in changes))
        return Perturbation([sentence], edits).has_fitting_articles()

    assert fits((WORD, 0, 1, "cow"), (WORD, 0, 4, "owl")) is True
    assert fits((WORD, 0, 1, "owl"), (WORD, 0, 4, "cow")) is False
    assert fits((WORD, 0, 1, "owl"), (ARTICLE, 0, 0, "An")) is True
    assert fits((WORD, 0, 1, "cow"), (ARTICLE, 0, 0, "An")) is False
    assert fits((WORD, 0, 3, "owl"), (WORD, 0, 4, "owl")) is None


def test_articles_are_left_alone_by_default(tagger: Tagger) -> None:
    """As the paper does it."""
    made = adapted(tagger, "A dog runs.", "A dog sat.", "dog", "noun", "owl")
    assert variants(made) == {"dog → owl": ("A owl runs.", "A owl sat.")}


def test_what_stands_between_keeps_the_article(tagger: Tagger) -> None:
    """An adjective decides for itself, and "the" fits anything."""
    texts = ("A big dog runs to the dog.", "A dog sat.")
    made = adapted(tagger, *texts, "dog", "noun", "owl", repair_articles=True)
    assert variants(made) == {
        "dog A → owl An": ("A big owl runs to the owl.", "An owl sat."),
    }
    made = adapted(tagger, "A big dog runs.", "A big dog sat.", "big", "adjective", "old",
                   repair_articles=True)  # fmt: skip
    assert variants(made) == {"big A → old An": ("An old dog runs.", "An old dog sat.")}


def test_articles_before_other_forms(tagger: Tagger) -> None:
    """They fit what their own word becomes."""
    texts = ("He saw an older man, not a young one, and an old one.", "An old man sat.")
    made = adapted(tagger, *texts, "old", "adjective", "unhappy", "big", "beautiful",
                   families="inflect", repair_articles=True)  # fmt: skip
    assert variants(made) == {
        "old older an An → big bigger a A": (
            "He saw a bigger man, not a young one, and a big one.",
            "A big man sat.",
        ),
        "old older → unhappy unhappier": (
            "He saw an unhappier man, not a young one, and an unhappy one.",
            "An unhappy man sat.",
        ),
    }
    assert fates(made) == {KEPT: 2, Reason.NO_INFLECTION: 1}


def test_an_article_that_did_not_fit_before(tagger: Tagger) -> None:
    """A seed's mistake is put right where its word changes."""
    made = adapted(tagger, "A owl runs.", "A owl sat.", "owl", "noun", "eagle", "dog",
                   repair_articles=True)  # fmt: skip
    assert variants(made) == {
        "owl → dog": ("A dog runs.", "A dog sat."),
        "owl A → eagle An": ("An eagle runs.", "An eagle sat."),
    }


# --- Ablations ---


def test_without_the_class_filter(tagger: Tagger) -> None:
    """Nothing is tagged again: what D8 would reject is kept, with its article."""
    texts = ("A dog runs.", "A dog sat.")
    options = {"repair_articles": True, "class_filter": False}
    made = adapted(tagger, *texts, "dog", "noun", "it", "of", **options)
    assert variants(made) == {
        "dog A → it An": ("An it runs.", "An it sat."),
        "dog A → of An": ("An of runs.", "An of sat."),
    }
    made = adapted(tagger, *texts, "dog", "noun", "of", repair_articles=True)
    assert list(fates(made)) in ([Reason.WORD_CLASS], [Reason.TOKENIZATION])


def test_scrambled(tagger: Tagger) -> None:
    """Letters are shuffled at the end, of all words but articles, which fit the word as it was."""
    options = {"families": "inflect", "repair_articles": True}
    texts = ("A dog and two dogs run.", "A dog sat.")
    made = adapted(tagger, *texts, "dog", "noun", "owl", **options)
    rows, ambiguous = shuffle_letters(made.rows, made.problems, 5)
    assert not ambiguous
    made = replace(made, rows=rows)
    assert fates(made) == {KEPT: 1}
    one, two = (scramble(word, "5\ns:1") for word in ("owl", "owls"))
    assert variants(made) == {
        f"dog dogs A → {one} {two} An": (f"An {one} and two {two} run.", f"An {one} sat.")
    }


def test_no_replacements(tagger: Tagger) -> None:
    """Blocks in which nothing is left."""
    for options in ({"families": "inflect"}, {"repair_articles": True}, {"families": "reject"}):
        made = adapted(tagger, *CAT, "sleeps", "verb", **options)
        assert (len(made.rows), variants(made), made.families) == (0, {}, {})
