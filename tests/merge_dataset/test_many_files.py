import shutil
from pathlib import Path

import pytest
from helpers.bench.made_up_rows import SOURCE, write_made_up_run
from helpers.dataset_files import read_rows

from merge_dataset import files
from merge_dataset.checks import check_dataset
from merge_dataset.export import export_dataset
from merge_dataset.layout import require_dataset, split_files
from merge_dataset.merge_nli import MergeNli, builder
from merge_metric.predict.problems import read_problems

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
