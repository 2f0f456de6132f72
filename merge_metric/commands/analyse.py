"""The commands `compare` and `analyse`."""

from __future__ import annotations

import inspect
import json
import logging
from enum import StrEnum
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Final

import click
import typer

from merge_dataset.commands.check import OutputFormat, user_errors
from merge_metric.analyses import ANALYSES
from merge_metric.analyses.registry import takers

log = logging.getLogger(__name__)

_PANEL: Final = "Options of single analyses"
_HELP: Final = 76
"""Width of what the help shows as it is."""


class TableFormat(StrEnum):
    """How a table is written."""

    text = "text"
    markdown = "markdown"
    latex = "latex"
    json = "json"
    csv = "csv"


Dataset = Annotated[Path, typer.Option(help="The dataset folder.")]
Configs = Annotated[
    list[str] | None,
    typer.Option(help="Configuration, e.g. snli_nouns; may be repeated."),
]
AllowMissing = Annotated[
    bool, typer.Option("--allow-missing", help="Leave out seeds that lack a prediction.")
]


def compare_command(
    predictions: Annotated[
        list[str], typer.Argument(help="Predictions files, FILE or NAME=FILE, of two models up.")
    ],
    dataset: Dataset,
    config: Configs = None,
    output: Annotated[
        OutputFormat, typer.Option("--format", help="How to write the figures.")
    ] = OutputFormat.text,
    allow_missing: AllowMissing = False,
    n_bootstrap: Annotated[
        int, typer.Option(min=1, help="Replicates for intervals; tests take more if need be.")
    ] = 1000,
    rng_seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    ct: Annotated[
        float, typer.Option(metavar="PERCENT", help="Correctness threshold, 1 to 100.")
    ] = 90,
) -> None:
    """Compare models on the same seeds: differences, p-values, ranks with ties.

    Two tests for each pair of models, corrected for the number of pairs (Holm):
    McNemar's on which seeds are answered right, and the paired bootstrap of SV
    accuracy at --ct, by which models are ranked.

    A model is called NAME, else what its file says, else like the file.

    \b
    Examples:
      merge-nli compare bert.parquet roberta.parquet --dataset merge-nli

    \b
      merge-nli compare base=1.parquet large=2.parquet --dataset merge-nli
        --config snli_nouns --ct 80 --format json
    """  # \b is a mark of click: keep the lines that follow
    with user_errors():
        from merge_metric.compare import compare_files

        comparisons = compare_files(
            predictions,
            dataset,
            config or (),
            allow_missing=allow_missing,
            correctness_threshold=_threshold(ct),
            n_bootstrap=n_bootstrap,
            rng_seed=rng_seed,
        )
        if output is OutputFormat.json:
            whole = {"dataset": str(dataset), "comparisons": [c.as_dict() for c in comparisons]}
            typer.echo(json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False))
        else:
            typer.echo("\n\n\n".join(comparison.to_text() for comparison in comparisons))


def analyse_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="What to find out; see the list above.",
            click_type=click.Choice(list(ANALYSES)),
        ),
    ],
    predictions: Annotated[
        list[str] | None,
        typer.Argument(
            help="Predictions files of any models: FILE, NAME=FILE, and for some analyses "
            "FILE@DATASET.",
        ),
    ] = None,
    dataset: Annotated[
        Path | None, typer.Option(help="The dataset folder of the files that name none.")
    ] = None,
    config: Configs = None,
    out: Annotated[
        Path | None, typer.Option(help="Also draw it, to a .png, .svg or .pdf file.")
    ] = None,
    output: Annotated[
        TableFormat, typer.Option("--format", help="How to write the table.")
    ] = TableFormat.text,
    allow_missing: AllowMissing = False,
    test: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{takers('tests')}: predictions for all test problems; may be repeated.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    mlm_map: Annotated[
        Path | None,
        typer.Option(
            help=f"{takers('mlm_map')}: a TOML file of models and MLMs; else the paper's.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    matched: Annotated[
        bool,
        typer.Option(
            "--matched",
            help=f"{takers('matched')}: equally many variants of each group.",
            rich_help_panel=_PANEL,
        ),
    ] = False,
    top: Annotated[
        int | None,
        typer.Option(min=1, help=f"{takers('top')}: so many seeds.", rich_help_panel=_PANEL),
    ] = None,
    ct: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            help=f"{takers('correctness_threshold')}: threshold of the differences; else 90.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    n_bootstrap: Annotated[
        int | None,
        typer.Option(
            min=0,
            help=f"{takers('n_bootstrap')}: replicates for intervals.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    rng_seed: Annotated[
        int | None,
        typer.Option(min=0, help="Of whatever is random; else 0.", rich_help_panel=_PANEL),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER",
            help=f"{takers('sizes')}: parameters of a model, such as bert=110M; may be repeated.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help=f"{takers('encoder')}: a sentence encoder, folder or Hub id, for distances.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    annotations: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help=f"{takers('annotations')}: a session of merge-nli annotate, or answers as .jsonl or "
            ".csv; may be repeated.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    bins: Annotated[
        int | None,
        typer.Option(
            min=2, help=f"{takers('bins')}: bins of a signal; else 5.", rich_help_panel=_PANEL
        ),
    ] = None,
) -> None:
    """The papers' tables and figures, from predictions files.

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
      merge-nli analyse ablations bert.parquet
        bert=bert-union.parquet@merge-nli-union --dataset merge-nli

    \b
      merge-nli analyse fooling bert.parquet@bert-paraphrases
        roberta.parquet@roberta-paraphrases --format csv

    \b
      merge-nli analyse sizes base.parquet large.parquet --dataset merge-nli
        --size base=110M --size large=340M --out figure2.svg

    \b
      merge-nli analyse signals mine.parquet --dataset merge-nli
        --annotations sessions/first --out signals.svg

    \b
      merge-nli analyse mlms mine.parquet --mlm-map mlms.toml --matched
        --dataset merge-nli

    \b
    There mlms.toml has a table per model, with MLMs as the dataset names them:
      \\[mine]
      equivalent = ["google-bert/bert-base-cased"]
      size = ["google-bert/bert-large-cased"]
    """  # \b is a mark of click: keep the lines that follow
    options = {
        "tests": test or None,
        "mlm_map": mlm_map,
        "matched": matched or None,
        "top": top,
        "correctness_threshold": None if ct is None else _threshold(ct),
        "n_bootstrap": n_bootstrap,
        "rng_seed": rng_seed,
        "sizes": size or None,
        "encoder": encoder,
        "annotations": annotations or None,
        "bins": bins,
    }
    with user_errors(extra="embeddings" if encoder else ANALYSES[name].extra):
        from merge_metric.analyses import analyse
        from merge_metric.tables.plots import check_output, save

        if out is not None:
            check_output(out)
        table, plot = analyse(
            name,
            predictions or (),
            dataset,
            config or (),
            allow_missing=allow_missing,
            **{key: value for key, value in options.items() if value is not None},
        )
        if out is not None:
            save(plot(table), out)
            log.info("drawn: %s", out)
        typer.echo(getattr(table, f"to_{output.value}")())


def _listed() -> str:
    """The analyses, for the help: a block that click does not rewrap."""
    width = max(map(len, ANALYSES)) + 2
    lines = ["\b"]
    for analysis in ANALYSES.values():
        first, *more = wrap(analysis.summary, _HELP - width - 2)
        lines.append(f"  {analysis.name:<{width}}{first}")
        lines += [" " * (width + 2) + line for line in more]
    return "\n".join(lines)


analyse_command.__doc__ = inspect.cleandoc(analyse_command.__doc__ or "").replace(
    "{analyses}", _listed()
)


def _threshold(value: float) -> int:
    from merge_metric.seed_variant_accuracy.options import check_threshold

    return check_threshold(int(value) if value.is_integer() else value)
