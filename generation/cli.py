"""The command `merge-nli`: the commands of all three packages in one app."""

import logging
from contextlib import suppress
from typing import Annotated

import typer

from generation.commands.generate import (
    build_command,
    count_command,
    demo_command,
    diff_command,
    generate_command,
    paraphrase_command,
    signals_command,
    suggest_command,
)
from generation.commands.models import models_command
from merge_dataset.commands.command_line import INTERRUPTED, STOPPED, is_stop
from merge_dataset.commands.judge import annotate_command, check_command, show_command
from merge_dataset.commands.wrong_use import OneLineErrors
from merge_metric.commands.analyse import analyse_command
from merge_metric.commands.export import export_app
from merge_metric.commands.predict import baseline_app, predict_command
from merge_metric.commands.publish import publish_app, register_command
from merge_metric.commands.report import agreement_command, report_command
from merge_metric.commands.score import compare_command, score_command
from merge_metric.register import register_metric

app = typer.Typer(
    cls=OneLineErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="MERGE: test NLI models on minimal variants of NLI problems.",
    epilog="Start with: merge-nli demo. Then see: merge-nli COMMAND --help.",
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"merge-nli {version('merge-nli')}")
        raise typer.Exit


@app.callback()
def _options_of_all(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", help="No progress: warnings and errors alone. Stands anywhere."),
    ] = False,
) -> None:
    if quiet:
        logging.disable(logging.INFO)


# What help shows: the groups in this order, with their commands in this order.
_MAKE, _RUN, _MEASURE = "Make a dataset", "Run models", "Measure"
_JUDGE, _SHARE = "Judge and check", "Share"
_COMMANDS = {
    _MAKE: (
        demo_command,
        generate_command,
        suggest_command,
        build_command,
        paraphrase_command,
        signals_command,
        count_command,
        diff_command,
    ),
    _RUN: (models_command, predict_command),
    _MEASURE: (score_command, compare_command, analyse_command, report_command),
    _JUDGE: (show_command, check_command, annotate_command, agreement_command),
    _SHARE: (register_command,),
}
for panel, commands in _COMMANDS.items():
    for command in commands:
        name = command.__name__.removesuffix("_command")
        app.command(name, rich_help_panel=panel)(command)
app.add_typer(baseline_app, name="baseline", rich_help_panel=_RUN)
app.add_typer(export_app, name="export", rich_help_panel=_SHARE)
app.add_typer(publish_app, name="publish", rich_help_panel=_SHARE)


def main(*, is_stopped: bool = False) -> None:
    """Register the metric and run a command; Ctrl+C before it has begun ends it in a line, too."""
    try:
        if is_stopped:
            raise KeyboardInterrupt
        # So that `evaluate.load` finds the metric from now on; `register` says what is wrong with
        # a cache that cannot be written to.
        with suppress(OSError):
            register_metric(wait=False)
        app()
    except (KeyboardInterrupt, Exception) as error:
        if not is_stop(error):
            raise
        typer.echo(f"\n{STOPPED}", err=True)
        raise SystemExit(INTERRUPTED) from None
