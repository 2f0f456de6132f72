"""Asking only questions that matter, against runs that ask everything."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.dataset_files import write_plain
from helpers.kept_answers import keys_in, suggestions_in
from helpers.run_folders import copy_of
from helpers.tiny_models import tiny_model
from hypothesis import given
from hypothesis import strategies as st

from generation import Config, build, generate, suggest
from generation.config import bundled_path
from generation.phases.suggest import decisive_settings, require_asked
from generation.run_counts import count_run
from generation.run_folder import RunFolder
from generation.suggestions.masked_lm import MaskedLM
from generation.suggestions.questions import Questions
from merge_dataset.executors import Distribution
from merge_dataset.files import digest_of_file, read_record

LIMIT = 60
BOTH = ("seeds", "variants")
"""Files that do not depend on which other questions were asked."""


def config_of(run: Path, **settings: Any) -> Config:
    """Settings for the demo's problems, with only the questions that matter."""
    values = {
        "limit": LIMIT, "min_replacements": 40, "ask_all": False,
        "store": str(run.parent / "store"),
    }  # fmt: skip
    return Config.from_recipe("demo", run=str(run), **{**values, **settings})


def dataset_of(run: RunFolder) -> dict[str, str]:
    return {name: digest_of_file(getattr(run, name)) for name in BOTH}


def rows_of(path: Path, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(pq.read_table(path)[name].to_pylist() for name in names), strict=True))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The oracle: a run with every question asked."""
    return generate(config_of(tmp_path_factory.mktemp("runs") / "all", ask_all=True))


@pytest.fixture(scope="module")
def less(everything: RunFolder) -> RunFolder:
    """A run with these settings, with only the questions that matter, in its own store."""
    run = everything.path.with_name("less")
    return generate(config_of(run, store=None))


def test_the_dataset_is_the_same(everything: RunFolder, less: RunFolder) -> None:
    assert dataset_of(less) == dataset_of(everything)
    questions, record = Questions(less.questions), read_record(less.suggested)
    asked = questions.asked.sum()
    assert 0.3 * len(questions) < asked < 0.9 * len(questions)
    assert record["asked"] == {
        "questions": asked,
        "of": len(questions),
        "for": decisive_settings(Config.read(less.config)),
    }
    assert read_record(less.manifest)["asked"] == record["asked"]
    assert not Questions(everything.questions).selection.exists()
    assert not {"asked"} & (
        read_record(everything.suggested).keys() | read_record(everything.manifest).keys()
    )
    (store,) = less.store.iterdir()
    assert len(keys_in(store)) == asked


def test_what_was_left_out_is_on_record(everything: RunFolder, less: RunFolder) -> None:
    names = ("seed_id", "word_class", "word", "reason", "replacements")
    before, after = (set(rows_of(run.exclusions, *names)) for run in (everything, less))
    left_out = {row[:3] for row in after if row[3] == "out_of_reach"}
    classes = {row[:2] for row in left_out}
    assert len(classes) > 10
    assert {row[4] for row in after if row[3] == "out_of_reach"} == {None}
    kept = set(rows_of(less.variants, "seed_id", "word_class"))
    assert not classes & kept
    # The remaining questions have the same answers.
    assert {row for row in after if row[:2] not in classes} == {
        row for row in before if row[:2] not in classes
    }
    keys = ("seed_id", "word_class", "word", "replacement", "log_odds")
    assert rows_of(less.replacements, *keys) == [
        row for row in rows_of(everything.replacements, *keys) if row[:2] not in classes
    ]
    counted = Counter(row[:2] for row in rows_of(everything.replacements, *keys))
    assert max(counted[key] for key in classes) < 40


@pytest.mark.slow
@pytest.mark.parametrize("ablation", ["union", "none", "scrambled"])
def test_ablations_need_no_more(ablation: str, everything: RunFolder, less: RunFolder) -> None:
    built = [build(run.path, ablation=ablation, overwrite=True) for run in (everything, less)]
    assert dataset_of(built[0]) == dataset_of(built[1])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"min_replacements": 5}, "min_replacements = 40; expected no wider settings, got "),
        ({"combine": "union"}, "combine = intersection;"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wider_settings_are_refused_with_the_remedy(
    settings: dict[str, Any], said: str, less: RunFolder
) -> None:
    with pytest.raises(ValueError, match="--ask-all") as refused:
        build(less.path, into="wide", **settings)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (less.path / "wide" / "variants.parquet").exists()


def test_counts_of_all_suggestions_are_refused(less: RunFolder) -> None:
    """Table 5 needs all suggestions."""
    with pytest.raises(ValueError, match=r"expected answers to all .* --ask-all"):
        count_run(less.path)


@pytest.mark.slow
def test_ask_all_asks_the_rest(
    everything: RunFolder, less: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, scored = copy_of(less, tmp_path / "run"), []
    answer = MaskedLM.answer

    def counted(self: MaskedLM, queries: Any, **options: Any) -> Any:
        scored.append(len(queries))
        return answer(self, queries, **options)

    monkeypatch.setattr(MaskedLM, "answer", counted)
    suggest(config_of(run.path, store=None, ask_all=True))
    assert sum(scored) == (~Questions(less.questions).asked).sum()
    assert run.manifest.is_file()
    wide = [build(item.path, into="wide", min_replacements=5) for item in (everything, run)]
    assert dataset_of(wide[0]) == dataset_of(wide[1])
    assert count_run(run.path)["filters"] == count_run(everything.path)["filters"]


SETTINGS: tuple[dict[str, Any], ...] = (
    {"min_replacements": 1},
    {"min_replacements": 60},
    {"min_replacements_scope": "problem"},
    {"min_replacements_scope": "word", "min_replacements": 8},
    {"tag_match": "fine", "min_replacements": 8},
    {"class_filter": False, "min_replacements": 40},
    {"probability_filter": False, "min_replacements": 60},
    {"masking": "joint", "word_classes": ("noun", "adverb")},
    {"families": "inflect", "min_replacements": 8},
    {"combine": "union"},
)


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_any_settings_make_the_same_dataset(
    settings: dict[str, Any], everything: RunFolder, tmp_path: Path
) -> None:
    shared = {**settings, "store": str(everything.path.parent / "store")}
    runs = [
        generate(config_of(tmp_path / name, ask_all=ask_all, **shared))
        for name, ask_all in (("all", True), ("less", False))
    ]
    assert dataset_of(runs[0]) == dataset_of(runs[1])
    can_matter = settings.get("combine") == "union"
    assert Questions(runs[1].questions).selection.exists() == (not can_matter)


@pytest.mark.slow
@pytest.mark.parametrize("texts", [2, 3])
def test_several_masked_lms_and_texts(texts: int, tmp_path: Path) -> None:
    lines = bundled_path("demo/problems.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    fields = ("premise", "hypothesis", "context")[:texts]
    named = [
        {"id": str(n), "label": "a", "premise": row["sentence1"], "hypothesis": row["sentence2"],
         "context": rows[(n + 1) % 40]["sentence1"]}
        for n, row in enumerate(rows[:40])
    ]  # fmt: skip
    data = write_plain(tmp_path / "data.jsonl", named)
    made = []
    for name, ask_all in (("all", True), ("less", False)):
        config = Config(
            source="mine",
            data=str(data),
            fields=fields,
            labels=("a", "b"),
            label_column="label",
            id_column="id",
            shared_fields=fields[:2],
            mlms=tuple(str(tiny_model(kind)) for kind in ("bert-uncased", "roberta", "albert")),
            suggestions_per_occurrence=20,
            min_replacements=6,
            subsamples=2,
            ask_all=ask_all,
            store=str(tmp_path / "store"),
            run=str(tmp_path / name),
        )
        made.append(generate(config))
    assert dataset_of(made[0]) == dataset_of(made[1])
    assert Questions(made[1].questions).selection.exists()


def test_what_was_asked_is_not_changed_without_a_word(less: RunFolder, tmp_path: Path) -> None:
    run = copy_of(less, tmp_path / "run")
    questions = Questions(run.questions)
    rows = questions.asked
    rows[np.flatnonzero(~rows)[0]] = True
    questions.select(rows)
    with pytest.raises(ValueError, match=r"asked\.bin as recorded in suggested\.json"):
        build(run.path)
    questions.selection.unlink()
    with pytest.raises(ValueError, match=r"asked\.bin"):
        build(run.path)


@pytest.mark.slow
def test_tasks_ask_the_same(less: RunFolder, tmp_path: Path) -> None:
    config = config_of(tmp_path / "run", store=None)
    run = suggest(config, distribution=Distribution(tasks=2, workers=2))
    assert suggestions_in(run.store) == suggestions_in(less.store)
    asked = [Questions(folder.questions).asked.tolist() for folder in (run, less)]
    assert asked[0] == asked[1]


@given(
    st.integers(1, 40), st.integers(1, 40),
    st.sampled_from(["problem", "class", "word"]), st.sampled_from(["problem", "class", "word"]),
)  # fmt: skip
def test_wider_by_threshold_and_scope(there: int, here: int, scope: str, other: str) -> None:
    counts = {("s", "noun", "a"): 7, ("s", "noun", "b"): 13, ("s", "verb", "c"): 20}

    def eligible(minimum: int, scope: str) -> set[Any]:
        size = ("problem", "class", "word").index(scope) + 1
        sums: Counter[Any] = Counter()
        for key, count in counts.items():
            sums[key[:size]] += count
        return {key for key in counts if sums[key[:size]] >= minimum}

    asked_for = decisive_settings(Config(min_replacements=there, min_replacements_scope=scope))
    wanted = Config(min_replacements=here, min_replacements_scope=other)
    try:
        require_asked(Path(), wanted, {"questions": 2, "asked": {"questions": 1, "for": asked_for}})
    except ValueError:
        assert (there, scope) != (here, other)
    else:
        assert eligible(here, other) <= eligible(there, scope)
