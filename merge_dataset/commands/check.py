"""Commands on dataset folders: `check` and `register`."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from merge_dataset.commands.command_line import user_errors as user_errors

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, help=__doc__)


class OutputFormat(StrEnum):
    """How a command writes its result."""

    text = "text"
    json = "json"


Folder = Annotated[
    Path,
    typer.Argument(
        exists=True, file_okay=False, help="The dataset folder, for example ./merge-nli."
    ),
]
Format = Annotated[OutputFormat, typer.Option("--format", help="How to write the result.")]


@app.command("check")
def check_command(folder: Folder = Path("merge-nli"), output: Format = OutputFormat.text) -> None:
    """Check a dataset folder: columns, ids, labels, substitutions, paraphrases, card.

    Exit code 1 when problems are found.

    \b
    Examples:
      merge-nli check merge-nli
      merge-nli check merge-nli --format json
    """  # \b is a mark of click: keep the lines that follow
    from merge_dataset.checks.run import check_dataset

    problems = check_dataset(folder)
    _write(output, {"folder": str(folder), "problems": problems}, problems or [f"{folder}: good"])
    if problems:
        raise typer.Exit(1)


@app.command("register")
def register_command(
    folder: Folder = Path("merge-nli"),
    cache_dir: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Cache to use instead of that of `datasets`."),
    ] = None,
    output: Format = OutputFormat.text,
) -> None:
    """Make load_dataset("merge-nli", …) find a folder from any directory, offline.

    The folder is checked first. Register again after building anew.

    \b
    Examples:
      merge-nli register merge-nli
      merge-nli register merge-nli --cache-dir /scratch/datasets
    """
    try:
        names = register_folder(folder, cache_dir)
    except ValueError as error:
        typer.echo(f"{folder}: not registered: {error}", err=True)
        raise typer.Exit(1) from error
    lines = [f'load_dataset("merge-nli", "{name}")' for name in names]
    _write(output, {"folder": str(folder), "registered": names}, lines)


def register_folder(folder: Path, cache_dir: Path | None = None) -> list[str]:
    """Check a dataset folder and register it; the configurations that load now.

    Raises:
        ValueError: the check found problems, which the message lists.
    """
    from merge_dataset.checks.run import check_dataset
    from merge_dataset.register import register_dataset

    if problems := check_dataset(folder):
        raise ValueError("\n  ".join([f"{len(problems)} problem(s)", *problems]))
    return register_dataset(folder, cache_dir)


def _write(output: OutputFormat, value: dict[str, object], lines: list[str]) -> None:
    if output is OutputFormat.json:
        typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        typer.echo("\n".join(lines))


if __name__ == "__main__":
    app()
