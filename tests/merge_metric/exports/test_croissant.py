"""The metadata name every file and column; tests/harnesses loads them in mlcroissant."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.dataset_files import run_manifest
from helpers.subsampled_folder import write_folder

from merge_dataset.checks import check_dataset
from merge_dataset.files import write_record
from merge_metric.exports.croissant import export_croissant


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "merge-nli")


def read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def test_all_classes_are_a_set_of_files(folder: Path) -> None:
    metadata = read(export_croissant(folder, config=["snli"]).out)
    (files,) = (each for each in metadata["distribution"] if each["@type"] == "cr:FileSet")
    assert files["includes"] == ["snli/nouns/variants.parquet", "snli/verbs/variants.parquet"]
    records = (each for each in metadata["recordSet"] if each["@id"] != "labels")
    sources = {each["@id"]: each["field"][0]["source"] for each in records}
    assert sources["snli/variants"]["fileSet"] == {"@id": files["@id"]}
    assert sources["snli/seeds"]["fileObject"] == {"@id": "snli/seeds.parquet"}


def test_responsible_ai(folder: Path) -> None:
    """The fields repeat the card, and the models and data recorded by the run."""
    metadata = read(export_croissant(folder).out)
    assert metadata["conformsTo"][1] == "http://mlcommons.org/croissant/RAI/1.0"
    card = (folder / "README.md").read_text(encoding="utf-8")
    told = " ".join(card.split())
    assert metadata["rai:dataCollection"] in told
    assert metadata["rai:dataCollection"].startswith("Replacements are made by MERE")
    limits = card.partition("## Limits")[2].partition("## ")[0]
    assert len(metadata["rai:dataLimitations"]) == limits.count("\n- ")
    assert all(each in told for each in metadata["rai:dataLimitations"])
    assert "keeps its seed's label" in metadata["rai:dataAnnotationProtocol"][0]
    (bias,) = metadata["rai:dataBiases"]
    assert "social biases included" in bias
    made = run_manifest("snli", mlms=[{"name": "some/mlm", "revision": "abc"}])
    write_record(folder / "snli/provenance.json", {**made, "files": {}})
    full = read(export_croissant(folder, overwrite=True).out)
    assert full["rai:machineAnnotationTools"] == ["some/mlm, revision abc", "en_core_web_sm 3.8.0"]
    assert full["rai:dataCollectionRawData"] == "snli: made up"
    (first, *_) = full["rai:dataPreprocessingProtocol"]
    assert first == "snli: problems 20 read, 0 unlabelled, 20 kept"


def test_version_and_date(folder: Path) -> None:
    assert "version" not in read(export_croissant(folder).out)
    path = export_croissant(folder, version="1.0.0", published="2026-01-31", overwrite=True).out
    metadata = read(path)
    assert (metadata["version"], metadata["datePublished"]) == ("1.0.0", "2026-01-31")


def test_the_folder_stays_a_good_dataset(folder: Path) -> None:
    before = check_dataset(folder)
    export_croissant(folder)
    assert check_dataset(folder) == before
    (folder / "README.md").unlink()
    with pytest.raises(ValueError, match=r"README\.md: expected the card of the dataset, got"):
        export_croissant(folder, overwrite=True)
