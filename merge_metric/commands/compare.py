"""The command `compare`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from merge_dataset.commands.command_line import (
    AllowMissing,
    BootstrapSeed,
    Configs,
    DatasetFolder,
    OutputFormat,
    option,
    user_errors,
)


@user_errors()
def compare_command(
    predictions: Annotated[
        list[str], typer.Argument(help="Predictions files, FILE or NAME=FILE, of two models up.")
    ],
    dataset: DatasetFolder,
    config: Configs = None,
    output: Annotated[OutputFormat, option("How to write the figures.", "--format")] = "text",
    allow_missing: AllowMissing = False,
    n_bootstrap: Annotated[
        int, option("Replicates for intervals; tests take more if need be.", min=1)
    ] = 1000,
    rng_seed: BootstrapSeed = 0,
    ct: Annotated[float, option("Correctness threshold, 1 to 100.", metavar="PERCENT")] = 90,
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
    from merge_metric.compare import compare_files

    comparisons = compare_files(
        predictions,
        dataset,
        config or (),
        allow_missing=allow_missing,
        correctness_threshold=read_threshold(ct),
        n_bootstrap=n_bootstrap,
        rng_seed=rng_seed,
    )
    if output == "json":
        whole = {"dataset": str(dataset), "comparisons": [c.as_dict() for c in comparisons]}
        typer.echo(json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        typer.echo("\n\n\n".join(comparison.to_text() for comparison in comparisons))


def read_threshold(value: float) -> int:
    """Check a correctness threshold, in percent, as a command line has it.

    Raises:
        ValueError: it is no whole number from 1 to 100.
    """
    from merge_metric.seed_variant_accuracy.options import check_threshold

    return check_threshold(int(value) if value.is_integer() else value)
