import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest

from merge_dataset.export import export_dataset
from merge_dataset.layout import all_configurations, as_dataset, require_dataset
from merge_dataset.merge_nli import MergeNli, builder
from merge_dataset.register import register_dataset
from merge_dataset.schema import content_hash, find_files

Python = Callable[[str, Path], Any]

NOUNS = [
    "snli:1/noun/dog/cat", "snli:1/noun/girl/boy", "snli:1/noun/girl/man", "snli:1/noun/girl/woman",
    "snli:2/noun/girl/boy", "snli:2/noun/girl/woman",
]  # fmt: skip

LOAD = """
def rows(*path, **options):
    data = datasets.load_dataset(*path, **options)
    return {split: list(data[split]) for split in data}
"""


def stored(*files: Path) -> list[dict[str, Any]]:
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


@pytest.mark.slow
def test_by_name_from_the_working_directory(dataset: Path, python: Python) -> None:
    loaded = python(
        LOAD
        + """
data = datasets.load_dataset("merge-nli", "snli_nouns")
print(json.dumps({
    "nouns": rows("merge-nli", "snli_nouns"),
    "streamed": rows("merge-nli", "snli_nouns", streaming=True),
    "all": rows("merge-nli", "snli"),
    "labels": data["variants"].features["label"].names,
    "votes": data["seeds"].features["annotator_labels"].feature.names,
    "same features": data["seeds"].features == data["variants"].features,
    "names": datasets.get_dataset_config_names("merge-nli"),
}))""",
        dataset.parent,
    )
    folder = dataset / "snli"
    assert (
        loaded["nouns"]
        == loaded["streamed"]
        == {
            "seeds": stored(folder / "nouns/seeds.parquet"),
            "variants": stored(folder / "nouns/variants.parquet"),
        }
    )
    classes = ("nouns", "verbs", "adjectives")
    assert loaded["all"] == {
        "seeds": stored(folder / "seeds.parquet"),
        "variants": stored(*(folder / name / "variants.parquet" for name in classes)),
    }
    assert [row["variant_id"] for row in loaded["nouns"]["variants"]] == NOUNS
    assert loaded["labels"] == loaded["votes"] == ["entailment", "neutral", "contradiction"]
    assert loaded["same features"]
    assert loaded["names"] == ["snli", "snli_nouns", "snli_verbs", "snli_adjectives"]


ANYWHERE = """
data = datasets.load_dataset("merge-nli", "snli_nouns")
print(json.dumps([list(data["variants"]["log_odds"]), data["seeds"].features["label"].names,
                  list(datasets.load_dataset("merge-nli", "anli-r1")["variants"]["source"])]))"""


@pytest.mark.slow
def test_registered_by_name_from_anywhere(
    make_run: Callable[..., Path],
    dataset: Path,
    python: Python,
    edit: Callable[..., None],
    tmp_path: Path,
) -> None:
    """Another folder of the name is refused, or replaces it and loads."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    cache = tmp_path / "hf" / "datasets"
    own = make_run("own", "anli-r1", "3")
    export_dataset(own, dataset)
    names = ["anli-r1", "anli-r1_verbs", "snli", "snli_nouns", "snli_verbs", "snli_adjectives"]
    assert register_dataset(dataset, cache) == names
    labels = ["entailment", "neutral", "contradiction"]
    first = [[0.25, 0.5, 0.75, 0.25, 0.5, 0.25], labels, ["anli-r1"]]
    assert python(ANYWHERE, elsewhere) == first

    edit(tmp_path / "run/variants.parquet", lambda rows: [r.update(log_odds=8.0) for r in rows])
    changed = tmp_path / "changed" / "merge-nli"
    export_dataset(tmp_path / "run", changed)
    export_dataset(own, changed)
    with pytest.raises(FileExistsError, match=f"'merge-nli', by which {dataset} is registered"):
        register_dataset(changed, cache)
    assert python(ANYWHERE, elsewhere) == first
    register_dataset(changed, cache, overwrite=True)
    assert python(ANYWHERE, elsewhere) == [[8.0] * 6, labels, ["anli-r1"]]


@pytest.mark.slow
def test_folder_exported_anew_loads_anew(
    dataset: Path, python: Python, edit: Callable[..., None], tmp_path: Path
) -> None:
    code = """
data = datasets.load_dataset("merge-nli", "snli_nouns", split="variants")
print(json.dumps(list(data["log_odds"])))"""
    before = python(code, dataset.parent)
    sizes = {path: path.stat().st_size for path in dataset.rglob("*.parquet")}
    edit(
        tmp_path / "run/variants.parquet",
        lambda rows: [r.update(log_odds=r["log_odds"] + 8) for r in rows],
    )
    export_dataset(tmp_path / "run", dataset)
    assert {path: path.stat().st_size for path in dataset.rglob("*.parquet")} == sizes
    assert python(code, dataset.parent) == [value + 8 for value in before]


def test_registering_again_prepares_nothing(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = register_dataset(dataset, tmp_path)
    monkeypatch.setattr(MergeNli, "_generate_tables", None)
    assert register_dataset(dataset, tmp_path) == names


@pytest.mark.slow
def test_a_name_is_one_folder(
    dataset: Path,
    make_run: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Folders keep their own names; one made anew replaces itself, which is told."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    other, copy = tmp_path / "b" / "MyOwn", tmp_path / "c" / "merge-nli"
    export_dataset(make_run("later", pairs="2"), other)
    shutil.copytree(dataset, copy)
    dataset = dataset.rename(tmp_path / "first")
    for folder, name in ((dataset, None), (other, None), (dataset, "again"), (copy, "first")):
        register_dataset(folder, name=name)
    result = {name: as_dataset(name) for name in ("first", "MyOwn", "again")}
    assert result == {"first": copy, "MyOwn": other, "again": dataset}
    loaded = {name: len(datasets.load_dataset(name, "snli")["seeds"]) for name in result}
    assert loaded == {"first": 3, "MyOwn": 1, "again": 3}
    assert as_dataset("c/merge-nli") == Path("c/merge-nli")
    assert "replaces" not in caplog.text

    shutil.rmtree(dataset)
    with pytest.raises(NotADirectoryError, match=f"{dataset}: expected a dataset folder or a reg"):
        require_dataset(as_dataset("again"))
    shutil.copytree(other, dataset)
    register_dataset(dataset, name="again")
    assert f"again: replaces what was registered by this name from {dataset}" in caplog.text
    entries = [path.parts[-4] for path in tmp_path.glob("cache/again/*/*/*/dataset_info.json")]
    assert sorted(entries) == sorted(all_configurations(other))
    with pytest.raises(ValueError, match="expected letters, digits, -, _ and dots, got 'a/b'"):
        register_dataset(other, name="a/b")


def test_killed_preparation_of_other_content_is_tidied(dataset: Path, tmp_path: Path) -> None:
    """Its leftovers would break the fallback to the cache."""
    leftover = tmp_path / "cache/merge-nli/snli/0.0.0/0123456789abcdef.incomplete"
    leftover.mkdir(parents=True)
    register_dataset(dataset, tmp_path / "cache")
    entries = [path.name for path in leftover.parent.iterdir() if path.is_dir()]
    assert entries == [content_hash(dataset, "snli")]


def test_relative_folders_do_not_share_an_entry(
    dataset: Path, make_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_dataset(make_run("later", pairs="2"), tmp_path / "b" / "merge-nli")
    result = []
    for place in (dataset.parent, tmp_path / "b"):
        monkeypatch.chdir(place)
        one = MergeNli(config_name="snli", data_dir="merge-nli", cache_dir=str(tmp_path / "cache"))
        one.download_and_prepare()
        result.append(one.as_dataset(split="seeds")["seed_id"][:])
    assert result == [["snli:1", "snli:2", "snli:3"], ["snli:2"]]


def test_missing_files_are_named(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        MergeNli(config_name="snli_adverbs", data_dir=str(dataset), cache_dir=str(tmp_path))
    assert str(dataset / "snli/adverbs/seeds.parquet") in str(error.value)
    assert "pass data_dir=" in str(error.value)
    without = MergeNli(config_name="snli", base_path=str(tmp_path), cache_dir=str(tmp_path))
    with pytest.raises(FileNotFoundError, match="configuration 'snli', split 'seeds': expected"):
        without.download_and_prepare()
    (dataset / "snli/nouns/variants.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"split 'variants'.*nouns/variants.parquet, found"):
        builder(dataset, "snli_nouns")


def test_files_may_lie_behind_a_url(dataset: Path) -> None:
    files = find_files(f"file://{dataset}", "snli_nouns")
    assert files["seeds"] == [f"file://{dataset}/snli/nouns/seeds.parquet"]
