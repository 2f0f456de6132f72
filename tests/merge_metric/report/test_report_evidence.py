"""Evidence of a report, and the documents that are made of it."""

import json
import logging
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.commands import run
from helpers.dataset_files import (
    run_manifest,
    seed_row,
    variant_row,
    write_predictions,
    write_source,
)
from helpers.latex import PDFLATEX, compiled
from helpers.report_data import problems

from merge_metric.analyses import analyse
from merge_metric.frame.predictions import with_metadata
from merge_metric.frame.predictions import write_predictions as write_table
from merge_metric.report.evidence import Evidence, gather_evidence
from merge_metric.report.sections import comparison, model_text, tables
from merge_metric.report.seeds import SourceSeeds
from merge_metric.report.write import (
    draw_figures,
    render_html,
    render_json,
    render_latex,
    templates,
    write_report,
)
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


def test_latex(evidence: Evidence, sources: tuple[SourceSeeds, ...], tmp_path: Path) -> None:
    """Texts are escaped; set by LaTeX, everything fits on its pages."""
    text = render_latex(evidence)
    assert "$r_r$" in text
    assert r"\& another" in text
    assert r"\textless{}/script" in text
    if PDFLATEX:
        log = compiled(text, tmp_path)
        assert "Overfull" not in log
        assert "too large" not in log


def test_hardest_as_the_analysis_has_them(
    case: Any, evidence: Evidence, sources: tuple[SourceSeeds, ...], tmp_path: Path
) -> None:
    strong = write_predictions(tmp_path / "strong.parquet", case.snli.predictions(0.85, "strong"))
    analysed, _ = analyse("hardest", [*case.files[:2], str(strong)], case.folder, ["snli"], top=20)
    keys = ("seed_id", "variants_right", "premise", "gold")
    reported = tables(evidence)["problems"][-1].rows
    assert [[row[key] for key in keys] for row in reported] == [
        [row[key] for key in keys] for row in analysed.rows
    ]


def test_facts_of_other_makers() -> None:
    other = {"generator": "flan-t5-xl", "sampling": {"beams": 10, "seed": None}, "n": 12345}
    further = "generator: flan-t5-xl; sampling, beams: 10; n: 12,345"
    facts = templates().get_template("facts.j2").module.facts  # type: ignore[attr-defined]
    assert facts(other, "{} = {}\n".format) == f"Further = {further}\n"
    ours = facts({"config": {"recipe": "r"}, "ablation": "union"}, "{} = {}".format)
    assert ours == "Recipe = r, ablation union"
    assert model_text({"rows": 3, "name": "x"}) == ""
    seeds = {"seeds": 40, "right": {"e,n,c": 30, "e,c,n": 10}, "p_value": 0.0001}
    assert model_text({"label_order_evidence": seeds}) == (
        "label order evidence: e,n,c is right on 75.0% of 40 seeds, the next best order, e,c,n, on "
        "25.0%, p = 0.0001"
    )


def test_no_local_paths(case: Any, tmp_path: Path) -> None:
    file = write_predictions(tmp_path / "x.parquet", case.mnli.predictions(0.5, "x"))
    evidence = gather_evidence([str(file)], case.folder, n_bootstrap=0)
    for suffix in (".html", ".md", ".tex", ".json"):
        write_report(evidence, tmp_path / f"report{suffix}")
        text = (tmp_path / f"report{suffix}").read_text(encoding="utf-8")
        assert str(tmp_path) not in text
        assert str(case.folder) not in text


HOSTILE = "<script>alert(1)</script> The answer is B."


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report on a model with repeated answers, some of which name no label."""
    folder = tmp_path_factory.mktemp("words")
    seeds, variants = [], []
    for n in range(6):
        texts = (f"The dog runs {n}.", f"A dog runs {n}.")
        seeds.append(seed_row(f"snli:{n}", texts, 1))
        for word in ("cat", "cow"):
            both = {"premise": ["m"], "hypothesis": ["m"]}
            variants.append(variant_row(seeds[-1], "noun", "dog", word, both, subsamples=[0]))
    write_source(folder / "merge-nli", seeds, variants, provenance=run_manifest("snli"))
    rows = [
        {
            "variant_id": row.get("variant_id") or row["seed_id"],
            "seed_id": row["seed_id"],
            "label": 1,
            "prediction": -1 if n == 8 else 1,
            "answer_text": HOSTILE if n < 8 else "x" * 500,
            "repeats": [1, 2 if n == 0 else 1] if n < 6 else None,
        }
        for n, row in enumerate([*seeds, *variants])
    ]
    told: dict[str, Any] = {"name": "talker", "prompt": "Premise: {premise}\nIs it <right>?"}
    told |= {"requests": 30, "prompt_tokens": 9, "answer_tokens": 7, "prices": [1e6, 2e6]}
    table = with_metadata(pa.Table.from_pylist(rows), told)
    write_table(folder / "p.parquet", table)
    out = folder / "report.html"
    evidence = gather_evidence([folder / "p.parquet"], folder / "merge-nli", n_bootstrap=0)
    write_report(evidence, out)
    return out.read_text(encoding="utf-8")


def test_words_in_the_page(page: str) -> None:
    assert '<pre class="prompt">Premise: {premise}\nIs it &lt;right&gt;?</pre>' in page
    assert "The answer is B." in page
    assert "<script>alert(1)" not in page
    assert "x" * 101 not in page
    assert "x" * 100 in page
    text = " ".join(re.sub("<script.*?</script>", "", page, flags=re.DOTALL).split())
    assert "talker: 5.6% of the answers name no label and count as wrong." in text
    assert "6 seeds answered right, asked 2 more times" in text
    assert "30 requests, 9 tokens of prompts and 7 of answers, cost 23.00" in text
