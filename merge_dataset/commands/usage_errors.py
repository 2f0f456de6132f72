"""Mistakes in the words of a command line, told in one line like every other error.

Typer frames them in several lines, and its words for a wrong value depend on its release.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import typer
from typer.core import TyperGroup

from merge_dataset.commands.command_line import INTERRUPTED, STOPPED
from merge_dataset.redaction import mask_urls

_WRONG_VALUES: Final = (
    (r"valid integer", "a whole number"),
    (r"valid (?:number|float)", "a number"),
    (r"(?:greater than or equal to|x>=) ?(-?\d+(?:\.\d+)?)", r"\1 or more"),
    (r"(?:less than or equal to|x<=) ?(-?\d+(?:\.\d+)?)", r"\1 or less"),
    (r"is a file", "a folder"),
)
"""Words of Typer's releases about a value → what was expected."""

_MANY: Final = 10
"""Choices that a message lists at most; the help has them all."""
_CHOICES: Final = re.compile(r"is not one of ([^.]+)")
_QUOTED: Final = re.compile(r"'([^']*)'")


class OneLineErrors(TyperGroup):
    """A group of commands whose wrong use is told in one line, with exit code 2."""

    def main(self, args: Any = None, prog_name: str | None = None, **more: Any) -> Any:  # type: ignore[override]  # releases differ
        """Run a command and leave with its exit code, as the base class does."""
        if not more.pop("standalone_mode", True):
            return super().main(args, prog_name, standalone_mode=False, **more)
        given = list(sys.argv[1:] if args is None else args)
        try:
            sys.exit(super().main(args, prog_name, standalone_mode=False, **more) or 0)
        except typer.Abort:
            typer.echo("error: stopped", err=True)
            sys.exit(1)
        except Exception as error:
            # Typer brings its own copy of click, or takes an installed one: by release.
            if not hasattr(error, "format_message"):
                raise
            if message := describe_error(error, given):
                typer.echo(f"error: {mask_urls(message)}", err=True)
            sys.exit(getattr(error, "exit_code", 2))

    def make_context(self, *args: Any, **more: Any) -> Any:
        """Read the options of all commands; Ctrl+C meanwhile is told as it is of a command."""
        with _telling_of_a_stop():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        """Read the words of a command and run it; see `make_context`."""
        with _telling_of_a_stop():
            return super().invoke(ctx)


@contextmanager
def _telling_of_a_stop() -> Iterator[None]:
    """Turn Ctrl+C, on which Typer says nothing, into a line and an exit code."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"\n{STOPPED}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def describe_error(error: Any, given: Sequence[str]) -> str:
    """Say what is wrong with a command line; nothing where help was shown instead.

    Args:
        error: A usage error of Typer's or click's.
        given: The words of the command line.
    """
    kind, context = type(error).__name__, getattr(error, "ctx", None)
    help_ = f"`{context.command_path} -h` says more" if context else "`merge-nli -h` says more"
    if kind == "NoArgsIsHelpError":
        return ""
    if kind == "NoSuchOption":
        parameters = error.ctx.command.params if error.ctx else ()
        known = [name[2:] for each in parameters for name in each.opts if name.startswith("--")]
        said = error.option_name.lstrip("-")
        near = difflib.get_close_matches(said, known, n=1) or [k for k in known if said in k]
        hint = f"; did you mean --{near[0]}?" if near else ""
        return _ended(f"no option {error.option_name}{hint}", help_)
    if kind == "BadOptionUsage":
        return f"{error.option_name}: expected a value after it, got none; {help_}"
    parameter = getattr(error, "param", None)
    if parameter is None:
        message = error.format_message().strip().rstrip(".").replace(". Did", "; did")
        return _ended(f"{message[:1].lower()}{message[1:]}", help_)
    is_option = parameter.param_type_name == "option"  # else it is called as in the help
    shown = parameter.metavar or parameter.name
    name = str(max(parameter.opts, key=len)) if is_option else str(shown).upper()
    if kind == "MissingParameter":
        return f"{name}: expected a value, got none; {help_}"
    value = None
    for place, word in enumerate(given):  # the last one counts
        option, equals, after = word.partition("=")
        if option in parameter.opts:
            value = after if equals else next(iter(given[place + 1 : place + 2]), None)
    return _ended(f"{name}: {_expected(error.message, value)}", help_)


def _ended(message: str, help_: str) -> str:
    """Point to the help where a message does not say already what was meant."""
    return message if message.endswith("?") else f"{message}; {help_}"


def _expected(said: str, value: str | None) -> str:
    """Turn what Typer says of a value into "expected …, got …"."""
    if choices := _CHOICES.search(said):
        known = _QUOTED.findall(choices[1])
        wrong = value or next(iter(_QUOTED.findall(said[: choices.start()])), None)
        near = difflib.get_close_matches(wrong or "", known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        some = f"one of {', '.join(known)}" if len(known) <= _MANY else "a known name"
        return f"expected {some}, got {wrong!r}{hint}"
    if "does not exist" in said:
        wrong = value or _QUOTED.findall(said)[-1]
        what = "folder" if said.lower().startswith("dir") else "file"
        return f"expected a {what} that exists, got {wrong!r}"
    for pattern, expected in _WRONG_VALUES:
        if found := re.search(pattern, said):
            wrong = value or next(iter(_QUOTED.findall(said)), None)
            return f"expected {found.expand(expected)}" + (f", got {wrong!r}" if wrong else "")
    return said.rstrip(".")
