import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.dataset_files import (
    run_manifest,
    seed_row,
    variant_row,
    write_predictions,
    write_source,
)
from helpers.latex import PDFLATEX, compiled

from merge_metric.analyses import analyse
from merge_metric.frame.predictions import with_metadata
from merge_metric.frame.predictions import write_predictions as write_table
from merge_metric.report.evidence import Evidence, gather_evidence
from merge_metric.report.sections import model_text, tables
from merge_metric.report.seeds import SourceSeeds
from merge_metric.report.write import render_latex, templates, write_report


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
