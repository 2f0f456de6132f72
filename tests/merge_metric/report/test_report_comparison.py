import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import run
from helpers.dataset_files import write_predictions

from merge_metric.report.evidence import Evidence, gather_evidence
from merge_metric.report.sections import comparison
from merge_metric.report.write import comparison_rows, render_html, render_json


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
