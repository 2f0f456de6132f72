import json
import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import run
from helpers.dataset_files import write_predictions
from helpers.report_data import problems

from merge_metric.report.evidence import Evidence, gather_evidence
from merge_metric.report.sections import comparison
from merge_metric.report.write import comparison_rows, draw_figures, render_html, render_json
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


@pytest.fixture(scope="module")
def many(case: Any, tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Seven models on mnli-m, of which the last two have equal answers."""
    folder = tmp_path_factory.mktemp("many")
    abilities = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.8]
    files = [
        write_predictions(folder / f"m{n}.parquet", case.mnli.predictions(ability, f"m{n}"))
        for n, ability in enumerate(abilities)
    ]
    return gather_evidence([*map(str, files)], case.folder, n_bootstrap=20)


def test_the_same_as_the_command(case: Any, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    options = ["--dataset", str(case.folder), "--n-bootstrap", "30", "--rng-seed", "5"]
    run("report", *case.files, *options, "--out", out)
    compared = run("compare", *case.files, *options, "--format", "json")
    expected = {item["config"]: item for item in json.loads(compared.stdout)["comparisons"]}
    configurations = json.loads(out.read_text(encoding="utf-8"))["configurations"]
    assert {c["name"]: c["comparison"] for c in configurations} == expected
    assert set(expected) == {"mnli-m", "snli"}
    for configuration in configurations:
        (row,) = (
            row for row in configuration["comparison"]["models"]["rows"] if row["model"] == "weak"
        )
        result = configuration["results"]["weak"]
        assert row["seed_variant_accuracy_ci"] == result["seed_variant_accuracy_ci"]


def test_a_model_is_shown_beside_those_it_is_not_worse_than(many: Evidence) -> None:
    compared = many.configurations[0].comparison
    assert compared is not None
    rows = comparison_rows(compared)
    order = [row["model"] for row, _ in rows]
    values = [row["seed_variant_accuracy"] for row, _ in rows]
    assert values == sorted(values, reverse=True)
    for place, (_, pairs) in enumerate(rows):
        assert [pair is None for pair in pairs] == [n <= place for n in range(1, 7)]
        for other, pair in zip(order[1:], pairs, strict=True):
            if pair:
                assert (pair["a"], pair["b"]) == (order[place], other)
                assert pair["seed_variant_accuracy"] >= 0


def test_of_many_models_tables_show_neighbours(many: Evidence) -> None:
    """Paper shows six of 21 pairs, corrected for all; the page has all, folded, as has JSON."""
    compared = many.configurations[0].comparison
    assert compared is not None
    ranking, pairs = comparison(many.configurations[0])
    order = [row["model"] for row in ranking.rows]
    assert [(row["a"], row["b"]) for row in pairs.rows] == list(pairwise(order))
    assert all(row in compared.pairs.rows for row in pairs.rows)
    assert pairs.notes[-1] == "Shown are 6 of 21 pairs."
    assert "over all 21 pairs" in " ".join(pairs.notes)
    html = render_html(many)
    folded = html.partition("All differences: 21 pairs")
    assert folded[0].endswith('<details class="table"><summary>')
    body = folded[2].partition("</table>")[0]
    assert body.count("<tr>") == 1 + 21
    (configuration,) = json.loads(render_json(many))["configurations"]
    assert len(configuration["comparison"]["pairs"]["rows"]) == 21


def test_no_seed_in_common(case: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seeds = sorted(row["seed_id"] for row in case.mnli.seeds)
    files = []
    for name, mine in (("a", seeds[:4]), ("b", seeds[4:])):
        rows = [row for row in case.mnli.predictions(0.5, name) if row["seed_id"] in mine]
        files.append(str(write_predictions(tmp_path / f"{name}.parquet", rows)))
    evidence = gather_evidence(files, case.folder, ["mnli-m"], allow_missing=True, n_bootstrap=10)
    assert evidence.configurations[0].comparison is None
    told = "the models are not compared: mnli-m: expected predictions for the same seeds"
    assert told in caplog.text
    assert all(evidence.configurations[0].results)
