import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest
from helpers.bench.made_up_rows import SOURCE, write_made_up_run
from helpers.dataset_files import read_rows

from merge_dataset import files
from merge_dataset.checks import check_dataset
from merge_dataset.export import export_dataset
from merge_dataset.layout import all_configurations, as_dataset, require_dataset, split_files
from merge_dataset.merge_nli import MergeNli, builder
from merge_dataset.register import register_dataset
from merge_dataset.schema import content_hash, find_files
from merge_metric.predict.problems import read_problems

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


SEEDS = 50


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 50 seeds, each with two variants in each of three classes."""
    return write_made_up_run(
        tmp_path_factory.mktemp("run"), range(SEEDS), per_class=2, subsamples=2
    )


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROWS", 10)
    monkeypatch.setattr(files, "FILE_ROWS", 30)


def rows(folder: Path) -> dict[str, list[object]]:
    return {
        f"{config} {split}": [row for name in names for row in read_rows(folder / name)]
        for config in (SOURCE, f"{SOURCE}_verbs")
        for split, names in split_files(folder, config).items()
    }


@pytest.mark.slow
def test_many_files_hold_the_rows_of_one(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    export_dataset(run, tmp_path / "one")
    wanted = rows(tmp_path / "one")
    for name, value in (("ROWS", 10), ("FILE_ROWS", 30)):
        monkeypatch.setattr(files, name, value)
    folder = tmp_path / "merge-nli"
    export_dataset(run, folder)
    assert rows(folder) == wanted
    assert check_dataset(folder) == []
    assert check_dataset(shutil.copytree(folder, tmp_path / "[a]**?" / "d")) == []
    ids = [row["variant_id"] for row in wanted[f"{SOURCE}_verbs variants"]]
    cache = {"cache_dir": str(tmp_path / "cache")}
    by_card = datasets.load_dataset(str(folder), f"{SOURCE}_verbs", split="variants", **cache)
    assert by_card["variant_id"][:] == ids
    built = builder(folder, f"{SOURCE}_verbs", **cache)
    assert isinstance(built, MergeNli)
    built.download_and_prepare()
    assert built.as_dataset(split="variants")["variant_id"][:] == ids


@pytest.mark.usefixtures("small_files")
def test_a_missing_file_is_told(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "merge-nli"
    export_dataset(run, folder)
    (folder / SOURCE / "nouns" / "variants-00001-of-00004.parquet").unlink()
    message = "expected the 4 files .* got 3 files, without .*nouns/variants-00001-of-00004"
    with pytest.raises(FileNotFoundError, match=message):
        split_files(folder, f"{SOURCE}_nouns")
    with pytest.raises(FileNotFoundError, match=message):
        builder(folder, f"{SOURCE}_nouns")
    assert any("without" in problem for problem in check_dataset(folder))


def test_a_recorded_file_that_is_gone(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    export_dataset(run, folder)
    gone = folder / SOURCE / "nouns" / "variants.parquet"
    gone.unlink()
    message = rf"{SOURCE}/nouns/variants.parquet: expected a file, which {SOURCE}/provenance.json"
    with pytest.raises(FileNotFoundError, match=message):
        require_dataset(folder)
    with pytest.raises(FileNotFoundError, match=message):
        read_problems(str(folder))
    assert any(f"{SOURCE}/nouns/variants.parquet" in result for result in check_dataset(folder))
