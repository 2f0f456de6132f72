"""The command `agreement`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from merge_dataset.commands.command_line import (
    BootstrapSeed,
    Replicates,
    option,
    user_errors,
    with_settings,
)


@user_errors(extra="annotation")
@with_settings
def agreement_command(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Session folders, annotators' files (.jsonl), and tables (.csv) with the columns "
            "annotator, variant_id, fluency, reasoning (of paraphrases: equivalent) and comment."
        ),
    ],
    session: Annotated[
        list[Path] | None, option("Session folder that knows the variants; may be repeated.")
    ] = None,
    dataset: Annotated[Path | None, option("Dataset folder, which knows them, too.")] = None,
    plots: Annotated[
        Path | None, option("Folder for plots as PNG, SVG and PDF.", file_okay=False)
    ] = None,
    output: Annotated[
        Literal["text", "markdown", "latex", "json"], option("How to write the tables.", "--format")
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
      merge-nli agreement sessions/snli --dataset merge-nli

    \b
      merge-nli agreement ann.csv ben.csv --session sessions/snli --plots plots
    """  # \b is a mark of click: keep the lines that follow
    from merge_dataset.locks import working_in
    from merge_metric.agreement.overview import agreement, draw_judgements
    from merge_metric.tables.plots import save_all

    found = agreement(
        files, sessions=session or (), dataset=dataset, n_bootstrap=n_bootstrap, rng_seed=rng_seed
    )
    if plots is not None:
        with working_in(plots, wait=True):  # two at once do not mix theirs
            for file in save_all(draw_judgements(found.table("scores")), plots):
                typer.echo(file, err=True)
    typer.echo(found.render(output))
