import logging
from pathlib import Path
from typing import Any

import pytest
from helpers.dataset_files import write_predictions
from helpers.report_data import problems

from merge_metric.report.evidence import Evidence, gather_evidence
from merge_metric.report.write import draw_figures
from merge_metric.score import score_file


def test_figures_are_those_of_score(evidence: Evidence, case: Any) -> None:
    results = score_file(case.files[0], case.folder, n_bootstrap=40)
    for configuration in evidence.configurations:
        assert configuration.results[0] == results[configuration.name]
    assert {c.name for c in evidence.configurations} == set(results)


def test_files_of_one_name_are_one_model(evidence: Evidence, case: Any) -> None:
    assert evidence.names == ["weak", "middle", "strong"]
    assert evidence.models[2].files == ("strong-0.parquet", "strong-1.parquet")
    for configuration, file in zip(("snli", "mnli-m"), case.files[2:], strict=True):
        (of,) = (c for c in evidence.configurations if c.name == configuration)
        assert of.results[2] == score_file(file, case.folder, n_bootstrap=40)[configuration]


def test_seeds_may_stand_in_several_files(case: Any, tmp_path: Path) -> None:
    rows = case.mnli.predictions(0.5, "x")
    seeds = [row for row in rows if row["variant_id"] == row["seed_id"]]
    whole = write_predictions(tmp_path / "whole.parquet", rows)
    some = write_predictions(tmp_path / "some.parquet", seeds[:2])
    alone = gather_evidence([f"m={whole}"], case.folder, n_bootstrap=0)
    both = gather_evidence([f"m={whole}", f"m={some}"], case.folder, n_bootstrap=0)
    assert both.models[0].files == ("whole.parquet", "some.parquet")
    assert both.models[0].n_predictions == alone.models[0].n_predictions == len(rows)
    for name in ("own", "answers"):
        (of_both, of_one) = (getattr(of.sources[0], name) for of in (both, alone))
        assert (of_both == of_one).all()
    changed = {**seeds[0], "prediction": (seeds[0]["prediction"] + 1) % 3}
    other = write_predictions(tmp_path / "other.parquet", [changed])
    told = r"to answer different problems, .*of the model m, got several answers to 1 prob"
    with pytest.raises(ValueError, match=told):
        gather_evidence([f"m={whole}", f"m={other}"], case.folder, n_bootstrap=0)


def test_names(case: Any, tmp_path: Path) -> None:
    """NAME= precedes the name in the metadata, which precedes the file's name."""
    rows = case.mnli.predictions(0.5, "x")
    named = write_predictions(tmp_path / "run.parquet", rows, {"name": "some/model"})
    bare = write_predictions(tmp_path / "bare.v2.parquet", rows)
    files = [str(named), f"mine={named}", str(bare)]
    evidence = gather_evidence(files, case.folder, n_bootstrap=0)
    assert evidence.names == ["some/model", "mine", "bare.v2"]
    assert evidence.title == "3 models on mnli-m"
    assert gather_evidence(files[:1], case.folder, n_bootstrap=0).title == "some/model on mnli-m"


def test_metadata_that_is_no_description(
    case: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write_predictions(tmp_path / "x.parquet", case.mnli.predictions(1, "x"), ["no"])
    evidence = gather_evidence([str(file)], case.folder, n_bootstrap=0)
    assert evidence.names == ["x"]
    assert evidence.models[0].description == {}
    assert "expected a JSON object in its metadata 'merge_nli'" in caplog.text


def test_a_model_without_a_configuration(
    case: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write_predictions(tmp_path / "part.parquet", case.mnli.predictions(1, "x"))
    with caplog.at_level(logging.WARNING):
        evidence = gather_evidence([case.files[0], str(file)], case.folder, n_bootstrap=0)
    has = {c.name: [result is not None for result in c.results] for c in evidence.configurations}
    assert has == {"mnli-m": [True, True], "snli": [True, False]}
    assert "part has no complete predictions for snli" in caplog.text
    assert "matching" in dict(draw_figures(evidence))


def test_other_dataset_folders_are_refused(case: Any, tmp_path: Path) -> None:
    other = problems(3, "anli").write(tmp_path / "other")
    with pytest.raises(ValueError, match="a report is about one dataset folder"):
        gather_evidence([f"{case.files[0]}@{other}"], case.folder)
