"""The command `merge-nli`: the commands of all three packages in one app."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from merge_dataset.commands.command_line import INTERRUPTED, STOPPED, is_stop, needing
from merge_dataset.redaction import mask_urls
from merge_metric.register import register_metric

_PANELS: Final = {
    "Make a dataset": "demo generate suggest build paraphrase signals",
    "Run models": "models predict baseline",
    "Measure": "score compare analyse report",
    "Judge and check": "show check annotate judge agreement",
    "Share": "register export publish",
}
"""Panel of the help → its commands, in this order."""

_COMMANDS: Final = {name: panel for panel, names in _PANELS.items() for name in names.split()}


_HINTS: Final = {
    "--json": "--format json",
    "-f": "--format",
    "-o": "> FILE for what goes to stdout, --out for files",
    "--force": "--overwrite",
    "--gpu": "--device cuda",
    "--batch-size": "--batch-tokens",
    "--seed": "--rng-seed",
    "extra": "the value of an option, such as --dataset, or a command for several files: compare",
    "evaluate": "predict, then score",
}
"""Words that people type, as in Typer's message → their meaning; Typer itself suggests spellings.

A second file or folder is an "extra argument".
"""


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
            sys.exit(super().main(args, prog_name, standalone_mode=False, **more) or 0)
        except typer.Abort:
            typer.echo("error: stopped", err=True)
            sys.exit(1)
        except Exception as error:
            # Typer bundles click or uses an installed one, depending on the release.
            if not hasattr(error, "format_message"):
                raise
            if type(error).__name__ != "NoArgsIsHelpError":  # the help was shown instead
                typer.echo(f"error: {mask_urls(_describe(error))}", err=True)
            sys.exit(getattr(error, "exit_code", 2))

    def make_context(self, *args: Any, **more: Any) -> Any:
        """Parse the options of all commands; handle Ctrl+C as during a command."""
        with telling_of_a_stop():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        """Parse the arguments of a command and run it; see `make_context`."""
        with telling_of_a_stop():
            return super().invoke(ctx)


@contextmanager
def telling_of_a_stop() -> Iterator[None]:
    """Turn Ctrl+C, also as a SystemError of a C import, into a message and an exit code."""
    try:
        yield
    except (KeyboardInterrupt, Exception) as error:
        if not is_stop(error):
            raise
        typer.echo(f"\n{STOPPED}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _describe(error: Any) -> str:
    """Say in one line what is wrong with a command line, and what was probably meant."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    if context is None or message.endswith("?"):
        return message
    known = {name for parameter in context.command.params for name in parameter.opts}
    for word in message.replace("'", "").split():
        hint = _HINTS.get(word)
        if hint and (not hint.startswith("--") or hint.split()[0] in known):
            return f"{error.message.rstrip('.')}; did you mean {hint}?"
    return f"{message}; `{context.command_path} -h` says more"


def _count(run: Path) -> None:
    with needing("generation"):
        from generation.run_counts import count_run

        count_run(run)


app = typer.Typer(
    cls=_Commands,
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


def main(*, is_stopped: bool = False) -> None:
    """Register the metric and run a command; Ctrl+C, also before it begins, ends it with a line."""
    try:
        with telling_of_a_stop():
            if is_stopped:
                raise KeyboardInterrupt
            # `evaluate.load` finds the metric from now on; the command `register` reports what is
            # wrong with a cache that cannot be written to.
            with suppress(OSError):
                register_metric(wait=False)
            app()
    except typer.Exit as stop:
        raise SystemExit(stop.exit_code) from None
