"""The commands `show`, `check` and `annotate`."""

import os
from dataclasses import asdict
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
        Path, typer.Argument(file_okay=False, help="The dataset folder, for example ./merge-nli.")
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


_SAMPLE, _PAGE, _FILES = "The sample", "The page", "Other tools"

SessionFolder = Annotated[Path, option("The session's folder.", file_okay=False)]
Begun = Annotated[
    Path | None,
    typer.Argument(
        exists=True, file_okay=False, help="The dataset folder, to begin a session with."
    ),
]
Annotator = Annotated[str | None, option("Who annotates; opens the page for them.", metavar="NAME")]
PerClass = Annotated[
    int | None, option("Variants of each source and class. Default: 100.", panel=_SAMPLE, min=1)
]
PerSource = Annotated[
    int | None,
    option("Variants of each source, over all of its classes, instead.", panel=_SAMPLE, min=1),
]
Sampled = Annotated[list[str] | None, config_option("all but paraphrases", panel=_SAMPLE)]
DrawSeed = Annotated[int | None, option("Seed of the random sample.", panel=_SAMPLE)]
Port = Annotated[int, option("On 127.0.0.1; 0: any that is free.", panel=_PAGE, min=0, max=65535)]
Browser = Annotated[bool, option("Open the page in the browser.", panel=_PAGE)]
ExportTo = Annotated[
    Path | None,
    option(
        "Write the items as a table (.csv) or as Label Studio's tasks (.json).",
        metavar="FILE",
        panel=_FILES,
    ),
]
ImportFrom = Annotated[
    Path | None,
    option(
        "Take in answers: a table, Label Studio's JSON or JSON-MIN, or another session's .jsonl.",
        "--import",
        metavar="FILE",
        panel=_FILES,
    ),
]
OverwriteAnswers = Annotated[
    bool,
    option("Let imported answers replace others of the annotator.", "--overwrite", panel=_FILES),
]


@user_errors()
@with_settings
def annotate_command(
    out: SessionFolder,
    dataset: Begun = None,
    annotator: Annotator = None,
    per_class: PerClass = None,
    per_source: PerSource = None,
    config: Sampled = None,
    rng_seed: DrawSeed = None,
    port: Port = 0,
    browser: Browser = True,
    export: ExportTo = None,
    import_: ImportFrom = None,
    overwrite: OverwriteAnswers = False,
    output: Format = "text",
) -> None:
    """Judge variants by hand: fluency and reasoning, from 1 to 5; paraphrases by their meaning.

    The first time, a sample is drawn from the dataset, spread over sources, classes and
    masked LMs, and kept in the session's folder. Then a page opens for one annotator, on
    this machine only; every answer is saved at once, and the same command goes on where
    they stopped. Each annotator has a command of their own, and sees nobody else's answers.

    Without --annotator, --export and --import the sample is only drawn. Paraphrases are
    drawn where --config names them, into a session of their own.

    \b
    Examples:
      merge-nli annotate merge-nli --out study --annotator ann

    \b
      merge-nli annotate --out study --annotator bo --no-browser --port 8765

    \b
      merge-nli annotate merge-nli --out nouns --config snli_nouns --per-class 50
        --export nouns.csv

    \b
      merge-nli annotate --out study --import filled-in.csv --annotator cy

    \b
      merge-nli annotate merge-nli --out pairs --config snli_paraphrases --annotator ann
    """  # \b is a mark of click: keep the lines that follow
    from merge_dataset.annotation.session import open_session

    if export and import_:
        raise ValueError("expected --export or --import, got both")
    if per_class is not None and per_source is not None:
        raise ValueError("expected --per-class or --per-source, got both")
    sizes = {"per_class": per_class, "per_source": per_source}
    session = open_session(out, dataset, config or (), **sizes, rng_seed=rng_seed)
    if export:
        from merge_dataset.annotation.transfer import export_items

        written = [str(file) for file in export_items(session, export, annotator)]
        text = f"{len(session.items):,} items: {', '.join(written)}"
        write_result(output, {"written": written}, text)
    elif import_:
        from merge_dataset.annotation.transfer import import_answers, import_lines

        taken = import_answers(session, import_, annotator, overwrite=overwrite)
        imported = {"imported": [asdict(each) for each in taken]}
        write_result(output, imported, *import_lines(session, taken))
    elif annotator:
        from merge_dataset.annotation.server import serve_until_stopped

        serve_until_stopped(session, annotator, port=port, browser=browser, tell=typer.echo)
    else:
        following = f"Next: merge-nli annotate --out {session.folder} --annotator NAME"
        drawn = [
            f"  {each['source']} {each['class']}: {each['sampled']:,} of {each['variants']:,}"
            for each in session.description["population"]
        ]
        count = f"{session.folder}: {len(session.items):,} variants"
        write_result(output, session.description, count, *drawn, following)
