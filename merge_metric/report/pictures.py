"""Curves and heat map as files of their own, drawn like the analyses' plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from merge_metric.analyses.curves import plot_curves, plot_matching
from merge_metric.report.evidence import Evidence, Part
from merge_metric.report.tables import matching
from merge_metric.tables import Table
from merge_metric.tables.plots import save

FORMATS: Final = (".png", ".svg")


def write_pictures(evidence: Evidence, folder: Path) -> list[Path]:
    """Write the plots of a report.

    Args:
        evidence: What was measured.
        folder: Where; made if need be. Files of the same names are replaced.

    Returns:
        The files: per configuration the curves by word class and label, one for all
        configurations side by side, and the heat map, each as PNG and SVG.
    """
    files = []
    for name, figure in _figures(evidence):
        for suffix in FORMATS:
            files.append(folder / f"{name}{suffix}")
            save(figure, files[-1])
    return files


def _figures(evidence: Evidence) -> Iterator[tuple[str, Any]]:
    whole = [(c.name, c.parts()[0]) for c in evidence.configurations]
    yield "curves", plot_curves(_curves(evidence, whole))
    yield "matching", plot_matching(matching(evidence))
    for configuration in evidence.configurations:
        for kind in ("word_class", "label"):
            if parts := configuration.parts_by(kind):
                panels = [(part.title, part) for part in parts]
                name = f"curves-{configuration.name}-by-{kind.replace('_', '-')}"
                yield name, plot_curves(_curves(evidence, panels))


def _curves(evidence: Evidence, panels: Sequence[tuple[str, Part]]) -> Table:
    """The rows that `plot_curves` draws: one per panel and model."""
    rows = [
        {
            "config": title,
            "model": name,
            "curve": result["sv_curve"]["accuracy"],
            "seed_accuracy": result["seed_accuracy"],
            "matching_threshold": result["matching_threshold"],
        }
        | {
            f"curve_{side}": result["sv_curve"][side]
            for side in ("low", "high")
            if side in result["sv_curve"]
        }
        for title, part in panels
        for name, result in zip(evidence.names, part.results, strict=True)
        if result
    ]
    return Table("curves", "Seed-variant accuracy by correctness threshold", (), tuple(rows))
