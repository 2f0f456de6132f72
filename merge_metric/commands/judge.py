"""The command `judge`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from merge_dataset.commands.command_line import (
    OF_DATASET,
    Dealt,
    Format,
    Given,
    OptionsOf,
    command,
    config_option,
    distribution_of,
    input_option,
    option,
    write_result,
)
from merge_metric.commands.predict import (
    BatchIn,
    BatchOut,
    DryRun,
    Overwrite,
    Prices,
    Tokenizer,
    ask_model,
)
from merge_metric.models.pair_model import ModelRequest


@command(extra="predict")
def judge_command(
    *,
    judged: Annotated[
        Path | None,
        typer.Argument(
            help="The dataset folder, its registered name, or a session of merge-nli annotate. "
            "Without it, the trial alone.",
            **OF_DATASET,
        ),
    ] = None,
    model: Annotated[
        str, input_option("Folder, Hub id, .gguf file, or a server's name for it.", "--model")
    ],
    config: Annotated[list[str] | None, config_option("all but paraphrases")] = None,
    against: Annotated[
        Path | None,
        input_option(
            "A session with judgements for the trial. Default: 120 variants that come with "
            "merge-nli.",
            file_okay=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "The judge's file, .parquet. Default: MODEL.parquet, of a session in its answers, "
            "else in judgements."
        ),
    ] = None,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    prices: Prices = None,
    tokenizer: Tokenizer = None,
    batch_out: BatchOut = None,
    batch_in: BatchIn = None,
    given: Annotated[Given, OptionsOf(ModelRequest, "predict", defaults=True)],
    dealt: Dealt,
    output: Format = "text",
) -> None:
    """Ask a language model how fluent and how right variants are, after a trial.

    The judge scores fluency and reasoning from 1 to 5, as people do in merge-nli annotate.
    It first scores variants that were judged already: how well it tells the good ones (F + R of
    9 or more) is printed. merge-nli agreement, analyse validity and report read its file
    like an annotator's; merge-nli build --judged FILE --min-judged 9 keeps what it
    finds good, if its AUC in the trial is 0.7 or more.

    \b
    Examples:
      merge-nli judge --model Qwen/Qwen3-8B --chat-template --device cuda

    \b
      merge-nli judge merge-nli --model Qwen/Qwen3-8B --chat-template --device cuda

    \b
      merge-nli judge study --base-url https://api.example.com/v1 --model reasoner
        --api-key-env EXAMPLE_KEY --chat-template --answers words --dry-run --prices 1.1 4.4
    """  # \b is a mark of click: keep the lines that follow
    from merge_dataset.annotation import ANSWERS, SESSION, TRUSTED
    from merge_dataset.answer_store import slug
    from merge_metric.judging import BUNDLED, QUESTIONS, keep_figures, questions
    from merge_metric.predict.jobs import jobs_of

    if given["shots"] == "auto":
        given["shots"] = str(QUESTIONS)
    request = ModelRequest(model=model, **given)
    if out is None:
        is_session = judged is not None and (judged / SESSION).is_file()
        folder = judged / ANSWERS if judged and is_session else Path("judgements")
        out = folder / f"{slug(Path(model).name)}.parquet"
    asked, extra = questions(judged, config or (), against=against or BUNDLED)
    if prices:
        extra["prices"] = [*prices]
    done = ask_model(
        jobs_of(request, extra=extra),
        asked,
        output,
        distribution=distribution_of(dealt),
        out=out,
        overwrite=overwrite,
        dry_run=dry_run,
        prices=prices,
        tokenizer=tokenizer,
        batch_out=batch_out,
        batch_in=batch_in,
    )
    if not done:
        return
    if failed := done[1]:
        typer.echo(f"the judge failed: {failed[0]}", err=True)
        raise typer.Exit(1)
    trial, table = keep_figures(out)
    count = (len(asked) - 2 * len(trial.judged)) // 2
    lines = [f"{out}: {count:,} variants judged", "", table.to_text(), ""]
    auc = table.rows[0]["value"] or 0.0
    if auc < TRUSTED:
        lines.append(
            f"Its AUC is below {TRUSTED}: merge-nli build does not filter by it without "
            "--trust-judge."
        )
    elif judged:
        lines.append(f"Next: {shlex.join(['merge-nli', 'agreement', str(out)])}")
    whole = {"file": str(out), "is_trusted": auc >= TRUSTED, "trial": table.as_dict()}
    write_result(output, whole, *lines)
