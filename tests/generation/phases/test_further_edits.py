import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import refused
from helpers.dataset_files import read_rows as rows
from helpers.reference import tag, word_class

from generation import build, suggest
from generation.config import Config
from generation.records import REPLACEMENT_KEY
from generation.run_folder import RunFolder
from generation.run_summary import summarise
from merge_dataset.checks import check_dataset
from merge_dataset.export import export_dataset
from merge_dataset.files import read_json

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
