import re
from pathlib import Path
from typing import Any

from helpers.dataset_files import write_predictions
from helpers.latex import PDFLATEX, compiled

from merge_metric.analyses import analyse
from merge_metric.report.evidence import Evidence, gather_evidence
from merge_metric.report.sections import model_text, tables
from merge_metric.report.seeds import SourceSeeds
from merge_metric.report.write import render_latex, templates, write_report


def test_latex(evidence: Evidence, sources: tuple[SourceSeeds, ...], tmp_path: Path) -> None:
    """Braces match, and rows have all columns; set by LaTeX, everything fits on its pages."""
    text = render_latex(evidence)
    begun = re.findall(r"\\begin\{(\w+)\}", text)
    assert set(begun) == {"table", "adjustbox", "tabular", "longtable"}
    assert begun.count("tabular") + 2 * begun.count("longtable") == text.count(r"\toprule")
    assert sorted(begun) == sorted(re.findall(r"\\end\{(\w+)\}", text))
    plain = re.sub(r"\\[{}]", "", text)
    assert plain.count("{") == plain.count("}")
    for block in re.findall(r"\\toprule(.*?)\\end\{", text, re.DOTALL):
        lines = [line for line in block.splitlines() if not line.startswith(r"\caption")]
        rows = [line for line in lines if line.endswith((r" \\", r" \\*"))]
        assert len({len(re.findall(r"(?<!\\)&", row)) for row in rows}) == 1
    labels = re.findall(r"\\label\{([^}]*)\}", text)
    assert len(labels) == len(set(labels))
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
