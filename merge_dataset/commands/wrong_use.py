"""One-line messages for wrong use of the command line, with suggestions."""

import difflib
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperGroup

from merge_dataset.commands.command_line import telling_of_a_stop
from merge_dataset.redaction import mask_urls

_WRONG_VALUES: Final = (
    (r"valid integer", "a whole number"),
    (r"valid (?:number|float)", "a number"),
    (r"(?:greater than or equal to|x>=) ?(-?\d+(?:\.\d+)?)", r"\1 or more"),
    (r"(?:less than or equal to|x<=) ?(-?\d+(?:\.\d+)?)", r"\1 or less"),
    (r"is a file", "a folder"),
)
"""Message of a Typer release about a value → expectation."""

_CHOICES: Final = re.compile(r"is not one of ([^.]+)")
_QUOTED: Final = re.compile(r"'([^']*)'")


_FORMATS: Final = ("text", "json", "csv", "markdown", "latex")
_FILES: Final = ("o", "out", "output", "outfile", "save")
_MEANT: Final = {
    **dict.fromkeys(("json", "as-json"), ("format json",)),
    **dict.fromkeys(("csv", "markdown", "latex"), ("format",)),
    **dict.fromkeys(("n", "bootstrap", "samples", "replicates"), ("n-bootstrap", "limit-seeds")),
    **dict.fromkeys(("plot", "plots", "figure", "figures"), ("figures", "plots", "out")),
    **dict.fromkeys(_FILES, ("out",)),
    **dict.fromkeys(("d", "data", "dataset"), ("dataset", "data")),
    **dict.fromkeys(("i", "input", "file"), ("data", "dataset")),
    **dict.fromkeys(("force", "y"), ("overwrite", "yes")),
    "f": ("format", "overwrite"),
    **dict.fromkeys(("gpu", "cuda"), ("device cuda",)),
    **dict.fromkeys(("batch-size", "bs"), ("batch-tokens",)),
    **dict.fromkeys(("m", "model-name", "checkpoint"), ("model", "mlm")),
    **dict.fromkeys(("seed", "random-seed"), ("rng-seed",)),
    **dict.fromkeys(("t", "threshold"), ("ct", "correctness-threshold")),
}
"""Option of other tools → our options, likeliest first; only existing ones are named."""

_COMMANDS_MEANT: Final = {
    **dict.fromkeys(("evaluate", "eval", "test", "run"), "predict, then score"),
    **dict.fromkeys(("plot", "curves", "analyze"), "analyse"),
    **dict.fromkeys(("upload", "push"), "publish"),
    **dict.fromkeys(("create", "make"), "generate"),
    **dict.fromkeys(("validate", "verify"), "check"),
    "train": "baseline hypothesis-only",
}
_EXTRA: Final = re.compile(r"unexpected extra argument\S* \((\S+?)[ )]")


class OneLineErrors(TyperGroup):
    """A group of commands that reports wrong use in one line, with exit code 2."""

    def main(self, args: Any = None, prog_name: str | None = None, **more: Any) -> Any:  # type: ignore[override]  # releases differ
        """Run a command and exit with its code, as the base class does."""
        if not more.pop("standalone_mode", True):
            return super().main(args, prog_name, standalone_mode=False, **more)
        given = list(sys.argv[1:] if args is None else args)
        try:
            sys.exit(super().main(args, prog_name, standalone_mode=False, **more) or 0)
        except typer.Abort:
            typer.echo("error: stopped", err=True)
            sys.exit(1)
        except Exception as error:
            # Typer bundles click or uses an installed one, depending on the release.
            if not hasattr(error, "format_message"):
                raise
            if message := describe_error(error, given):
                typer.echo(f"error: {mask_urls(message)}", err=True)
            sys.exit(getattr(error, "exit_code", 2))

    def make_context(self, *args: Any, **more: Any) -> Any:
        """Parse the options of all commands; handle Ctrl+C as during a command."""
        with telling_of_a_stop():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        """Parse the arguments of a command and run it; see `make_context`."""
        with telling_of_a_stop():
            return super().invoke(ctx)


def describe_error(error: Any, given: Sequence[str]) -> str:
    """Say what is wrong with a command line; empty if help was shown instead."""
    kind, context = type(error).__name__, getattr(error, "ctx", None)
    help_ = f"`{context.command_path} -h` says more" if context else "`merge-nli -h` says more"
    if kind == "NoArgsIsHelpError":
        return ""
    if kind == "NoSuchOption":
        parameters = error.ctx.command.params if error.ctx else ()
        known = [name[2:] for each in parameters for name in each.opts if name.startswith("--")]
        said = error.option_name.lstrip("-")
        forms = [b for a, b in pairwise(given) if a == error.option_name and b in _FORMATS]
        meant = (*(f"format {name}" for name in forms), *_MEANT.get(said, ()))
        near = [each for each in meant if each.split()[0] in known]
        near = near or difflib.get_close_matches(said, known, n=1)
        near = near or [each for each in known if said in each.split("-")]
        hint = f"; did you mean --{near[0]}?" if near else ""
        if said in _FILES and not hint:
            return f"no option {error.option_name}: the result goes to stdout; add > FILE"
        return _ended(f"no option {error.option_name}{hint}", help_)
    if kind == "BadOptionUsage":
        return f"{error.option_name}: expected a value after it, got none; {help_}"
    parameter = getattr(error, "param", None)
    if parameter is None:
        message = error.format_message().strip().rstrip(".").replace(". Did", "; did")
        if extra := _EXTRA.search(message):
            message = f"expected no further argument, got {extra[1]}"
        if instead := _instead_of(error.format_message(), context):
            message = f"{message.partition(';')[0]}; did you mean {instead}?"
        return _ended(f"{message[:1].lower()}{message[1:]}", help_)
    is_option = parameter.param_type_name == "option"  # otherwise the name in the help
    shown = parameter.metavar or parameter.name
    name = str(max(parameter.opts, key=len)) if is_option else str(shown).upper()
    if kind == "MissingParameter":
        folders = (
            word
            for before, word in pairwise(given)
            if name == "--dataset" and not before.startswith("-") and Path(word).is_dir()
        )
        hint = next((f"did you mean --dataset {each}?" for each in folders), help_)
        return f"{name}: expected a value, got none; {hint}"
    value = None
    for place, word in enumerate(given):  # the last one counts
        option, equals, after = word.partition("=")
        if is_option and option in parameter.opts:
            value = after if equals else next(iter(given[place + 1 : place + 2]), None)
    return _ended(f"{name}: {_expected(error.message, value)}", help_)


def _instead_of(message: str, context: Any) -> str:
    """Suggest a command or option for an unknown word; empty if none is similar."""
    if extra := _EXTRA.search(message):
        from merge_dataset.data_files import is_data_file

        known = {name for each in context.command.params for name in each.opts}
        suffix = "" if Path(extra[1]).is_dir() else Path(extra[1]).suffix
        if suffix and is_data_file(extra[1]) and "--run" in known and "--data" not in known:
            return f"merge-nli generate --data {extra[1]}"  # who else reads problems
        likely = ("--recipe",) if suffix == ".toml" else ("--data", "--out") if suffix else ()
        options = (each for each in likely or ("--dataset", "--run") if each in known)
        return next((f"{option} {extra[1]}" for option in options), "")
    if context is not None and context.parent is None and message.startswith("No such command"):
        return _COMMANDS_MEANT.get(next(iter(_QUOTED.findall(message)), ""), "")
    return ""


def _ended(message: str, help_: str) -> str:
    """End a message with a pointer to the help, unless it has a suggestion."""
    return message if message.endswith("?") else f"{message}; {help_}"


def _expected(said: str, value: str | None) -> str:
    """Convert Typer's message about a value to "expected …, got …"."""
    if choices := _CHOICES.search(said):
        known = _QUOTED.findall(choices[1])
        wrong = value or next(iter(_QUOTED.findall(said[: choices.start()])), None)
        near = difflib.get_close_matches(wrong or "", known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        some = f"one of {', '.join(known)}" if len(known) <= 10 else "a known name"
        return f"expected {some}, got {wrong!r}{hint}"
    if "does not exist" in said:
        what = "folder" if said.lower().startswith("dir") else "file"
        return f"expected a {what} that exists, got {value or _QUOTED.findall(said)[-1]!r}"
    for pattern, expected in _WRONG_VALUES:
        if found := re.search(pattern, said):
            wrong = value or next(iter(_QUOTED.findall(said)), None)
            return f"expected {found.expand(expected)}" + (f", got {wrong!r}" if wrong else "")
    return said.rstrip(".")
