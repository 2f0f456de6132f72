"""Registry of exports: each module of this room registers its commands with `export`.

An export is a function with the options of its command as parameters; its docstring is the help.
It imports heavy libraries when it runs, so that the help answers at once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from merge_dataset.commands.command_line import (
    Format,
    OutputFormat,
    config_option,
    option,
    user_errors,
    with_settings,
    write_result,
)

HARNESSES: Final = "Tasks for harnesses"
FILES: Final = "Files"
"""Headings of the help."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Write a dataset for other tools: harnesses' tasks, metadata, flat files.",
)

Folder = Annotated[Path, typer.Argument(help="The dataset folder.")]
Out = Annotated[Path, option("Folder to write.")]
Configs = Annotated[list[str] | None, config_option("all")]
Overwrite = Annotated[bool, option("Replace an earlier export.", "--overwrite")]


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export, which its command prints."""

    out: Path
    contents: Mapping[str, Any]
    """Contents for `--format json`."""
    text: str
    """Contents as text."""
    next: str
    """The command to run next."""


def export(
    name: str, *, panel: str, extra: str | None = None
) -> Callable[[Callable[..., Exported]], Callable[..., Exported]]:
    """Register a function as the command `merge-nli export NAME`.

    Args:
        name: Name of the command.
        panel: Heading of the help.
        extra: Extra of this distribution that brings what the function imports.
    """

    def register(run: Callable[..., Exported]) -> Callable[..., Exported]:
        @functools.wraps(run)
        def command(*, output: OutputFormat = "text", **options: Any) -> None:
            done = run(**options)
            whole = {"out": str(done.out), **done.contents, "next": done.next}
            write_result(output, whole, done.text, f"Next: {done.next}")

        own = inspect.signature(run, eval_str=True).parameters.values()
        form = inspect.Parameter(
            "output", inspect.Parameter.KEYWORD_ONLY, default="text", annotation=Format
        )
        parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in own] + [form]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name, rich_help_panel=panel)(user_errors(extra=extra)(with_settings(command)))
        return run

    return register


def count(names: Sequence[str], noun: str) -> str:
    """Count names in words.

    >>> count(["a", "b"], "task")
    '2 tasks'
    """
    return f"{len(names)} {noun}{'s' if len(names) > 1 else ''}"
