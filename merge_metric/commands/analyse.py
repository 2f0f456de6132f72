"""The command `analyse`; the analyses and their options come from the registry."""

import inspect
import logging
from dataclasses import make_dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import Annotated, Final

import typer

from merge_dataset.commands.command_line import (
    OF_DATASET,
    Chosen,
    Given,
    OptionsOf,
    TableFormat,
    command,
    input_option,
    needing,
    option,
)
from merge_dataset.settings import field_of
from merge_metric.analyses import ANALYSES
from merge_metric.analyses.registry import takers

log = logging.getLogger(__name__)


_DECLARED: Final = {
    name: option for known in ANALYSES.values() for name, option in known.options.items()
}

OPTIONS: Final = make_dataclass(
    "AnalysisOptions",
    [
        # The help of an option begins with the analyses that take it.
        (name, kind | None, field_of(replace(own, help=f"{takers(name)}: {own.help}"), None))
        for name, (kind, own) in _DECLARED.items()
    ],
)
"""Options of single analyses, named like the parameters of the analyses' functions."""


@command()
def analyse_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="What to find out: a name of the list above; without, the list."
        ),
    ] = "",
    predictions: Annotated[
        list[str] | None,
        typer.Argument(
            help="Predictions files of any models: FILE, NAME=FILE, and for some analyses "
            "FILE@DATASET."
        ),
    ] = None,
    *,
    dataset: Annotated[
        Path | None,
        input_option("The dataset folder or name of the files that name none.", **OF_DATASET),
    ] = None,
    chosen: Chosen,
    out: Annotated[Path | None, option("Also draw it, to a .png, .svg or .pdf file.")] = None,
    output: Annotated[TableFormat, option("How to write the table.", "--format")] = "text",
    given: Annotated[Given, OptionsOf(OPTIONS, "analyse")],
) -> None:
    """Make the papers' tables and figures from predictions, datasets and run folders.

    {analyses}

    Sensitivity: of the paper on paraphrases. A model's predictions for paraphrases
    of its own are given with their dataset: FILE@DATASET.

    \b
    Examples:
      merge-nli analyse matching *.parquet --dataset merge-nli --out figure5.svg

    \b
      merge-nli analyse accuracy bert.parquet --test bert=bert-test.parquet
        --dataset merge-nli --format latex

    \b
      merge-nli analyse fooling bert.parquet@bert-paraphrases
        roberta.parquet@roberta-paraphrases --format csv

    \b
      merge-nli analyse sizes base.parquet large.parquet --dataset merge-nli
        --size base=110M --size large=340M --out figure2.svg

    \b
      merge-nli analyse filters --run runs/snli

    \b
      merge-nli analyse mlms mine.parquet --mlm-map mlms.toml --dataset merge-nli

    \b
    There mlms.toml has a table per model, with MLMs as the dataset names them:
      \\[mine]
      equivalent = ["google-bert/bert-base-cased"]
      size = ["google-bert/bert-large-cased"]
    """  # \b is a mark of click: keep the lines that follow
    if not name:
        typer.echo("\n".join(_LISTED))
        return
    extra = ANALYSES[name].extra if name in ANALYSES else "plots"
    with needing("embeddings" if "encoder" in given else extra):
        from merge_metric.analyses import analyse
        from merge_metric.tables.plots import check_output, paper_style, save

        if out is not None:
            check_output(out)
        table, plot = analyse(name, predictions or (), dataset, **chosen.arguments(), **given)
        if out is not None:
            with paper_style():
                save(plot(table), out)
            log.info("drawn: %s", out)
        typer.echo(getattr(table, f"to_{output}")())
        for note in table.notes if output == "csv" else ():  # which has no room for them
            log.info("%s", note)


# The list of the analyses stands in the help, in a block that click does not rewrap.
_WIDTH: Final = max(map(len, ANALYSES)) + 4
_LISTED: Final = [
    fill(
        analysis.summary,
        76,  # the width to which the help shows text unwrapped
        initial_indent=f"  {analysis.name}".ljust(_WIDTH),
        subsequent_indent=" " * _WIDTH,
    )
    for analysis in ANALYSES.values()
]
analyse_command.__doc__ = inspect.cleandoc(analyse_command.__doc__ or "").replace(
    "{analyses}", "\n".join(("\b", *_LISTED))
)
