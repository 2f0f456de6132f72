"""Two builds are compared, against sets taken row by row."""

from pathlib import Path

import pytest
from helpers.dataset_files import read_rows

from generation import Config, build, generate
from generation.run_folder import RunFolder
from generation.run_summary import difference

KEY = ("seed_id", "word_class", "word", "replacement")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run on bundled problems, with further builds: one by equal tags, one of the union."""
    path = tmp_path_factory.mktemp("run") / "base"
    folder = generate(Config.from_recipe("demo", run=str(path), limit=12))
    build(path, into="fine", tag_match="fine", min_replacements=15)
    build(path, ablation="union")
    return folder


def replacements(folder: Path) -> set[tuple[str, ...]]:
    return {tuple(row[n] for n in KEY) for row in read_rows(folder / "replacements.parquet")}


def eligible(folder: Path, *names: str) -> set[tuple[str, ...]]:
    return {tuple(row[n] for n in names) for row in read_rows(folder / "variants.parquet")}


@pytest.mark.slow(but=("union",))
@pytest.mark.parametrize("name", ["fine", "union"])
def test_counts_are_those_of_sets(run: RunFolder, name: str) -> None:
    first, second = run.path, run.path / name
    found = difference(first, second)

    def counts(a: set[tuple[str, ...]], b: set[tuple[str, ...]]) -> dict[str, int]:
        return {"first": len(a - b), "both": len(a & b), "second": len(b - a)}

    every = replacements(first), replacements(second)
    assert found.replacements["all"] == counts(*every)
    assert found.seeds["all"] == counts(eligible(first, "seed_id"), eligible(second, "seed_id"))
    pairs = [eligible(folder, "seed_id", "word_class") for folder in (first, second)]
    for word_class in ("noun", "verb"):
        of_class = [{row for row in rows if row[1] == word_class} for rows in every]
        assert found.replacements[word_class] == counts(*of_class)
        of_class = [{row for row in rows if row[1] == word_class} for rows in pairs]
        if word_class in found.seeds or any(of_class):
            assert found.seeds[word_class] == counts(*of_class)
    assert found.replacements["all"]["first"] + found.replacements["all"]["second"] > 0


def test_examples_are_variants_that_the_other_cannot_have(run: RunFolder) -> None:
    found = difference(run.path, run.path / "fine", examples=5)
    examples, none = found.examples
    assert none == []
    assert len(examples) == 5
    assert found.examples == difference(run.path, run.path / "fine", examples=5).examples
    others = replacements(run.path / "fine")
    for example in examples:
        key = tuple(example[n] for n in ("seed_id", "word_class", "original", "replacement"))
        assert key not in others
        mark = f"[{example['original']} → {example['replacement']}]"
        assert mark in example["premise"]
        assert mark in example["hypothesis"]
    more = difference(run.path, run.path / "fine", examples=5, rng_seed=1).examples[0]
    assert {e["variant_id"] for e in more} != {e["variant_id"] for e in examples}


def test_a_build_beside_its_run_leaves_the_run_as_it_was(run: RunFolder) -> None:
    assert RunFolder(run.path / "fine").manifest.is_file()
    assert Config.read(run.path / "fine" / "config.toml").tag_match == "fine"
    assert Config.read(run.config).tag_match == "coarse"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("../elsewhere", "letters, digits, - and _, got '../elsewhere'"),
        (".hidden", "letters, digits, - and _, got '.hidden'"),
        ("suggestions",
         "of your own for the build, got 'suggestions', which is that of a file or folder"),
        ("tasks", "of your own for the build, got 'tasks', which is that of a file or folder"),
    ],
)  # fmt: skip
def test_a_build_stays_inside_its_run(run: RunFolder, name: str, expected: str) -> None:
    with pytest.raises(ValueError, match=f"into: expected a name .*{expected}"):
        build(run.path, into=name)
