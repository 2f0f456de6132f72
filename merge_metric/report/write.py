"""Puts a report together and writes it, whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from merge_dataset.files import write_text
from merge_metric.commands.report import ReportFormat
from merge_metric.report.documents import render_json, render_latex, render_markdown
from merge_metric.report.evidence import Evidence
from merge_metric.report.seeds import SourceSeeds, limit_variants, read_seeds, shown_share

log = logging.getLogger(__name__)

MAX_VARIANTS: Final = 500_000
"""Variants shown in the page by default."""

MAX_BYTES: Final = 15_000_000
"""Of the page: where it would be larger, fewer variants are shown."""


SUFFIXES: Final = {
    ".html": ReportFormat.html,
    ".htm": ReportFormat.html,
    ".md": ReportFormat.markdown,
    ".tex": ReportFormat.latex,
    ".json": ReportFormat.json,
}


def format_of(path: Path) -> ReportFormat:
    """The format that a file's suffix says.

    Raises:
        ValueError: it says none.

    >>> format_of(Path("report.md")).value
    'markdown'
    """
    try:
        return SUFFIXES[path.suffix]
    except KeyError:
        raise ValueError(
            f"{path}: expected a name that ends in {', '.join(SUFFIXES)}, or --format, "
            f"got {path.suffix or 'no suffix'!r}"
        ) from None


def write_report(
    evidence: Evidence,
    path: Path,
    output: ReportFormat | None = None,
    *,
    max_variants: int = MAX_VARIANTS,
) -> None:
    """Write a report; the same bytes for the same inputs.

    Args:
        evidence: What was measured.
        path: The file; replaced where it exists.
        output: Its format; by default what the suffix says.
        max_variants: Variants shown in the page at most.

    Raises:
        ValueError: the suffix says no format.
    """
    output = output or format_of(path)
    sources = read_seeds(evidence)
    match output:
        case ReportFormat.html:
            text = render_html(evidence, sources, max_variants=max_variants)
        case ReportFormat.markdown:
            text = render_markdown(evidence, sources)
        case ReportFormat.latex:
            text = render_latex(evidence, sources)
        case ReportFormat.json:
            text = render_json(evidence, sources)
    write_text(path, text)


def render_html(
    evidence: Evidence, sources: Sequence[SourceSeeds], *, max_variants: int = MAX_VARIANTS
) -> str:
    """The page, with as many variants as it may have and stay below `MAX_BYTES`."""
    from merge_metric.report.page import render_page

    while True:
        shown = limit_variants(sources, max_variants)
        page = render_page(evidence, shown, describe_sample(shown))
        n_shown = sum(len(source.seed) for source in shown)
        size = len(page.encode())
        if size <= MAX_BYTES or not n_shown:
            return page
        max_variants = int(0.95 * n_shown * MAX_BYTES / size)
        log.info(
            "the page would have %.1f MB; showing %s variants", size / 1e6, f"{max_variants:,}"
        )


def describe_sample(sources: Sequence[SourceSeeds]) -> str:
    """A sentence on which variants are shown."""
    shown, total = (sum(column) for column in zip(*shown_share(sources), strict=True))
    if shown == total:
        return f"All {total:,} variants are shown."
    if not shown:
        return f"None of the {total:,} variants is shown; counts and shares are those of all."
    counts = [count for source in sources for count in source.n_shown.tolist()]
    text = (
        f"To keep the file small, {shown:,} of {total:,} variants are shown: of each seed at "
        f"most {max(counts):,}, sampled by a hash of their ids"
    )
    if bare := sum(not count for count in counts):
        text += f", and none of the {bare:,} easiest seeds"
    return f"{text}. Counts and shares are those of all variants."
