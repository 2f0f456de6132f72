"""The commands `show`, `check` and `annotate`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from merge_dataset.commands.command_line import (
    OF_DATASET,
    DatasetArgument,
    Format,
    command,
    config_option,
    input_option,
    option,
    write_result,
)
from merge_dataset.schema import DATASET_NAME

_PROBLEMS, _VARIANTS = 3, 5


@command()
def show_command(
    folder: DatasetArgument = Path(DATASET_NAME),
    config: Annotated[list[str] | None, config_option("all classes of every source")] = None,
    seed_id: Annotated[
        list[str] | None, input_option("Show this problem; may be repeated.", "--seed-id")
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
    texts = [render(shown, lambda word: typer.style(f"[{word}]", bold=bold)) for shown in problems]
    records = [
        {key: problem[key] for key in ("config", "seed_id", "label")}
        | problem["texts"]
        | {
            "variants_there": problem["counts"].total(),
            "variants": [
                {k: v for k, v in row.items() if v is not None} for row in problem["variants"]
            ],
        }
        for problem in problems
    ]
    write_result(output, {"folder": str(folder), "problems": records}, "\n\n".join(texts))


@command()
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


_SAMPLE = "The sample"


@command()
def annotate_command(
    out: Annotated[Path, option("The session's folder.", file_okay=False)],
    dataset: Annotated[
        Path | None,
        typer.Argument(
            help="The dataset folder, or its registered name, to begin a session.", **OF_DATASET
        ),
    ] = None,
    annotator: Annotated[
        list[str] | None,
        input_option(
            "Who annotates: write them a table to fill in; may be repeated.",
            "--annotator",
            metavar="NAME",
        ),
    ] = None,
    per_class: Annotated[
        int | None, option("Variants of each source and class. Default: 100.", panel=_SAMPLE, min=1)
    ] = None,
    per_source: Annotated[
        int | None,
        option("Variants of each source, over all of its classes, instead.", panel=_SAMPLE, min=1),
    ] = None,
    config: Annotated[list[str] | None, config_option("all but paraphrases", panel=_SAMPLE)] = None,
    rng_seed: Annotated[int | None, option("Seed of the random sample.", panel=_SAMPLE)] = None,
    output: Format = "text",
) -> None:
    """Draw variants for people to judge, as tables and as tasks for Label Studio.

    The first time, a sample is drawn from the dataset, spread over sources, classes and
    masked LMs, and kept in the session's folder, with guidelines and Label Studio's tasks.
    Each annotator gets a table to fill in, answers/NAME.csv, in an order of their own.
    The filled tables, and exports of Label Studio, stay in answers/, where merge-nli
    agreement reads them. Paraphrases are drawn where --config names them, into a session
    of their own.

    \b
    Examples:
      merge-nli annotate merge-nli --out study --annotator ann --annotator bo

    \b
      merge-nli annotate --out study --annotator cy

    \b
      merge-nli annotate merge-nli --out pairs --config snli_paraphrases --annotator ann
    """  # \b is a mark of click: keep the lines that follow
    from merge_dataset.annotation import open_session, write_files

    if per_class is not None and per_source is not None:
        raise ValueError("expected --per-class or --per-source, got both")
    sizes = {"per_class": per_class, "per_source": per_source}
    session = open_session(out, dataset, config or (), **sizes, rng_seed=rng_seed)
    written = write_files(session, annotator or ())
    drawn = [
        f"  {cell['source']} {cell['class']}: {cell['sampled']:,} of {cell['variants']:,}"
        for cell in session.description["population"]
    ]
    count = f"{out}: {len(session.items):,} variants"
    files = [f"  {path}: written" for path in written]
    following = f"Next: fill in tables in {out / 'answers'}, or export there from Label Studio; "
    following += f"then merge-nli agreement {out}"
    whole = {**session.description, "written": [str(path) for path in written]}
    write_result(output, whole, count, *drawn, *files, following)
