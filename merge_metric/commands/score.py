"""The commands `score` and `compare`."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from merge_dataset.commands.command_line import (
    OF_DATASET,
    AllowMissing,
    BootstrapSeed,
    Cluster,
    Configs,
    DatasetFolder,
    ForSpreadsheets,
    MergeLabels,
    Replicates,
    TableFormat,
    command,
    input_option,
    needing,
    option,
    statistics_option,
)
from merge_dataset.files import to_json
from merge_metric.tracking import log_results, require_tracker

log = logging.getLogger(__name__)

Tables = Annotated[
    TableFormat, option("How to write the tables; JSON has all figures.", "--format")
]
Threshold = Annotated[
    int, statistics_option("Correctness threshold (CT), in percent.", "--ct", min=1, max=100)
]
Explain = Annotated[bool, option("Also say what figures, ranks and tests are.", "--explain")]
By = Annotated[
    list[str] | None,
    input_option(
        "Group also by mlms (a variant counts under each), premise_mlms, hypothesis_mlms, "
        "original or replacement; may be repeated."
    ),
]
Figure = Annotated[
    list[str] | None,
    option(
        "Also show this figure, such as core_index or agreement; may be repeated. JSON has all."
    ),
]


@command()
def score_command(
    predictions: Annotated[
        Path, typer.Argument(help="The predictions file: .parquet, .jsonl, .jsonl.gz, .csv.")
    ],
    dataset: Annotated[
        Path | None,
        input_option(
            "The dataset folder or name, which knows subsamples and word classes.", **OF_DATASET
        ),
    ] = None,
    config: Configs = None,
    output: Tables = "text",
    explain: Explain = False,
    allow_missing: AllowMissing = False,
    merge_labels: MergeLabels = None,
    by: By = None,
    n_bootstrap: Replicates = 1000,
    rng_seed: BootstrapSeed = 0,
    cluster: Cluster = "",
    ct: Threshold = 90,
    figure: Figure = None,
    fail_under: Annotated[
        list[str] | None,
        option(
            "Exit with 1 if a figure of some configuration is lower, such as "
            "seed_variant_accuracy=0.7; may be repeated.",
            metavar="FIGURE=VALUE",
        ),
    ] = None,
    fail_over: Annotated[
        list[str] | None,
        option(
            "The same if it is higher, such as relaxed_fooling_rate=0.4.", metavar="FIGURE=VALUE"
        ),
    ] = None,
    reporting: Annotated[
        bool,
        option(
            "Print what a paper should say of the figures: sentences, a table for LaTeX, and what "
            "to cite.",
            "--reporting",
        ),
    ] = False,
    per_seed: Annotated[
        Path | None,
        option(
            "Also write a row per seed: texts, gold label, votes, variants right, answers, "
            "agreement; to a .parquet, .csv or .jsonl file."
        ),
    ] = None,
    for_spreadsheets: ForSpreadsheets = False,
    overwrite: Annotated[bool, option("Replace the file of --per-seed.", "--overwrite")] = False,
    log_to: Annotated[
        list[str] | None,
        option(
            "Also log the main figures to wandb, mlflow or tensorboard, where their environment "
            "variables say (WANDB_MODE, MLFLOW_TRACKING_URI, TENSORBOARD_LOGGING_DIR); may be "
            "repeated.",
            metavar="TRACKER",
        ),
    ] = None,
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
        --fail-under seed_variant_accuracy=0.7 --fail-over relaxed_fooling_rate=0.4
    """  # \b is a mark of click: keep the lines that follow
    from merge_metric.frame.answer_table import PredictionsSource
    from merge_metric.frame.joined import read_frames
    from merge_metric.frame.per_seed import check_seed_file, seed_results, write_seed_results
    from merge_metric.frame.predictions import model_name
    from merge_metric.score import (
        failures,
        read_gates,
        score_all,
        scores_tables,
        scores_text,
    )
    from merge_metric.seed_variant_accuracy.figures import figure_named
    from merge_metric.seed_variant_accuracy.options import Settings, check_cluster

    if reporting and dataset is None:
        raise ValueError("--reporting: expected the --dataset that the figures are of")
    settings = Settings(ct, n_bootstrap, rng_seed)
    more = [figure_named(key, ct) for key in figure or ()]
    gates = read_gates(fail_under or (), fail_over or (), ct)
    for tracker in log_to or ():
        with needing(tracker):
            require_tracker(tracker)
    check_seed_file(per_seed, overwrite=overwrite, for_spreadsheets=for_spreadsheets)
    check_cluster(cluster, n_bootstrap)
    answered = read_frames(
        PredictionsSource("", predictions),
        dataset,
        config or (),
        by=by or (),
        cluster=cluster,
        allow_missing=allow_missing,
        with_rows=False,
        merge_labels=merge_labels or (),
    )
    frames = list(answered)
    results = score_all(frames, settings, shown=output not in ("json", "csv"))
    if per_seed:
        write_seed_results(per_seed, seed_results(frames), for_spreadsheets=for_spreadsheets)
        log.info("%s: written, a row per seed", per_seed)
    if reporting and dataset:
        from merge_metric.reporting import reporting as written

        typer.echo(written({model_name(predictions): results}, dataset))
        return
    match output:
        case "json":
            about = {"predictions": str(predictions), "dataset": dataset and str(dataset)}
            typer.echo(to_json(about | {"results": results}))
        case "text":
            typer.echo(scores_text(results, ct, more=more, cluster=cluster, explain=explain))
        case _:
            typer.echo(scores_tables(results, ct, more, output))
    for tracker in log_to or ():
        model = model_name(predictions)
        place = log_results(tracker, results, model=model, dataset=str(dataset or ""))
        log.info("%s: logged to %s", tracker, place)
    if failed := failures(results, gates):
        typer.echo("\n".join(failed), err=True)
        raise typer.Exit(1)


@command()
def compare_command(
    predictions: Annotated[
        list[str],
        typer.Argument(help="Predictions files of two or more models, as FILE or NAME=FILE."),
    ],
    dataset: DatasetFolder,
    config: Configs = None,
    output: Tables = "text",
    explain: Explain = False,
    allow_missing: AllowMissing = False,
    merge_labels: MergeLabels = None,
    n_bootstrap: Annotated[
        int, statistics_option("Replicates for intervals; tests take more if need be.", min=1)
    ] = 1000,
    rng_seed: BootstrapSeed = 0,
    cluster: Cluster = "",
    ct: Threshold = 90,
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
    from merge_metric.compare import compare_files
    from merge_metric.tables import Column

    comparisons = compare_files(
        predictions,
        dataset,
        config or (),
        cluster=cluster,
        allow_missing=allow_missing,
        correctness_threshold=ct,
        n_bootstrap=n_bootstrap,
        rng_seed=rng_seed,
        merge_labels=merge_labels or (),
    )
    match output:
        case "json":
            whole = {"dataset": str(dataset), "comparisons": [c.as_dict() for c in comparisons]}
            typer.echo(to_json(whole, allow_nan=False))
        case "text":
            typer.echo("\n\n\n".join(of.to_text(explain=explain) for of in comparisons))
        case "csv":  # one table only: `score` shows the models' own figures
            rows = [{"config": c.config, **row} for c in comparisons for row in c.pairs.rows]
            columns = (Column("config", "configuration"), *comparisons[0].pairs.columns)
            typer.echo(replace(comparisons[0].pairs, columns=columns, rows=tuple(rows)).to_csv())
        case _:
            tables = [table for c in comparisons for table in (c.models, c.pairs)]
            typer.echo("\n\n".join(getattr(table, f"to_{output}")() for table in tables))
