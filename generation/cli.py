"""The command `merge-nli`: the commands of all three packages in one app."""

import logging
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from merge_dataset.commands.command_line import INTERRUPTED, STOPPED, is_stop, needing
from merge_dataset.files import describe_os_error
from merge_dataset.redaction import mask_urls
from merge_metric.register import register_metric

_COMMANDS: Final = {
    **dict.fromkeys(
        ["demo", "generate", "suggest", "build", "paraphrase", "signals"], "Make a dataset"
    ),
    **dict.fromkeys(["models", "predict", "baseline"], "Run models"),
    **dict.fromkeys(["score", "compare", "analyse", "report"], "Measure"),
    **dict.fromkeys(["show", "check", "annotate", "judge", "agreement"], "Judge and check"),
    **dict.fromkeys(["register", "export", "publish"], "Share"),
}
"""Command → its panel of the help, in this order."""


class _Commands(TyperGroup):
    """A group that imports a command when it is needed, and reports wrong use in one line."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        commands: dict[str, Any] = dict.fromkeys(_COMMANDS)
        self.commands = commands | dict(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Find a command; import it the first time."""
        if cmd_name not in _COMMANDS or self.commands[cmd_name] is not None:
            return self.commands.get(cmd_name)
        module: ModuleType
        match cmd_name:
            case "models":
                from generation.commands import models as module
            case "predict" | "baseline" | "judge":
                from merge_metric.commands import predict as module
            case "score" | "compare":
                from merge_metric.commands import score as module
            case "analyse":
                from merge_metric.analyses.registry import MAKERS
                from merge_metric.commands import analyse as module

                MAKERS["counts"] = _count
            case "report" | "agreement":
                from merge_metric.commands import report as module
            case "show" | "check" | "annotate":
                from merge_dataset.commands import show as module
            case "register" | "publish":
                from merge_metric.commands import publish as module
            case "export":
                from merge_metric import exports as module
            case _:
                from generation.commands import generate as module
        part = getattr(module, f"{cmd_name}_app", None)
        if part is None:
            part = typer.Typer(add_completion=False, rich_markup_mode="rich")
            part.command(cmd_name)(getattr(module, f"{cmd_name}_command"))
        command: Any = typer.main.get_command(part)
        command.name, command.rich_help_panel = cmd_name, _COMMANDS[cmd_name]
        self.commands[cmd_name] = command
        return command

    def main(self, args: Any = None, prog_name: str | None = None, **more: Any) -> Any:  # type: ignore[override]  # releases differ
        """Run a command and exit with its code, as the base class does."""
        if not more.pop("standalone_mode", True):
            return super().main(args, prog_name, standalone_mode=False, **more)
        try:
            code = super().main(args, prog_name, standalone_mode=False, **more) or 0
        except Exception as error:
            told, code = "", getattr(error, "exit_code", 2)
            if is_stop(error):  # an error that the import of a library in C made of Ctrl+C
                code = INTERRUPTED
            elif isinstance(error, typer.Abort):
                told, code = "stopped", 1
            elif isinstance(error, OSError):  # of --help or --version, with no room for the text
                told = describe_os_error(error)
            # Typer bundles click or uses an installed one, depending on the release.
            elif not hasattr(error, "format_message"):
                raise
            elif type(error).__name__ != "NoArgsIsHelpError":  # else the help was shown
                told = " ".join(error.format_message().split()).rstrip(".")
                context = getattr(error, "ctx", None)
                if context is not None and not told.endswith("?"):
                    told = f"{told}; `{context.command_path} -h` says more"
            if told:
                typer.echo(f"error: {mask_urls(told)}", err=True)
        if code == INTERRUPTED:
            typer.echo(f"\n{STOPPED}", err=True)
        sys.exit(code)


def _count(run: Path) -> None:
    with needing("generation"):
        from generation.run_counts import count_run

        count_run(run)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    # Commands with rare options have a `--help-all` of their own.
    context_settings={"help_option_names": ["-h", "--help", "--help-all"]},
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


def main(*, is_stopped: bool = False) -> None:
    """Register the metric and run a command; Ctrl+C, also before it begins, ends it with a line."""
    try:
        if is_stopped:
            raise KeyboardInterrupt
        # `evaluate.load` finds the metric from now on; the command `register` reports what is
        # wrong with a cache that cannot be written to.
        with suppress(OSError):
            register_metric(wait=False)
    except KeyboardInterrupt:
        typer.echo(f"\n{STOPPED}", err=True)
        sys.exit(INTERRUPTED)
    app()
