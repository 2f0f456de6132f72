"""The command `register`, for the metric and for a dataset."""

from pathlib import Path
from typing import Annotated

import typer

from merge_dataset.commands.command_line import (
    Format,
    option,
    user_errors,
    with_settings,
    write_result,
)
from merge_dataset.schema import DATASET_NAME


@with_settings
def register_command(
    folder: Annotated[
        Path | None,
        typer.Argument(
            exists=True, file_okay=False, help="Dataset folder; by default ./merge-nli, if any."
        ),
    ] = None,
    cache_dir: Annotated[
        Path | None, option("Cache to use instead of that of `datasets`.", file_okay=False)
    ] = None,
    output: Format = "text",
) -> None:
    """Make the metric and a dataset load by name from any directory, offline.

    For evaluate.load("seed_variant_accuracy") and load_dataset("merge-nli", …).
    The folder is checked first. Register again after building anew. The metric is also
    registered by every other command, where its cache can be written to.

    \b
    Examples:
      merge-nli register

    \b
      merge-nli register merge-nli --cache-dir /scratch/datasets
    """
    if folder is None and Path(DATASET_NAME).is_dir():
        folder = Path(DATASET_NAME)
    configs: list[str] = []
    problem: ValueError | None = None
    with user_errors():
        from merge_dataset.register import register_dataset
        from merge_metric.register import METRIC_NAME, register_metric

        register_metric()
        try:
            configs = register_dataset(folder, cache_dir) if folder else []
        except ValueError as error:
            problem = error
    write_result(
        output,
        {"metric": METRIC_NAME, "folder": folder and str(folder), "registered": configs},
        f'evaluate.load("{METRIC_NAME}")',
        *(f'load_dataset("{DATASET_NAME}", "{config}")' for config in configs),
    )
    if folder is None:
        typer.echo(f"No folder {DATASET_NAME} here: no dataset registered.", err=True)
    if problem:
        typer.echo(f"{folder}: not registered: {problem}", err=True)
        raise typer.Exit(1)
