import dataclasses
import re
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.replacement_tables import Replacement, Variant, variant_table
from hypothesis import given
from hypothesis import strategies as st

import generation
from docs.site.build import for_site
from generation.config import BUNDLED_MLM, RECIPES, Config, bundled_path
from generation.paraphrases.rounds import ParaphraseReason
from generation.records import Seed, Span, substitute
from generation.records import variant_rows as variant_columns
from generation.variants.reasons import REASONS, Reason
from generation.variants.signal_columns import require_columns
from merge_dataset.schema import LABELS, NLI, WORD_CLASSES, arrow_schema
from merge_dataset.settings import declared_settings, from_mapping, to_mapping

PAPER_MLMS = (
    "google-bert/bert-base-cased", "google-bert/bert-large-cased", "FacebookAI/roberta-base",
    "FacebookAI/roberta-large", "albert/albert-base-v2", "albert/albert-xxlarge-v2",
    "google/electra-base-generator", "google/electra-large-generator",
)  # fmt: skip
"""D12."""

NOUN_VERB_ADJECTIVE = ("noun", "verb", "adjective")


def test_the_bundled_recipes() -> None:
    """`Config()` is paper-v2 except for its masked LMs; strict has three more settings."""
    assert sorted(RECIPES) == sorted(p.stem for p in bundled_path("recipes").glob("*.toml"))
    recipe = Config.from_recipe("paper-v2")
    assert dataclasses.replace(recipe, recipe="custom", mlms=()) == Config()
    more = {"same_number": True, "same_tense": True, "repair_articles": True}
    strict = dataclasses.replace(Config.from_recipe("paper-v2"), recipe="strict", **more)
    assert Config.from_recipe("strict") == strict
    with pytest.raises(ValueError, match=r"expected class_filter .*; set them to false"):
        Config.from_recipe("strict", ablation="prob")


@pytest.mark.parametrize(
    ("recipe", "mlms", "classes", "scope"),
    [
        ("paper-v2", PAPER_MLMS, NOUN_VERB_ADJECTIVE, "class"),
        ("strict", PAPER_MLMS, NOUN_VERB_ADJECTIVE, "class"),
        ("paper-v1", PAPER_MLMS, NOUN_VERB_ADJECTIVE, "problem"),
        ("poster", ("google-bert/bert-base-cased", "FacebookAI/roberta-base"),
         (*NOUN_VERB_ADJECTIVE, "adverb"), "word"),
        ("demo", (BUNDLED_MLM,), NOUN_VERB_ADJECTIVE, "class"),
    ],
)  # fmt: skip
def test_recipes_hold_what_was_decided(
    recipe: str, mlms: tuple[str, ...], classes: tuple[str, ...], scope: str
) -> None:
    """MLMs (D12), classes (D11), eligibility (D9) and sampling (D10) of each recipe."""
    config = Config.from_recipe(recipe)
    assert (config.recipe, config.mlms, config.word_classes) == (recipe, mlms, classes)
    assert (config.min_replacements_scope, config.min_replacements) == (scope, 20)
    assert (config.subsamples, config.variants_per_class) == (10, 20)
    assert (config.suggestions_per_occurrence, config.masking) == (200, "single")
    assert (config.probability_filter, config.class_filter) == (True, True)
    assert (config.tag_match, config.combine, config.scramble) == ("coarse", "intersection", False)
    assert config.ablation is None


def test_the_bundled_ablations() -> None:
    """The ablations are the six of the paper's appendix."""
    names = sorted(path.stem for path in bundled_path("recipes/ablations").glob("*.toml"))
    assert names == ["none", "paper", "pos", "prob", "scrambled", "union"]


@pytest.mark.parametrize("recipe", ["demo", "paper-v1", "paper-v2", "poster"])
@pytest.mark.parametrize(
    ("ablation", "changed"),
    [
        ("union", {"combine": "union"}),
        ("pos", {"probability_filter": False}),
        ("prob", {"class_filter": False}),
        ("none", {"probability_filter": False, "class_filter": False}),
        ("scrambled", {"scramble": True}),
        ("paper", {}),
    ],
)
def test_an_ablation_changes_one_thing(recipe: str, ablation: str, changed: dict[str, Any]) -> None:
    config = Config.from_recipe(recipe, ablation=ablation)
    expected = dataclasses.replace(Config.from_recipe(recipe), ablation=ablation, **changed)
    assert config == expected


def test_settings_go_before_the_ablation_before_the_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('combine = "union"\nprobability_filter = true\nmin_replacements = 3\n')
    plain = Config.from_recipe(str(recipe))
    assert (plain.recipe, plain.combine, plain.min_replacements) == ("mine", "union", 3)
    ablated = Config.from_recipe(str(recipe), ablation="pos")
    assert (ablated.probability_filter, ablated.combine) == (False, "union")
    mine = Config.from_recipe(
        str(recipe), ablation="pos", probability_filter=True, min_replacements=5
    )
    assert (mine.probability_filter, mine.min_replacements) == (True, 5)
    assert (mine.ablation, mine.combine) == ("pos", "union")


# No surrogates, which files cannot hold.
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_COUNT = st.integers(1, 10**6)
_SETTINGS = st.fixed_dictionaries(
    {"source": st.just("mine")},
    optional={
        "recipe": _TEXT,
        "data": _TEXT.filter(bool),
        "run": _TEXT,
        "label_column": _TEXT,
        "label_map": st.dictionaries(_TEXT, st.sampled_from([*LABELS, ""]), max_size=3),
        "limit": _COUNT,
        "mlms": st.lists(_TEXT, max_size=3).map(tuple),
        "word_classes": st.lists(
            st.sampled_from(WORD_CLASSES), min_size=1, max_size=4, unique=True
        ).map(tuple),
        "probability_filter": st.booleans(),
        "scramble": st.booleans(),
        "min_replacements_scope": st.sampled_from(["class", "problem", "word"]),
        "subsamples": _COUNT,
        "families": st.just("inflect"),
        "min_log_odds": st.floats(0.5, 9),
        "same_number": st.booleans(),
        "without_mlms": st.lists(_TEXT, max_size=2).map(tuple),
        "rng_seed": st.integers(-(2**63), 2**63 - 1),
        "tagger": _TEXT,
    },
)


@given(_SETTINGS)
def test_toml_round_trip(settings: dict[str, Any]) -> None:
    config = Config(**settings)
    assert from_mapping(Config, tomllib.loads(config.to_toml())) == config


def test_columns_are_those_that_the_machine_can_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are recorded, so that all machines make the same; unknown ones are left out."""
    both = Config()
    assert both.optional_columns == both.with_columns == ("mean_rank", "quality")
    shuffled = both.overlaid("scrambled", {})
    assert shuffled.optional_columns == shuffled.with_columns == ()
    assert "with_columns" not in shuffled.output_settings()
    with pytest.raises(ValueError, match="as they are of words, got quality; leave out"):
        require_columns(shuffled, ["quality"])
    assert Config(scramble=True, min_quality=0.5).optional_columns == ("mean_rank", "quality")
    monkeypatch.setattr("generation.config.find_spec", lambda name: None)
    assert Config().optional_columns == ("mean_rank",)
    assert Config(with_columns=()).optional_columns == ()
    assert from_mapping(Config, tomllib.loads(both.to_toml())) == both


MACHINE = {
    "data": "elsewhere.jsonl", "mlms": ("other",), "device": "cuda",
    "dtype": "bfloat16", "batch_tokens": 99, "unpadded": True, "workers": 4, "ask_all": True,
    "tagger": "en_core_web_lg", "store": "there", "run": "runs/other",
}  # fmt: skip
"""Settings of the machine, with values that are not the defaults."""


def test_every_setting_is_of_the_machine_or_decides() -> None:
    decisive = to_mapping(Config(), affects_output=True).keys()
    later = {field.name for field, one in declared_settings(Config).items()
             if one.omit_if_default and one.affects_output}  # fmt: skip
    fields = {field.name for field in dataclasses.fields(Config)}
    assert fields == decisive | later | set(MACHINE)
    assert not (decisive | later) & set(MACHINE)
    assert Config(source="snli", **MACHINE).output_settings() == Config().output_settings()


def test_every_reason_says_what_it_means() -> None:
    assert all(re.fullmatch("[a-z]+(_[a-z]+)*", reason) for reason in Reason)
    assert len({reason.sentence for reason in Reason}) == len({*Reason}) == len(REASONS)
    for reasons, name in ((Reason, "README.md"), (ParaphraseReason, "paraphrases/README.md")):
        page = Path(generation.__file__).parent / name
        text = for_site(page.read_text("utf-8"), page)
        rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
        listed = [(str(reason), reason.step, reason.sentence) for reason in reasons]
        assert [row for row in rows if row in listed] == listed
    for step in ("candidates", "asking", "one text", "all texts", "context", "signals"):
        functions = [reason.drops for reason in Reason.of_steps(step)]
        assert len({*functions} - {Reason.TOO_FEW.drops}) == len(functions) > 0


@st.composite
def texts_with_spans(draw: st.DrawFn) -> tuple[str, list[Span]]:
    """Draw a text with sorted spans that do not overlap, some adjacent, some empty."""
    text = draw(st.text(max_size=30))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    spans = [(a, b) for a, b in pairwise(cuts) if draw(st.booleans())]
    return text, spans


@given(texts_with_spans(), st.text(max_size=6))
def test_substitute_against_slices_from_the_right(case: tuple[str, list[Span]], word: str) -> None:
    text, spans = case
    expected = text
    for start, end in reversed(spans):
        expected = expected[:start] + word + expected[end:]
    new, new_spans = substitute(text, spans, word)
    assert new == expected
    assert [new[start:end] for start, end in new_spans] == [word] * len(spans)
    assert all(end - start == len(word) for start, end in new_spans)
    assert list(new_spans) == sorted(new_spans)


SEEDS = {
    seed.seed_id: seed
    for seed in (
        Seed(seed_id="snli:2", source="snli", texts=("A girl sees a girl.", "A girl runs."),
            label="contradiction", annotator_labels=("contradiction", "neutral")),
        Seed(seed_id="snli:10", source="snli", texts=("Small dogs bark.", "They are Small dogs."),
            label="entailment"),
    )
}  # fmt: skip

SPANS: dict[tuple[str, str], tuple[list[Span], list[Span]]] = {
    ("snli:2", "girl"): ([(2, 6), (14, 18)], [(2, 6)]),
    ("snli:10", "dogs"): ([(6, 10)], [(15, 19)]),
}


def variant(
    seed_id: str, word: str, text: str, subsamples: tuple[int, ...], **more: Any
) -> Variant:
    settings: dict[str, Any] = {
        "premise_mlms": ("b",), "hypothesis_mlms": ("a", "b"), "log_odds": 0.5, **more,
    }  # fmt: skip
    return Variant(
        Replacement(
            seed_id=seed_id, source="snli", word=word, word_class="noun", replacement=text,
            **settings,
        ),
        subsamples,
    )  # fmt: skip


VARIANTS = [
    variant("snli:2", "girl", "woman", (0, 3)),
    variant("snli:2", "girl", "boy", (1,), premise_mlms=("c",), hypothesis_mlms=()),
    variant("snli:10", "dogs", "cats", (2,)),
]


def variant_rows(
    variants: Sequence[Variant],
    seeds: Mapping[str, Seed],
    spans: Mapping[tuple[str, str], tuple[Sequence[Span], Sequence[Span]]],
) -> pa.Table:
    edits = [
        [(of_text, item.replacement.replacement) for of_text in spans[key]]
        for item in variants
        for key in [(item.replacement.seed_id, item.replacement.word)]
    ]
    return variant_columns(variant_table(variants), seeds, edits)


def test_variant_rows() -> None:
    """One row per variant: texts with the word replaced, its spans, and its masked LMs."""
    table = variant_rows(VARIANTS, SEEDS, SPANS)
    assert table.schema == arrow_schema()
    rows = table.to_pylist()
    assert [row["variant_id"] for row in rows] == [
        "snli:10/noun/dogs/cats", "snli:2/noun/girl/boy", "snli:2/noun/girl/woman",
    ]  # fmt: skip
    assert rows[2] == {
        "variant_id": "snli:2/noun/girl/woman",
        "seed_id": "snli:2",
        "source": "snli",
        "premise": "A woman sees a woman.",
        "hypothesis": "A woman runs.",
        "label": 2,
        "word_class": "noun",
        "original": "girl",
        "replacement": "woman",
        "premise_spans": [[2, 7], [15, 20]],
        "hypothesis_spans": [[2, 7]],
        "mlms": ["a", "b"],
        "premise_mlms": ["b"],
        "hypothesis_mlms": ["a", "b"],
        "log_odds": 0.5,
        **dict.fromkeys(NLI.signals),
        "mlm_count": 2,
        "subsamples": [0, 3],
        "annotator_labels": [2, 1],
    }
    assert (rows[1]["mlms"], rows[1]["hypothesis_mlms"]) == (["c"], [])
    assert rows[0]["hypothesis"] == "They are Small cats."
