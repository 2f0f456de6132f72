"""The commands `show` and `check`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from merge_dataset.commands.command_line import (
    DatasetArgument,
    Format,
    config_option,
    option,
    user_errors,
    with_settings,
    write_result,
)
from merge_dataset.schema import DATASET_NAME

_PROBLEMS, _VARIANTS = 3, 5


@user_errors()
@with_settings
def show_command(
    folder: Annotated[
        Path,
        typer.Argument(
            file_okay=False,
            help="The dataset folder, for example ./merge-nli.",
        ),
    ] = Path(DATASET_NAME),
    config: Annotated[list[str] | None, config_option("all classes of every source")] = None,
    seed_id: Annotated[
        list[str] | None, option("Show this problem; may be repeated.", "--seed-id")
    ] = None,
    n: Annotated[
        int | None,
        option(
            f"Problems of each configuration, drawn at random. Default: {_PROBLEMS}.", "--n", min=1
        ),
    ] = None,
    variants: Annotated[
        int | None,
        option(
            f"Variants of each, drawn at random. Default: {_VARIANTS}, with --seed-id all.", min=1
        ),
    ] = None,
    rng_seed: Annotated[int, option("Seed of the random choice.", min=0)] = 0,
    output: Format = "text",
) -> None:
    """Show problems with their variants, to read; replaced words stand in brackets.

    \b
    Examples:
      merge-nli show merge-nli
      merge-nli show merge-nli --config snli_verbs --n 10 --variants 3

    \b
      merge-nli show merge-nli --seed-id demo:demo-001 --format json
    """  # \b is a mark of click: keep the lines that follow
    from merge_dataset.show import choose_problems, render

    if seed_id and n is not None:
        raise ValueError("--n: expected it or --seed-id, got both")
    drawn = None if seed_id else _VARIANTS
    problems = choose_problems(
        folder,
        config or (),
        seed_ids=seed_id or (),
        n=n or _PROBLEMS,
        variants=variants or drawn,
        rng_seed=rng_seed,
    )
    # Bold on a terminal only: in pipes and files, click leaves it out.
    bold = "NO_COLOR" not in os.environ
    texts = [render(each, lambda word: typer.style(f"[{word}]", bold=bold)) for each in problems]
    whole = {"folder": str(folder), "problems": [each.as_record() for each in problems]}
    write_result(output, whole, "\n\n".join(texts))


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
