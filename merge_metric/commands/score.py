"""The command `score`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from merge_dataset.commands.command_line import (
    AllowMissing,
    BootstrapSeed,
    Configs,
    Format,
    option,
    user_errors,
    write_result,
)


@user_errors()
def score_command(
    predictions: Annotated[
        Path, typer.Argument(help="The predictions file: .parquet, .jsonl or .jsonl.gz.")
    ],
    dataset: Annotated[
        Path | None, option("The dataset folder, which knows subsamples and word classes.")
    ] = None,
    config: Configs = None,
    output: Format = "text",
    allow_missing: AllowMissing = False,
    by: Annotated[
        list[str] | None,
        option(
            "Group also by mlms (a variant counts under each), premise_mlms, hypothesis_mlms, "
            "original or replacement; may be repeated."
        ),
    ] = None,
    n_bootstrap: Annotated[
        int, option("Replicates for intervals; 0 for no intervals.", min=0)
    ] = 1000,
    rng_seed: BootstrapSeed = 0,
    ct: Annotated[
        float,
        option("Correctness threshold (CT), an integer from 1 to 100.", metavar="PERCENT"),
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
    whole = {
        "predictions": str(predictions),
        "dataset": dataset and str(dataset),
        "results": results,
    }
    write_result(output, whole, render(results, threshold))
