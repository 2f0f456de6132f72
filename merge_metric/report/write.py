"""The report as a file: HTML, Markdown, LaTeX or JSON, and its plots as pictures."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from merge_dataset.files import to_json, write_text
from merge_metric.analyses.curves import plot_curves, plot_matching
from merge_metric.report import ReportFormat
from merge_metric.report.evidence import Evidence, VariantPart
from merge_metric.report.finding import findings, overall_findings
from merge_metric.report.page import render_markdown, render_page
from merge_metric.report.sections import matching, seed_rows, tables
from merge_metric.report.seeds import limit_variants
from merge_metric.seed_variant_accuracy.figures import MATCHING_RANGE
from merge_metric.seed_variant_accuracy.scoring import VERSION
from merge_metric.tables import PACKAGES, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

MAX_VARIANTS: Final = 500_000
MAX_BYTES: Final = 15_000_000
"""Largest size of the page in bytes; if it would be larger, fewer variants are shown."""


_SIGNATURE: Final = re.compile(rb"\bct:\d+\|(<wbr>)?subsamples")
"""Pattern of a part of the signature that stands in every report."""

SUFFIXES: Final[dict[str, ReportFormat]] = {
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".tex": "latex",
    ".json": "json",
}


def format_of(path: Path) -> ReportFormat:
    """Return the format of a file's suffix; raise IsADirectoryError or ValueError for others.

    >>> format_of(Path("report.md"))
    'markdown'
    """
    if path.suffix in SUFFIXES:
        return SUFFIXES[path.suffix]
    if path.is_dir():
        raise IsADirectoryError(
            f"{path}: expected a file for the report, found a folder; name a file in it: "
            f"{path / 'report.html'}"
        )
    raise ValueError(
        f"{path}: expected a name that ends in {', '.join(SUFFIXES)}, got "
        f"{repr(path.suffix) if path.suffix else 'no suffix'}; change it, or "
        "say the format with `output`"
    )


def require_report_or_none(path: Path) -> None:
    """Raise an error if the path is a file that is no earlier report, or its folder is missing."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: expected the folder {path.parent}, found none; make it")
    if path.is_file() and path.stat().st_size and not _SIGNATURE.search(path.read_bytes()):
        raise FileExistsError(
            f"{path}: expected no file or an earlier report, found another file; name another file "
            "with --out, or move that one away"
        )


def write_report(
    evidence: Evidence,
    path: str | Path,
    output: ReportFormat | None = None,
    *,
    max_variants: int = MAX_VARIANTS,
) -> None:
    """Write a report; the same bytes for the same inputs.

    Args:
        evidence: Everything to report.
        path: The file; an earlier report is replaced.
        output: Its format; by default what the suffix says.
        max_variants: Variants shown in the page at most.

    Raises:
        FileExistsError: there is another file.
        FileNotFoundError: there is no such folder.
        ValueError: the suffix says no format.
    """
    path = Path(path)
    output = output or format_of(path)
    require_report_or_none(path)
    if output == "html":
        text = render_html(evidence, max_variants=max_variants)
    else:
        render = {"markdown": render_markdown, "latex": render_latex, "json": render_json}[output]
        text = render(evidence)
    write_text(path, text)


def render_html(evidence: Evidence, *, max_variants: int = MAX_VARIANTS) -> str:
    """Render the page with the most variants allowed that keep it below `MAX_BYTES`."""
    while True:
        shown = limit_variants(evidence.sources, max_variants)
        page = render_page(replace(evidence, sources=shown))
        n_shown = sum(len(source.seed) for source in shown)
        size = len(page.encode())
        if size <= MAX_BYTES or not n_shown:
            return page
        max_variants = int(0.95 * n_shown * MAX_BYTES / size)
        log.info(
            "the page would have %.1f MB; showing %s variants", size / 1e6, f"{max_variants:,}"
        )


# --- LaTeX and JSON ---


def render_latex(evidence: Evidence) -> str:
    """Render the tables for a LaTeX document that loads `tables.PACKAGES`."""
    head = [
        f"% MERGE report: {' '.join(evidence.title.split())}",
        f"% Made by merge-nli {VERSION}. Needs {' '.join(PACKAGES)}.",
    ]
    for configuration in evidence.configurations:
        head += [f"% {configuration.name}: {sig}" for sig in configuration.signatures]
    made = (
        table.to_latex(long=any(column.kind == "passage" for column in table.columns))
        for table in chain.from_iterable(tables(evidence).values())
    )
    return "\n\n".join(["\n".join(head), *made]) + "\n"


def render_json(evidence: Evidence) -> str:
    """Render everything: results as `scoring.score` gives them, and seeds, hardest first."""
    named = [
        (c, {n: result for n, result in zip(evidence.names, c.results, strict=True) if result})
        for c in evidence.configurations
    ]
    whole = {
        "title": evidence.title,
        "version": VERSION,
        "models": [
            {"name": model.name, "files": list(model.files), "description": dict(model.description)}
            for model in evidence.models
        ],
        "findings": overall_findings(evidence),
        "configurations": [
            {
                "name": c.name,
                "findings": findings(evidence, c),
                "results": results,
                "comparison": c.comparison and c.comparison.as_dict(),
            }
            for c, results in named
        ],
        "classes": [table.as_dict() for table in evidence.classes],
        "provenance": evidence.provenance,
        **({"validity": evidence.validity.as_dict()} if evidence.validity else {}),
        "seeds": [row for source in evidence.sources for row in seed_rows(evidence, source)],
    }
    return to_json(whole, allow_nan=False) + "\n"


# --- Plots ---


def draw_figures(evidence: Evidence) -> Iterator[tuple[str, Figure]]:
    """Yield names and figures of plots: all curves, heat map, curves by class and by label."""
    whole = [(c.name, c.parts()[0]) for c in evidence.configurations]
    yield "curves", plot_curves(_curves(evidence, whole))
    yield "matching", plot_matching(matching(evidence))
    for configuration in evidence.configurations:
        for kind in ("word_class", "label"):
            if parts := configuration.parts(kind):
                panels = [(part.title, part) for part in parts]
                name = f"curves-{configuration.name}-by-{kind.replace('_', '-')}"
                yield name, plot_curves(_curves(evidence, panels))


def _curves(evidence: Evidence, panels: Sequence[tuple[str, VariantPart]]) -> Table:
    keys = ("seed_accuracy", "matching_threshold", *MATCHING_RANGE)
    rows = []
    for title, part in panels:
        for name, result in zip(evidence.names, part.results, strict=True):
            if result:
                curves = result["sv_curve"]
                row = {"config": title, "model": name, "curve": curves["accuracy"]}
                row |= {key: result[key] for key in keys}
                row |= {f"curve_{side}": curves[side] for side in ("low", "high") if side in curves}
                rows.append(row)
    return Table("curves", "Seed-variant accuracy by correctness threshold", (), tuple(rows))
