"""The command `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from merge_dataset.commands.check import user_errors
from merge_metric.report import ReportFormat


def report_command(
    predictions: Annotated[
        list[str],
        typer.Argument(help="Predictions files, FILE or NAME=FILE; of one name, of one model."),
    ],
    dataset: Annotated[Path, typer.Option(help="The dataset folder.")],
    out: Annotated[Path, typer.Option(help="The report: .html, .md, .tex or .json.")] = Path(
        "report.html"
    ),
    config: Annotated[
        list[str] | None,
        typer.Option(help="Configuration to report on, e.g. snli_nouns; may be repeated."),
    ] = None,
    output: Annotated[
        ReportFormat | None, typer.Option("--format", help="By default what the suffix says.")
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder for plots as PNG and SVG; needs matplotlib."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Of the report.")] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Leave out seeds that lack a prediction.")
    ] = False,
    n_bootstrap: Annotated[
        int, typer.Option(min=0, help="Replicates for intervals; 0: none, and no comparison.")
    ] = 1000,
    rng_seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    max_variants: Annotated[
        int, typer.Option(min=0, help="Variants shown in the page; figures are those of all.")
    ] = 500_000,
) -> None:
    """Write a report on one or several models: a page that opens offline.

    It has the figures with their intervals, what `merge-nli compare` says of the
    models, SV curves, breakdowns, fooling rates, and every seed with its variants
    and what the models answer, in one file that loads nothing from anywhere.
    As Markdown, LaTeX or JSON: its tables.

    \b
    Examples:
      merge-nli report runs/*.parquet --dataset merge-nli --out report.html

    \b
      merge-nli report tiny=a.parquet large=b.jsonl --dataset merge-nli
        --config snli_nouns --out report.md --figures plots
    """  # \b is a mark of click: keep the lines that follow
    with user_errors(extra="report"):
        from merge_metric.report.evidence import gather_evidence
        from merge_metric.report.write import format_of, write_pictures, write_report

        output = output or format_of(out)
        evidence = gather_evidence(
            predictions,
            dataset,
            config or (),
            title=title,
            allow_missing=allow_missing,
            n_bootstrap=n_bootstrap,
            rng_seed=rng_seed,
        )
        if figures is not None:
            for file in write_pictures(evidence, figures):
                typer.echo(file)
        write_report(evidence, out, output, max_variants=max_variants)
        typer.echo(out)
