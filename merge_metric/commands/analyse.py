"""The command `analyse`; the analyses and their options come from the registry."""

import inspect
import logging
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, Final, Literal

import typer

from merge_dataset.commands.command_line import (
    OF_DATASET,
    AllowMissing,
    Cluster,
    Configs,
    Given,
    MergeLabels,
    OptionsOf,
    needing,
    option,
    user_errors,
    with_settings,
)
from merge_dataset.settings import declared_settings, setting
from merge_metric.analyses import ANALYSES
from merge_metric.analyses.registry import find_analysis, takers
from merge_metric.commands.score import read_threshold

log = logging.getLogger(__name__)


def _option(default: Any, help: str, **more: Any) -> Any:
    return setting(default, help, commands="analyse", panel="Options of single analyses", **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisOptions:
    """Options of single analyses, named like the parameters of the analyses' functions."""

    tests: tuple[str, ...] = _option(
        (), "predictions for all test problems; may be repeated.", option="--test"
    )
    groups: tuple[str, ...] = _option(
        (),
        "what a model was trained on, such as bert=S; may be repeated. Predictions of a preset "
        "say it.",
        option="--group",
        metavar="NAME=GROUP",
    )
    best_and_worst: bool = _option(
        False,
        "only the two best models and the worst of each group, by S on all test problems "
        "(figures 3 to 5).",
        option="--best-and-worst",
    )
    mlm_map: Path | None = _option(  # noqa: RUF009 - a field
        None, "a TOML file of models and MLMs; else the paper's."
    )
    top: int | None = _option(None, "number of seeds.", minimum=1)
    below: float | None = _option(
        None,
        "seeds with a smaller share of variants right; the paper looks at 5.",
        metavar="PERCENT",
    )
    corrected: tuple[str, ...] = _option(
        (),
        "a table of labels that annotators think are right: that of --format csv, with "
        "corrected_label filled in; may be repeated.",
        metavar="FILE",
    )
    correctness_threshold: float | None = _option(
        None, "threshold of the differences; else 90.", option="--ct", metavar="PERCENT"
    )
    n_bootstrap: int | None = _option(None, "replicates for intervals.", minimum=0)
    rng_seed: int | None = _option(None, "seed of whatever is random; else 0.", minimum=0)
    in_domain: tuple[str, ...] = _option(
        (),
        "a source that the models were trained on; may be repeated. Averages are also made "
        "without them.",
        metavar="SOURCE",
    )
    sizes: tuple[str, ...] = _option(
        (),
        "parameters of a model, such as bert=110M; may be repeated.",
        option="--size",
        metavar="NAME=NUMBER",
    )
    encoder: str | None = _option(
        None, "a sentence encoder, folder or Hub id, for distances.", metavar="MODEL"
    )
    annotations: tuple[str, ...] = _option(
        (),
        "a session of merge-nli annotate, or answers as .csv or .json; may be repeated.",
        metavar="PATH",
    )
    bins: int | None = _option(None, "bins of a signal; else 5.", minimum=2)
    run: Path | None = _option(  # noqa: RUF009 - a field
        None, "a run folder of merge-nli generate."
    )
    draws: int | None = _option(None, "draws of seeds; else 100.", minimum=2)
    seeds: int | None = _option(None, "seeds of a draw; else 500.", minimum=1)
    difference: float | None = _option(None, "difference to be shown; else 2.", metavar="POINTS")
    width: float | None = _option(None, "wanted width of an interval; else 5.", metavar="POINTS")


for _field, _declared in declared_settings(AnalysisOptions).items():
    # The help of an option begins with the analyses that take it.
    object.__setattr__(_declared, "help", f"{takers(_field.name)}: {_declared.help}")


@user_errors()
@with_settings
def analyse_command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="What to find out: a name of the list above.")
    ],
    predictions: Annotated[
        list[str] | None,
        typer.Argument(
            help="Predictions files of any models: FILE, NAME=FILE, and for some analyses "
            "FILE@DATASET."
        ),
    ] = None,
    *,
    dataset: Annotated[
        Path | None, option("The dataset folder or name of the files that name none.", **OF_DATASET)
    ] = None,
    config: Configs = None,
    out: Annotated[Path | None, option("Also draw it, to a .png, .svg or .pdf file.")] = None,
    output: Annotated[
        Literal["text", "markdown", "latex", "json", "csv"],
        option("How to write the table.", "--format"),
    ] = "text",
    allow_missing: AllowMissing = False,
    merge_labels: MergeLabels = None,
    cluster: Cluster = "",
    given: Annotated[Given, OptionsOf(AnalysisOptions, "analyse")],
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
      merge-nli analyse filters --run runs/snli

    \b
      merge-nli analyse mlms mine.parquet --mlm-map mlms.toml --dataset merge-nli

    \b
    There mlms.toml has a table per model, with MLMs as the dataset names them:
      \\[mine]
      equivalent = ["google-bert/bert-base-cased"]
      size = ["google-bert/bert-large-cased"]
    """  # \b is a mark of click: keep the lines that follow
    extra = "embeddings" if "encoder" in given else find_analysis(name).extra
    with needing(extra):
        from merge_metric.analyses import analyse
        from merge_metric.tables.plots import check_output, paper_style, save

        if out is not None:
            check_output(out)
        if "correctness_threshold" in given:
            given["correctness_threshold"] = read_threshold(given["correctness_threshold"])
        table, plot = analyse(
            name,
            predictions or (),
            dataset,
            config or (),
            allow_missing=allow_missing,
            cluster=cluster,
            merge_labels=merge_labels or (),
            **given,
        )
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
