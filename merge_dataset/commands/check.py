"""The command `check`."""

from __future__ import annotations

from pathlib import Path

import typer

from merge_dataset.commands.command_line import DatasetArgument, Format, user_errors, write_result
from merge_dataset.schema import DATASET_NAME


@user_errors()
def check_command(folder: DatasetArgument = Path(DATASET_NAME), output: Format = "text") -> None:
    """Check a dataset folder: columns, ids, labels, substitutions, paraphrases, card.

    Exit code 1 when problems are found.

    \b
    Examples:
      merge-nli check merge-nli
      merge-nli check merge-nli --format json
    """  # \b is a mark of click: keep the lines that follow
    from merge_dataset.checks import check_dataset

    problems = check_dataset(folder)
    whole = {"folder": str(folder), "problems": problems}
    write_result(output, whole, *(problems or [f"{folder}: good"]))
    if problems:
        raise typer.Exit(1)
