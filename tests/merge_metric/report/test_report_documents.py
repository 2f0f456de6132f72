"""The report as Markdown, LaTeX, JSON and plots, and the command that writes it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.dataset_files import write_predictions
from helpers.latex import PDFLATEX, compiled
from typer.testing import CliRunner

from generation.cli import app
from merge_metric.analyses import analyse
from merge_metric.report.evidence import Evidence, gather_evidence
from merge_metric.report.sections import tables
from merge_metric.report.seeds import SourceSeeds
from merge_metric.report.wording import dataset_facts, model_text
from merge_metric.report.write import format_of, render_latex, write_report


@pytest.fixture
def run() -> Any:
    return CliRunner().invoke


# --- Content ---


def test_latex_is_balanced(evidence: Evidence, sources: list[SourceSeeds]) -> None:
    """Environments and braces close, rows have their columns, special characters are escaped."""
    text = render_latex(evidence, sources)
    begun = re.findall(r"\\begin\{(\w+)\}", text)
    assert set(begun) == {"longtable", "xltabular"}
    assert 2 * len(begun) == text.count(r"\toprule")
    assert sorted(begun) == sorted(re.findall(r"\\end\{(\w+)\}", text))
    plain = re.sub(r"\\[{}]", "", text)
    assert plain.count("{") == plain.count("}")
    for block in re.findall(r"\\toprule(.*?)\\end\{", text, re.DOTALL):
        rows = [
            line
            for line in block.splitlines()
            if line.endswith((r" \\", r" \\*")) and not line.startswith(r"\caption")
        ]
        assert len({len(re.findall(r"(?<!\\)&", row)) for row in rows}) == 1
    labels = re.findall(r"\\label\{([^}]*)\}", text)
    assert len(labels) == len(set(labels))
    assert "$r_r$" in text
    assert r"\& another" in text
    assert r"\textless{}/script" in text


def test_many_tables_are_placed(
    evidence: Evidence, sources: list[SourceSeeds], tmp_path: Path
) -> None:
    """Tables set by LaTeX fit on its pages."""
    text = render_latex(evidence, sources)
    if PDFLATEX:
        log = compiled(text, tmp_path)
        assert "Overfull" not in log
        assert "too large" not in log


def test_hardest_as_the_analysis_has_them(
    case: Any, evidence: Evidence, sources: list[SourceSeeds], tmp_path: Path
) -> None:
    """Both have the same seeds in the same order, with the same shares: one definition."""
    strong = write_predictions(tmp_path / "strong.parquet", case.snli.predictions(0.85, "strong"))
    analysed, _ = analyse("hardest", [*case.files[:2], str(strong)], case.folder, ["snli"], top=20)
    keys = ("seed_id", "variants_right", "premise", "gold")
    reported = tables(evidence, sources)[-1].rows
    assert [[row[key] for key in keys] for row in reported] == [
        [row[key] for key in keys] for row in analysed.rows
    ]


def test_facts_of_other_makers() -> None:
    """Provenance of another form is told as it is; settings without a value are not."""
    other = {"generator": "flan-t5-xl", "sampling": {"beams": 10, "seed": None}, "n": 12345}
    assert dataset_facts(other) == [
        ("Further", "generator: flan-t5-xl; sampling, beams: 10; n: 12,345")
    ]
    assert dataset_facts({"config": {"recipe": "r"}, "ablation": "union"}) == [
        ("Recipe", "r, ablation union")
    ]
    assert model_text({"rows": 3, "name": "x"}) == ""
    seeds = {"seeds": 40, "right": {"e,n,c": 30, "e,c,n": 10}, "p_value": 0.0001}
    assert model_text({"label_order_evidence": seeds}) == (
        "label order evidence: e,n,c is right on 75.0% of 40 seeds, the next best order, e,c,n, on "
        "25.0%, p = 0.0001"
    )


# --- Files ---


def test_formats() -> None:
    """By the suffix; another one is an error that names those that there are."""
    assert format_of(Path("a.b.tex")) == "latex"
    with pytest.raises(ValueError, match=r"expected a name that ends in \.html, .*got '\.pdf'"):
        format_of(Path("report.pdf"))


@pytest.mark.parametrize(
    ("library", "options"),
    [("jinja2", ["--out", "r.html"]), ("matplotlib", ["--out", "r.md", "--figures", "plots"])],
)
def test_missing_extra_is_named_first(
    library: str, options: list[str], run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the predictions are read, which here are not there either."""
    monkeypatch.setitem(sys.modules, library, None)
    done = run(app, ["report", "none.parquet", "--dataset", "none", *options])
    assert done.exit_code == 2
    assert done.stderr == (
        f"error: this command needs {library}; run: pip install 'merge-nli[report]'\n"
    )


def test_no_local_paths(case: Any, tmp_path: Path) -> None:
    """A report says names of files, not where they were."""
    file = write_predictions(tmp_path / "x.parquet", case.mnli.predictions(0.5, "x"))
    evidence = gather_evidence([str(file)], case.folder, n_bootstrap=0)
    for suffix in (".html", ".md", ".tex", ".json"):
        write_report(evidence, tmp_path / f"report{suffix}")
        text = (tmp_path / f"report{suffix}").read_text(encoding="utf-8")
        assert str(tmp_path) not in text
        assert str(case.folder) not in text
