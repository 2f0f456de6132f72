"""Families and articles: further changes beside a word, against worked examples."""

import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.commands import refused
from helpers.dataset_files import read_rows as rows
from helpers.reference import tag, word_class
from helpers.replacement_tables import Replacement, table_of

from generation import build, suggest
from generation.config import Config
from generation.problems.tagging import TaggedProblems, Tagger, tag_problems
from generation.records import REPLACEMENT_KEY, Seed, substitute
from generation.run_folder import RunFolder
from generation.run_summary import summarise
from generation.variants.further_edits import Fate, adapt, reject_in_context
from generation.variants.grammar import inflected
from generation.variants.perturbations import (
    ARTICLE,
    FAMILY,
    WORD,
    Edit,
    Key,
    Perturbation,
    in_full,
    perturbations_of,
    scramble,
    shuffle_letters,
)
from generation.variants.reasons import KEPT, Reason, WordKey
from merge_dataset.checks import check_dataset
from merge_dataset.export import export_dataset
from merge_dataset.files import read_json
from merge_dataset.schema import WORD_CLASSES


def found_of(word: str, word_class: str, *texts: str) -> pa.Table:
    return table_of(
        Replacement(word=word, word_class=word_class, replacement=text) for text in sorted(texts)
    )


@dataclass(frozen=True)
class Adapted:
    rows: pa.Table
    """Remaining replacements, with their further edits."""
    problems: TaggedProblems
    fates: Counter[Fate]
    families: dict[WordKey, tuple[Reason, int]]
    """Words left out because of their families."""


def adapted_rows(
    problems: TaggedProblems, found: pa.Table, tagger: Tagger, config: Config
) -> Adapted:
    rows, families, fates = adapt(problems, found, tagger, config)
    return Adapted(rows, problems, fates, families)


def adapted(
    tagger: Tagger,
    premise: str,
    hypothesis: str,
    word: str,
    word_class: str,
    *texts: str,
    **options: Any,
) -> Adapted:
    seed = Seed(seed_id="s:1", source="s", texts=(premise, hypothesis), label="neutral")
    problems = tag_problems([seed], tagger, WORD_CLASSES)
    assert (word, word_class) in {(w.word, w.word_class) for w in problems.words["s:1"]}
    result = found_of(word, word_class, *texts)
    return adapted_rows(problems, result, tagger, Config(**options))


def variants(made: Adapted) -> dict[str, tuple[str, ...]]:
    """Map "original → replacement" to the texts of the variant."""
    rows = in_full(made.rows, made.problems).to_pylist()
    every = [one.text_edits() for one in perturbations_of(made.rows, made.problems)]
    seeds = {seed.seed_id: seed for seed in made.problems.seeds}
    return {
        f"{row['word']} → {row['replacement']}": tuple(
            substitute(text, *edits)[0]
            for text, edits in zip(seeds[row["seed_id"]].texts, item, strict=True)
        )
        for row, item in zip(rows, every, strict=True)
    }


def fates(made: Adapted) -> dict[str, int]:
    """Counts by reason; each of these problems has one class."""
    return {fate: count for (_, fate), count in made.fates.items()}


CAT = (
    "The cat sleeps here; it was sleeping there before.",
    "A cat sleeps, as cats have always slept.",
)

INFLECT, REJECT = {"families": "inflect"}, {"families": "reject"}
REPAIR = {"repair_articles": True}
OWL, DOG = (
    ("An owl sees another owl.", "There is an owl."),
    ("A dog sees a dog.", "A dog is there."),
)
ADAPTED: dict[str, tuple[tuple[str, str], str, dict[str, Any], Any, Any]] = {
    "a verb's other forms follow into their own tense": (
        CAT, "sleeps/verb runs plays", INFLECT,
        {"sleeps sleeping slept → runs running run":
         ("The cat runs here; it was running there before.",
          "A cat runs, as cats have always run."),
         "sleeps sleeping slept → plays playing played":
         ("The cat plays here; it was playing there before.",
          "A cat plays, as cats have always played.")},
        {KEPT: 2},
    ),
    "the paper ignores families": (
        CAT, "sleeps/verb runs", {},
        {"sleeps → runs": ("The cat runs here; it was sleeping there before.",
                           "A cat runs, as cats have always slept.")}, {},
    ),
    "words with a family are left out, with their replacements counted": (
        CAT, "sleeps/verb runs sings", REJECT, (Reason.FAMILY_REJECTED, 2),
        {Reason.FAMILY_REJECTED: 2},
    ),
    "words without a family stay": (
        ("A cat runs.", "The cat sat."), "cat/noun dog", REJECT,
        {"cat → dog": ("A dog runs.", "The dog sat.")}, {},
    ),
    "a form that differs in case alone takes the replacement as it is (D6)": (
        ("Children play; the children laugh.", "The children sing."), "children/noun girls",
        INFLECT,
        {"children Children → girls Girls": ("Girls play; the girls laugh.", "The girls sing.")},
        {KEPT: 1},
    ),
    "no such form, one that stands in the problem, one that is the replacement itself": (
        ("One woman and two women watch the men.", "A woman walks."),
        "woman/noun man sheep frisbee girl", INFLECT,
        {"woman women → girl girls": ("One girl and two girls watch the men.", "A girl walks.")},
        {KEPT: 1, Reason.IN_PROBLEM: 1, Reason.AMBIGUOUS: 1, Reason.NO_INFLECTION: 1},
    ),
    "D8 with all changes in place: the tagger takes this sings for a noun": (
        CAT, "sleeps/verb sings", INFLECT, {}, {Reason.WORD_CLASS: 1},
    ),
    "nobody knows from what dogs become what a dog show becomes": (
        ("A dog show is no show of dogs.", "The dog show is here."), "dog/noun cat", INFLECT,
        (Reason.FAMILY_IN_COMPOUND, 1), {Reason.FAMILY_IN_COMPOUND: 1},
    ),
    "nor the other way round": (
        ("The dogs are at a dog show.", "The dogs run."), "dogs/noun cats boys", INFLECT,
        (Reason.FAMILY_IN_COMPOUND, 2), {Reason.FAMILY_IN_COMPOUND: 2},
    ),
    "a replacement of is cannot help another verb": (
        ("He is old and was sleeping.", "He is there."), "is/verb looks", INFLECT,
        (Reason.FAMILY_AUXILIARY, 1), {Reason.FAMILY_AUXILIARY: 1},
    ),
    "an becomes a, in its casing, wherever the word stands": (
        OWL, "owl/noun dog eagle", REPAIR,
        {"owl An an → dog A a": ("A dog sees another dog.", "There is a dog."),
         "owl → eagle": ("An eagle sees another eagle.", "There is an eagle.")}, {KEPT: 1},
    ),
    "and a becomes an": (
        DOG, "dog/noun owl cat", REPAIR,
        {"dog → cat": ("A cat sees a cat.", "A cat is there."),
         "dog A a → owl An an": ("An owl sees an owl.", "An owl is there.")}, {KEPT: 1},
    ),
    "the paper leaves articles alone": (
        DOG, "dog/noun owl", {}, {"dog → owl": ("A owl sees a owl.", "A owl is there.")}, {},
    ),
    "an adjective decides for itself, and the fits anything": (
        ("A big dog runs to the dog.", "A dog sat."), "dog/noun owl", REPAIR,
        {"dog A → owl An": ("A big owl runs to the owl.", "An owl sat.")}, {KEPT: 1},
    ),
    "an article before an adjective": (
        ("A big dog runs.", "A big dog sat."), "big/adjective old", REPAIR,
        {"big A → old An": ("An old dog runs.", "An old dog sat.")}, {KEPT: 1},
    ),
    "articles before other forms fit what their own word becomes": (
        ("He saw an older man, not a young one, and an old one.", "An old man sat."),
        "old/adjective unhappy big beautiful", INFLECT | REPAIR,
        {"old older an An → big bigger a A":
         ("He saw a bigger man, not a young one, and a big one.", "A big man sat."),
         "old older → unhappy unhappier":
         ("He saw an unhappier man, not a young one, and an unhappy one.", "An unhappy man sat.")},
        {KEPT: 2, Reason.NO_INFLECTION: 1},
    ),
    "an article that did not fit is put right": (
        ("A owl runs.", "A owl sat."), "owl/noun eagle dog", REPAIR,
        {"owl → dog": ("A dog runs.", "A dog sat."),
         "owl A → eagle An": ("An eagle runs.", "An eagle sat.")}, {KEPT: 1},
    ),
}  # fmt: skip
"""Case → texts, word and replacements, options, variants or reason to leave out the word, fates."""


@pytest.mark.parametrize("case", ADAPTED)
def test_families_and_articles(tagger: Tagger, case: str) -> None:
    texts, message, options, expected, counted = ADAPTED[case]
    (word, word_class), *new = [part.split("/") for part in message.split()]
    made = adapted(tagger, *texts, word, word_class, *(text for (text,) in new), **options)
    left_out = {("s:1", word_class, word): expected} if isinstance(expected, tuple) else {}
    assert (variants(made), made.families) == ({} if left_out else expected, left_out)
    assert fates(made) == counted


def test_two_shared_words_of_one_family(tagger: Tagger) -> None:
    texts = ("He walked and she was walking.", "She was walking as he walked.")
    seed = Seed(seed_id="s:1", source="s", texts=texts, label="neutral")
    problems = tag_problems([seed], tagger, WORD_CLASSES)
    words = {"walked": ("jumped", "sat"), "walking": ("jumping", "talking")}
    result = pa.concat_tables([found_of(word, "verb", *new) for word, new in words.items()])
    made = adapted_rows(problems, result, tagger, Config(families="inflect"))
    assert variants(made) == {
        "walked walking → jumped jumping": ("He jumped and she was jumping.",
            "She was jumping as he jumped."),
        "walked walking → sat sitting": ("He sat and she was sitting.",
            "She was sitting as he sat."),
        "walking walked → talking talked": ("He talked and she was talking.",
            "She was talking as he talked."),
    }  # fmt: skip
    assert fates(made) == {KEPT: 3, Reason.SAME_TEXT: 1}
    texts = ("The cat sleeps here.", "It was sleeping.", "A cat sleeps.")
    seed = Seed(seed_id="s:1", source="s", texts=texts, label="neutral")
    problems = tag_problems([seed], tagger, WORD_CLASSES, (0, 2))
    result = found_of("sleeps", "verb", "plays")
    made = adapted_rows(problems, result, tagger, Config(families="inflect"))
    assert variants(made) == {
        "sleeps sleeping → plays playing": (
            "The cat plays here.", "It was playing.", "A cat plays.",
        )
    }  # fmt: skip


def test_without_the_class_filter(tagger: Tagger) -> None:
    """Nothing is tagged again: replacements that D8 would reject stay, with their articles."""
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
    """Letters are shuffled last, in all words but articles, which fit the unshuffled word."""
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


@pytest.mark.parametrize(
    ("word", "tag", "wanted", "expected"),
    [
        ("ran", "VBD", "VBN", "run"),
        ("sits", "VBZ", "VBP", "sit"),
        ("men", "NNS", "NN", "man"),
        ("big", "JJ", "JJS", "biggest"),
        ("soon", "RB", "RBR", "sooner"),
        # It differs by lemma.
        ("leaves", "NNS", "NN", None),
        ("found", "VBD", "VBG", None),
        ("best", "JJS", "JJ", None),
        # It differs by number and person.
        ("is", "VBZ", "VBP", None),
        ("was", "VBD", "VBG", None),
        # The class is another, or there is none.
        ("run", "NN", "VBG", None),
        ("would", "MD", "VBD", None),
    ],
)
def test_inflections(word: str, tag: str, wanted: str, expected: str | None) -> None:
    assert inflected(word, tag, wanted) == expected


TEXTS = (
    "A small dog and another dog run to the house, and the dogs don't stop there.",
    'An old man said "a girl sings" while he sat at the man-made lake.',
    "The walk is good.",
    "They walk a mile, e.g. on Sundays, then run.",
)
WORDS = (
    "cat", "owl", "houses", "walks", "singing", "sang", "red", "quickly", "a", "an", "the", "can",
    "cannot", "gonna", "e", "man", "is", "better",
)  # fmt: skip

KEY = Key("s:1", "noun", "dog", "cat")


def slow_tags(text: str, spans: Any, words: Any) -> list[str] | None:
    """Tags of a whole text with words replaced; None if its other tokens differ."""
    wanted = [token.text for token in tag(text)]
    starts = [token.start for token in tag(text)]
    for (start, end), word in reversed(list(zip(spans, words, strict=True))):
        wanted[starts.index(start)] = word
        text = text[:start] + word + text[end:]
    result = tag(text)
    return [token.tag for token in result] if [t.text for t in result] == wanted else None


def slow_reason(perturbation: Perturbation, tag_match: str) -> str | None:
    """D8, by tagging whole texts."""
    result = [
        slow_tags(s.text, *e)
        for s, e in zip(perturbation.sentences, perturbation.text_edits(), strict=True)
    ]
    if None in result:
        return Reason.TOKENIZATION
    for edit in perturbation.edits:
        before, after = perturbation.token(edit).tag, (result[edit.text] or [])[edit.position]
        if tag_match == "fine" or word_class(before) == before:
            same = before == after
        else:
            same = word_class(before) == word_class(after)
        if not same:
            return Reason.WORD_CLASS
    return None


def random_perturbations(tagger: Tagger, count: int) -> list[Perturbation]:
    rng = random.Random(8)
    sentences = list(tagger.tag(TEXTS))
    result = []
    for _ in range(count):
        pair = rng.sample(sentences, 2)
        changes = {
            (text, rng.randrange(len(pair[text].tokens))): rng.choice(WORDS)
            for text in rng.choices((0, 1), k=rng.randint(1, 4))
        }
        edits = tuple(sorted(Edit(WORD, *at, w) for at, w in changes.items()))
        result.append(Perturbation(KEY, pair, edits))
    return result


@pytest.mark.slow(but=("100-coarse",))
@pytest.mark.parametrize("tag_match", ["coarse", "fine"])
@pytest.mark.parametrize("number", [100, 400])
def test_judging_against_whole_sentences(tagger: Tagger, number: int, tag_match: str) -> None:
    perturbations = random_perturbations(tagger, number)
    expected = [slow_reason(perturbation, tag_match) for perturbation in perturbations]
    assert reject_in_context(perturbations, tagger, tag_match=tag_match) == expected
    assert set(expected) == {None, Reason.TOKENIZATION, Reason.WORD_CLASS}


def perturbation(tagger: Tagger, texts: Sequence[str], *edits: Edit) -> Perturbation:
    return Perturbation(KEY, list(tagger.tag(texts)), tuple(sorted(edits)))


def test_pairs_and_edits(tagger: Tagger) -> None:
    made = perturbation(
        tagger, ["A girl sees a girl and girls.", "Girls."], Edit(ARTICLE, 0, 0, "An"),
        Edit(WORD, 0, 1, "owl"), Edit(ARTICLE, 0, 3, "an"), Edit(WORD, 0, 4, "owl"),
        Edit(FAMILY, 0, 6, "owls"), Edit(FAMILY, 1, 0, "Owls"),
    )  # fmt: skip
    assert made.pairs() == [
        ("girl", "owl"), ("girls", "owls"), ("Girls", "Owls"), ("A", "An"), ("a", "an"),
    ]  # fmt: skip
    assert made.is_more
    assert not made.is_ambiguous()
    assert made.text_edits() == [
        ([(0, 1), (2, 6), (12, 13), (14, 18), (23, 28)], ["An", "owl", "an", "owl", "owls"]),
        ([(0, 5)], ["Owls"]),
    ]
    assert reject_in_context([], tagger, tag_match="coarse") == []
    places = ((0, 1), (0, 4), (1, 0))
    made = perturbation(tagger, ["a dog, a dog", "dog"], *(Edit(WORD, *at, "cat") for at in places))
    assert made.pairs() == [("dog", "cat")]
    assert not made.is_more
    texts = ["a fish and fishes", "fish"]
    same = [Edit(WORD, 0, 1, "sheep"), Edit(FAMILY, 0, 3, "sheep")]
    assert perturbation(tagger, texts, *same).is_ambiguous()
    texts = ["they read what he read", "read"]
    other = [Edit(FAMILY, 0, 1, "see"), Edit(FAMILY, 0, 4, "saw")]
    assert not perturbation(tagger, texts, *other).is_ambiguous()


PROBLEMS = """\
pairID,sentence1,sentence2,gold_label
owl,An owl and a dog watch the dogs.,A dog sees an owl.,neutral
cat,The cat sleeps here; it was sleeping there before.,A cat sleeps.,entailment
boy,A boy and an old man wait for an artist.,The boy and the artist see an old man.,neutral
fish,A woman and a girl walk; the girl and the women talk.,A girl and a woman talk.,contradiction
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "reject": {"families": "reject"},
    "inflect": {"families": "inflect"},
    "articles": {"repair_articles": True},
    "all": {"families": "inflect", "repair_articles": True},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with the bundled masked LM's suggestions for the problems above, and a build."""
    folder = tmp_path_factory.mktemp("more")
    data = folder / "problems.csv"
    data.write_text(PROBLEMS, encoding="utf-8")
    config = Config.from_recipe(
        "demo", source="mine", data=str(data), min_replacements=2, variants_per_class=5,
        subsamples=3, with_columns=(), run=str(folder / "run"),
    )  # fmt: skip
    suggest(config)
    build(config.run)
    return folder / "run"


@pytest.fixture(scope="module")
def built(run: Path) -> dict[str, RunFolder]:
    return {name: build(run, into=name, **options) for name, options in OPTIONS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_words_keep_their_class(built: dict[str, RunFolder], name: str) -> None:
    """D8 holds when whole texts are tagged with all changes in place."""
    variants = rows(built[name].variants)
    assert variants
    seeds = {row["seed_id"]: row for row in rows(built[name].seeds)}
    for row in variants:
        for field in ("premise", "hypothesis"):
            after, before = tag(row[field]), tag(seeds[row["seed_id"]][field])
            assert len(after) == len(before)
            changed = [n for n, token in enumerate(after) if [*token.span] in row[f"{field}_spans"]]
            assert len(changed) == len(row[f"{field}_spans"])
            for n in changed:
                assert word_class(after[n].tag) == word_class(before[n].tag)


def test_only_what_is_asked_for_changes(run: Path, built: dict[str, RunFolder]) -> None:
    own = {
        tuple(row[key] for key in REPLACEMENT_KEY): row for row in rows(RunFolder(run).replacements)
    }
    for name in ("reject", "inflect", "articles"):
        result = rows(built[name].replacements)
        alone = [row for row in result if " " not in row["word"]]
        assert all(own[tuple(row[key] for key in REPLACEMENT_KEY)] == row for row in alone)
    rejected = {row["word"] for row in own.values()} - {
        row["word"] for row in rows(built["reject"].replacements)
    }
    assert rejected == {"dog", "sleeps", "woman"} & {row["word"] for row in own.values()}
    assert len(rows(built["articles"].replacements)) == len(own)


def test_exclusions_and_counts(run: Path, built: dict[str, RunFolder], tmp_path: Path) -> None:
    excluded = rows(built["reject"].exclusions)
    (sleeps,) = [row for row in excluded if row["word"] == "sleeps"]
    assert (sleeps["reason"], sleeps["seed_id"]) == ("word_family", "mine:cat")
    assert sleeps["replacements"] == sum(
        row["word"] == "sleeps" for row in rows(RunFolder(run).replacements)
    )
    manifest = read_json(built["all"].manifest)
    assert {"noun", "verb"} <= {row["word_class"] for row in manifest["changes"]}
    assert all(row["kept"] >= 0 for row in manifest["changes"])
    assert "changes" not in read_json(RunFolder(run).manifest)
    configs = export_dataset(built["all"].path, tmp_path / "data")
    assert check_dataset(tmp_path / "data") == []
    text = summarise(built["all"].path, tmp_path / "data", configs)
    assert "Where more than one word changes:\n  noun replacements: " in text


def test_without_the_library(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lemminflect", None)
    told = refused("build", "--run", run, "--into", "x", "--families", "reject")
    assert "pip install 'merge-nli[morphology]'" in told
    assert not (run / "x").exists()
    build(run, into="y", repair_articles=True)
    with pytest.raises(ValueError, match="quality: expected lemminflect to be installed"):
        build(run, into="z", with_columns=("mean_rank", "quality"))
