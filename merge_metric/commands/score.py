"""The commands `score` and `compare`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from merge_dataset.commands.command_line import (
    OF_DATASET,
    BootstrapSeed,
    Chosen,
    DatasetFolder,
    ForSpreadsheets,
    Replicates,
    TableFormat,
    command,
    input_option,
    needing,
    option,
    statistics_option,
)
from merge_dataset.files import to_json
from merge_dataset.hub.repository import PublishError
from merge_metric.tracking import log_results, require_tracker

if TYPE_CHECKING:
    from merge_metric.seed_variant_accuracy.figures import Figure
    from merge_metric.tables import Table

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Options on the tables of figures, and on how these are computed."""

    output: Annotated[
        TableFormat, option("How to write the tables; JSON has all figures.", "--format")
    ] = "text"
    explain: Annotated[bool, option("Also say what figures, ranks and tests are.", "--explain")] = (
        False
    )
    rng_seed: BootstrapSeed = 0
    ct: Annotated[
        int, statistics_option("Correctness threshold (CT), in percent.", "--ct", min=1, max=100)
    ] = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Options of `score` on what it shows, writes and checks beside the usual figures."""

    figure: Annotated[
        list[str] | None,
        option(
            "Also show this figure, such as core_index or agreement; may be repeated. JSON has all."
        ),
    ] = None
    require: Annotated[
        list[str] | None,
        option(
            "Exit with 1 if a figure of some configuration is worse, such as "
            "seed_variant_accuracy=0.7 or relaxed_fooling_rate=0.4; may be repeated.",
            metavar="FIGURE=VALUE",
        ),
    ] = None
    good: Annotated[
        bool,
        option(
            "Also show figures on the better half of the variants, by quality, beside as many of "
            "all: are bad variants to blame?",
            "--good",
        ),
    ] = False
    reporting: Annotated[
        bool,
        option(
            "Print what a paper should say of the figures: sentences, a table for LaTeX, and what "
            "to cite.",
            "--reporting",
        ),
    ] = False
    per_seed: Annotated[
        Path | None,
        option(
            "Also write a row per seed: texts, gold label, votes, variants right, answers, "
            "agreement; to a .parquet, .csv or .jsonl file."
        ),
    ] = None
    for_spreadsheets: ForSpreadsheets = False
    overwrite: Annotated[bool, option("Replace the file of --per-seed.", "--overwrite")] = False
    log_to: Annotated[
        list[str] | None,
        option(
            "Also log the main figures to wandb, mlflow or tensorboard, where their environment "
            "variables say (WANDB_MODE, MLFLOW_TRACKING_URI, TENSORBOARD_LOGGING_DIR); may be "
            "repeated.",
            metavar="TRACKER",
        ),
    ] = None


@command()
def score_command(
    predictions: Annotated[
        list[Path],
        typer.Argument(
            help="Predictions of one model: .parquet, .jsonl, .jsonl.gz, .csv, or logs of "
            "lm-evaluation-harness (samples_*.jsonl) or Inspect (.eval, .json)."
        ),
    ],
    dataset: Annotated[
        Path | None,
        input_option(
            "The dataset folder or name, which knows subsamples and word classes.", **OF_DATASET
        ),
    ] = None,
    *,
    chosen: Chosen,
    by: Annotated[
        list[str] | None,
        input_option(
            "Group also by mlms (a variant counts under each), premise_mlms, hypothesis_mlms, "
            "original or replacement; may be repeated."
        ),
    ] = None,
    shown: Shown,
    n_bootstrap: Replicates = 1000,
    beside: Beside,
) -> None:
    """Score a model's predictions: seed-variant (SV) accuracy and what goes with it.

    A predictions file has a row per problem: variant_id (of a seed, its own id),
    seed_id, label, prediction and, optionally, probabilities (of entailment,
    neutral and contradiction). A seed counts as right if at least CT percent
    of its variants are classified as the gold label.

    Files of merge-nli predict know the texts that they are for; with another dataset
    they are refused. Files of other programs are scored as "unverified".

    It scores what the file has answers for: for each source all word classes, or those
    that the file has, and the paraphrases. Ask for others with --config.

    Older names: pattern accuracy (PA) is now SV accuracy, sample accuracy (SA) is
    variant accuracy.

    \b
    Examples:
      merge-nli score predictions.jsonl --dataset merge-nli --config snli_nouns
        --by mlms --format json

    \b
      merge-nli score predictions.parquet --dataset merge-nli
        --require seed_variant_accuracy=0.7 --require relaxed_fooling_rate=0.4
    """  # \b is a mark of click: keep the lines that follow
    from merge_metric.frame.answer_table import PredictionsSource
    from merge_metric.frame.joined import read_frames
    from merge_metric.frame.per_seed import seed_results, write_seed_results
    from merge_metric.frame.predictions import model_name
    from merge_metric.score import failures, read_gates, reporting, score_all
    from merge_metric.seed_variant_accuracy.figures import figure_named
    from merge_metric.seed_variant_accuracy.options import Settings

    _check(beside, shown, dataset)
    settings = Settings(shown.ct, n_bootstrap, shown.rng_seed)
    more = [figure_named(key, shown.ct) for key in beside.figure or ()]
    gates = read_gates(beside.require or (), shown.ct)
    model, arguments = model_name(predictions[0]), chosen.arguments()
    sources = [PredictionsSource("", path) for path in predictions]
    frames = list(read_frames(sources, dataset, by=by or (), with_rows=beside.good, **arguments))
    results = score_all(frames, settings, shown=shown.output not in ("json", "csv"))
    contrast = None
    if beside.good:
        from merge_metric.analyses.validity import good_rows, good_table

        own = [replace(frame, model=model) for frame in frames]
        rows = [row for frame in own for row in good_rows(frame, settings=settings)]
        contrast = good_table(rows, settings, chosen.cluster)
    if beside.per_seed:
        marked = beside.for_spreadsheets
        write_seed_results(beside.per_seed, seed_results(frames), for_spreadsheets=marked)
        log.info("%s: written, a row per seed", beside.per_seed)
    about = {"predictions": ", ".join(map(str, predictions)), "dataset": dataset and str(dataset)}
    typer.echo(
        reporting({model: results}, dataset)
        if beside.reporting and dataset
        else _text_of(results, contrast, shown, more, chosen.cluster, about)
    )
    for tracker in beside.log_to or ():
        place = log_results(tracker, results, model=model, dataset=str(dataset or ""))
        log.info("%s: logged to %s", tracker, place)
    if failed := failures(results, gates):
        typer.echo("\n".join(failed), err=True)
        raise typer.Exit(1)


def _check(beside: Beside, shown: Shown, dataset: Path | None) -> None:
    """Raise before anything is read if what is wished beside the figures cannot be made."""
    from merge_metric.frame.per_seed import check_seed_file

    for name in ("reporting", "good"):
        if getattr(beside, name) and dataset is None:
            raise ValueError(f"--{name}: expected the --dataset that the figures are of")
    if beside.good and shown.output == "csv":
        raise ValueError(
            "--good: expected another format than csv, which has one table; merge-nli analyse good "
            "--format csv writes the figures on good variants"
        )
    for tracker in beside.log_to or ():
        with needing(tracker):
            require_tracker(tracker)
    marked = beside.for_spreadsheets
    check_seed_file(beside.per_seed, overwrite=beside.overwrite, for_spreadsheets=marked)


def _text_of(
    results: dict[str, dict[str, Any]],
    contrast: Table | None,
    shown: Shown,
    more: Sequence[Figure],
    cluster: str,
    about: dict[str, Any],
) -> str:
    """Write results, and those on good variants, in the format that is wished."""
    from merge_metric.score import scores_tables, scores_text

    match shown.output:
        case "json":
            good = {"good": contrast.as_dict()} if contrast else {}
            return to_json(about | {"results": results} | good)
        case "text":
            text = scores_text(results, shown.ct, more=more, cluster=cluster, explain=shown.explain)
            return text + (f"\n\n\n{contrast.to_text()}" if contrast else "")
        case output:
            text = scores_tables(results, shown.ct, more, output)
            return text + (f"\n\n{getattr(contrast, f'to_{output}')()}" if contrast else "")


@command(failures=(PublishError,))
def compare_command(
    predictions: Annotated[
        list[str],
        typer.Argument(help="Predictions files of two or more models, as FILE or NAME=FILE."),
    ],
    dataset: DatasetFolder,
    *,
    chosen: Chosen,
    shown: Shown,
    n_bootstrap: Annotated[
        int, statistics_option("Replicates for intervals; tests take more if need be.", min=1)
    ] = 1000,
    with_leaderboard: Annotated[
        str | None,
        option("Also what the Hub's leaderboard of a dataset says.", metavar="OWNER/NAME"),
    ] = None,
) -> None:
    """Compare models on the same seeds: differences, p-values, ranks with ties.

    There are two tests for each pair of models, corrected for the number of pairs
    (Holm): McNemar's on which seeds are answered right, and the paired bootstrap of SV
    accuracy at --ct, by which models are ranked. CSV has the differences alone.

    A model is called NAME, or else what its file says, or else like the file.

    \b
    Examples:
      merge-nli compare base=1.parquet large=2.parquet --dataset merge-nli
        --config snli_nouns --ct 80 --format json
    """  # \b is a mark of click: keep the lines that follow
    from merge_metric.compare import compare_models, leaderboard
    from merge_metric.tables import Column

    compared = compare_models(
        predictions,
        dataset,
        correctness_threshold=shown.ct,
        n_bootstrap=n_bootstrap,
        rng_seed=shown.rng_seed,
        **chosen.arguments(),
    )
    comparisons = list(compared.values())
    others = [leaderboard(with_leaderboard)] if with_leaderboard else []
    match shown.output:
        case "json":
            whole: dict[str, Any] = {"dataset": str(dataset)}
            whole["comparisons"] = [c.as_dict() for c in comparisons]
            whole |= {table.name: table.as_dict() for table in others}
            typer.echo(to_json(whole, allow_nan=False))
        case "text":
            texts = [of.to_text(explain=shown.explain) for of in comparisons]
            typer.echo("\n\n\n".join([*texts, *(table.to_text() for table in others)]))
        case "csv":  # one table only: `score` shows the models' own figures
            rows = [{"config": c.config, **row} for c in comparisons for row in c.pairs.rows]
            columns = (Column("config", "configuration"), *comparisons[0].pairs.columns)
            typer.echo(replace(comparisons[0].pairs, columns=columns, rows=tuple(rows)).to_csv())
        case output:
            tables = [table for c in comparisons for table in (c.models, c.pairs)] + others
            typer.echo("\n\n".join(getattr(table, f"to_{output}")() for table in tables))
