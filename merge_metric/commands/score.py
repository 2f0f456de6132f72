"""The command `score`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from merge_dataset.commands.check import OutputFormat, user_errors
from merge_metric.commands.agreement import agreement_command
from merge_metric.commands.analyse import analyse_command, compare_command
from merge_metric.commands.export import export_app
from merge_metric.commands.predict import baseline_app, predict_command
from merge_metric.commands.publish import publish_app
from merge_metric.commands.report import report_command

__all__ = [
    "agreement_command",
    "analyse_command",
    "baseline_app",
    "compare_command",
    "evaluate_demo",
    "export_app",
    "predict_command",
    "publish_app",
    "register_metric",
    "report_command",
    "score_command",
]


def score_command(
    predictions: Annotated[
        Path, typer.Argument(help="The predictions file: .parquet, .jsonl or .jsonl.gz.")
    ],
    dataset: Annotated[
        Path | None,
        typer.Option(help="The dataset folder, which knows subsamples and word classes."),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(help="Configuration to score, e.g. snli_nouns; may be repeated."),
    ] = None,
    output: Annotated[
        OutputFormat, typer.Option("--format", help="How to write the figures.")
    ] = OutputFormat.text,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Leave out seeds that lack a prediction.")
    ] = False,
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="Group also by mlms (a variant counts under each), premise_mlms, hypothesis_mlms, "
            "original or replacement; may be repeated."
        ),
    ] = None,
    n_bootstrap: Annotated[
        int, typer.Option(min=0, help="Replicates for intervals; 0 for no intervals.")
    ] = 1000,
    rng_seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    ct: Annotated[
        float,
        typer.Option(
            metavar="PERCENT", help="Correctness threshold (CT), an integer from 1 to 100."
        ),
    ] = 90,
) -> None:
    """Score a model's predictions: seed-variant (SV) accuracy and what goes with it.

    A predictions file has a row per problem: variant_id (of a seed, its own id),
    seed_id, label, prediction and, optionally, probabilities (of entailment,
    neutral and contradiction). A seed is solved when at least CT percent of its
    variants are classified as the gold label.

    Scored is what the file has answers for: of each source all word classes or, where
    it has none of some class, those that it has, and the paraphrases. Ask for others
    with --config.

    Older names: pattern accuracy (PA) is now SV accuracy, sample accuracy (SA) is
    variant accuracy.

    \b
    Examples:
      merge-nli score predictions.parquet --dataset merge-nli

    \b
      merge-nli score predictions.jsonl --dataset merge-nli --config snli_nouns
        --by mlms --format json

    \b
      merge-nli score unfinished.jsonl --dataset merge-nli --allow-missing
    """  # \b is a mark of click: keep the lines that follow
    with user_errors():
        from merge_metric.score import score_file
        from merge_metric.seed_variant_accuracy.options import check_threshold
        from merge_metric.tables.score_text import render

        threshold = check_threshold(int(ct) if ct.is_integer() else ct)
        results = score_file(
            predictions,
            dataset,
            config or (),
            by=by or (),
            allow_missing=allow_missing,
            correctness_threshold=threshold,
            n_bootstrap=n_bootstrap,
            rng_seed=rng_seed,
        )
        if output is OutputFormat.json:
            whole = {
                "predictions": str(predictions),
                "dataset": dataset and str(dataset),
                "results": results,
            }
            typer.echo(json.dumps(whole, indent=2, ensure_ascii=False))
        else:
            typer.echo(render(results, threshold))


def register_metric() -> str:
    """`register.register`, for the command lines of other packages; the name that loads now."""
    from merge_metric.register import METRIC_NAME, register

    register()
    return METRIC_NAME


def evaluate_demo(dataset: Path, config: str, folder: Path) -> str:
    """`demo.evaluate`, for the command line of another package: imported when it is called."""
    from merge_metric.demo import evaluate

    return evaluate(dataset, config, folder)
