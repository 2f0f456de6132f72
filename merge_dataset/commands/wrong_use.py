"""Wrong use of the command line: Typer's messages in one line, with hints."""

import sys
from typing import Any, Final

import typer
from typer.core import TyperGroup

from merge_dataset.commands.command_line import telling_of_a_stop
from merge_dataset.redaction import mask_urls

HINTS: Final = {
    "--json": "--format json",
    "-f": "--format",
    "-o": "> FILE for what goes to stdout, --out for files",
    "--output": "> FILE for what goes to stdout, --out for files",
    "--force": "--overwrite",
    "--gpu": "--device cuda",
    "--batch-size": "--batch-tokens",
    "--seed": "--rng-seed",
    "extra": "the value of an option, such as --dataset or --run",
    "evaluate": "predict, then score",
}
"""Words that people type, as in Typer's message → their meaning; Typer itself suggests spellings.

A second file or folder is an "extra argument".
"""


class OneLineErrors(TyperGroup):
    """A group of commands that reports wrong use in one line, with exit code 2."""

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
                typer.echo(f"error: {mask_urls(describe_error(error))}", err=True)
            sys.exit(getattr(error, "exit_code", 2))

    def make_context(self, *args: Any, **more: Any) -> Any:
        """Parse the options of all commands; handle Ctrl+C as during a command."""
        with telling_of_a_stop():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        """Parse the arguments of a command and run it; see `make_context`."""
        with telling_of_a_stop():
            return super().invoke(ctx)


def describe_error(error: Any) -> str:
    """Say in one line what is wrong with a command line, and what was probably meant."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    if context is None or message.endswith("?"):
        return message
    known = {name for each in context.command.params for name in each.opts}
    for word in message.replace("'", "").split():
        hint = HINTS.get(word)
        if hint and (not hint.startswith("--") or hint.split()[0] in known):
            return f"{error.message.rstrip('.')}; did you mean {hint}?"
    return f"{message}; `{context.command_path} -h` says more"
