"""The commands `report` and `agreement`."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from merge_dataset.commands.command_line import (
    OF_DATASET,
    BootstrapSeed,
    Chosen,
    DatasetFolder,
    Replicates,
    command,
    input_option,
    option,
    statistics_option,
)
from merge_metric.report import ReportFormat


@command(extra="report")
def report_command(
    predictions: Annotated[
        list[str],
        typer.Argument(
            help="Predictions files, FILE or NAME=FILE; files of one name belong to one model."
        ),
    ],
    dataset: DatasetFolder,
    out: Annotated[Path, option("The report: .html, .md, .tex or .json.")] = Path("report.html"),
    *,
    chosen: Chosen,
    output: Annotated[
        ReportFormat | None, option("By default what the suffix says.", "--format")
    ] = None,
    figures: Annotated[
        Path | None,
        option(
            "Folder for plots as PNG, SVG and PDF, sized for papers; needs matplotlib.",
            file_okay=False,
        ),
    ] = None,
    annotations: Annotated[
        list[Path] | None,
        input_option(
            "A session of merge-nli annotate, or answers as .csv or .json; may be repeated. Adds "
            "changes on variants judged good and bad."
        ),
    ] = None,
    n_bootstrap: Annotated[
        int, statistics_option("Replicates for intervals; 0: none, and no comparison.", min=0)
    ] = 1000,
    rng_seed: BootstrapSeed = 0,
    max_variants: Annotated[
        int, option("Variants shown in the page; figures are those of all.", min=0)
    ] = 500_000,
) -> None:
    """Write a report on one or several models: a page that opens offline.

    It has the figures with their intervals, what `merge-nli compare` says of the
    models, SV curves, breakdowns, fooling rates, and every seed with its variants
    and what the models answer, in one file that loads nothing from anywhere.
    As Markdown, LaTeX or JSON: its tables.

    \b
    Examples:
      merge-nli report tiny=a.parquet large=b.jsonl --dataset merge-nli
        --config snli_nouns --out report.md --figures plots
    """  # \b is a mark of click: keep the lines that follow
    from merge_dataset.files import working_in
    from merge_metric.report.evidence import gather_evidence
    from merge_metric.report.write import (
        draw_figures,
        format_by_suffix,
        require_report_or_none,
        write_report,
    )
    from merge_metric.tables.plots import save_all

    output = output or format_by_suffix(out)
    require_report_or_none(out)
    if figures is not None:  # a missing library is reported before anything is computed
        import matplotlib  # noqa: F401
    evidence = gather_evidence(
        predictions,
        dataset,
        annotations=annotations or (),
        n_bootstrap=n_bootstrap,
        rng_seed=rng_seed,
        progress=True,
        **chosen.arguments(),
    )
    with ExitStack() as stack:
        if figures is not None:
            # Two reports written at the same time do not mix their plots.
            stack.enter_context(working_in(figures, wait=True))
            for file in save_all(draw_figures(evidence), figures):
                typer.echo(file)
        write_report(evidence, out, output, max_variants=max_variants)
    typer.echo(out)
    if output == "html":
        typer.echo(f"Open it in a browser: {out.resolve().as_uri()}", err=True)


@command(extra="annotation")
def agreement_command(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Session folders; filled tables (.csv) with the columns variant_id, fluency, "
            "reasoning (of paraphrases: equivalent), annotator and comment; exports of Label "
            "Studio (.json)."
        ),
    ],
    session: Annotated[
        list[Path] | None, input_option("Session folder that knows the variants; may be repeated.")
    ] = None,
    dataset: Annotated[
        Path | None, input_option("Dataset folder or name, which knows them, too.", **OF_DATASET)
    ] = None,
    plots: Annotated[
        Path | None, option("Folder for plots as PNG, SVG and PDF.", file_okay=False)
    ] = None,
    output: Annotated[
        Literal["text", "markdown", "latex", "longtable", "json"],
        option("How to write the tables.", "--format"),
    ] = "text",
    n_bootstrap: Replicates = 1000,
    rng_seed: BootstrapSeed = 0,
) -> None:
    """Say how far annotators agree, how good variants are, and which masked LM to drop.

    Cohen's kappa (plain and weighted) of each pair of annotators, Krippendorff's
    alpha of all, confusion matrices; shares of good variants (F + R of 9 or 10) with
    intervals, weighted to the classes of the dataset, by class, source, masked LM and
    number of masked LMs; and what would go with each masked LM. For paraphrases: kappa,
    alpha, and how many pairs mean the same.

    \b
    Examples:
      merge-nli agreement ann.csv ben.csv --session sessions/snli --plots plots
    """  # \b is a mark of click: keep the lines that follow
    from merge_dataset.files import working_in
    from merge_metric.agreement.overview import agreement, draw_judgements
    from merge_metric.tables.plots import save_all

    tables, text = agreement(
        files, output, sessions=session or (), dataset=dataset, n_bootstrap=n_bootstrap,
        rng_seed=rng_seed,
    )  # fmt: skip
    if plots is not None:
        with working_in(plots, wait=True):  # two commands at the same time do not mix their plots
            for file in save_all(draw_judgements(tables), plots):
                typer.echo(file, err=True)
    typer.echo(text)
