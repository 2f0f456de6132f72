"""The command `publish dataset`, and options and steps of all commands that publish."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from merge_dataset.commands.command_line import (
    Format,
    OutputFormat,
    option,
    user_errors,
    with_settings,
)
from merge_dataset.files import to_json
from merge_dataset.hub.errors import PublishError
from merge_dataset.schema import DATASET_NAME

if TYPE_CHECKING:
    from merge_dataset.hub.publication import PublishingPlan

Yes = Annotated[bool, option("Do it; without, only say what would be done.", "--yes")]
Private = Annotated[bool, option("Make it private; an existing one must be private.", "--private")]


@contextmanager
def publishing() -> Iterator[None]:
    """Handle errors as `user_errors` does; a refusal by the Hub has exit code 1."""
    # It has a handler of its own, and would say everything twice.
    logging.getLogger("huggingface_hub").propagate = False
    with user_errors(failures=(PublishError,)):
        yield


@publishing()
@with_settings
def publish_dataset_command(
    repo: Annotated[str, option("The dataset repository, OWNER/NAME.")],
    folder: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="The dataset folder.")
    ] = Path(DATASET_NAME),
    version: Annotated[
        str | None,
        option(
            "Version of the data, e.g. 1.0.0. Default: that of the tag with the same data, else "
            "the next minor one."
        ),
    ] = None,
    private: Private = False,
    yes: Yes = False,
    output: Format = "text",
) -> None:
    """Publish a dataset folder on the Hub.

    The folder is checked, uploaded to main in one commit, loaded back with empty caches and
    compared row by row, and tagged with its version. The branch `script` keeps the loading
    script for datasets 3. Without --yes it only shows what it would do.

    Log in before with `hf auth login`, or set HF_TOKEN. A command that was cut short can be
    run again; what is done already is left as it is.

    \b
    Examples:
      merge-nli publish dataset --repo somebody/merge-nli

    \b
      merge-nli publish dataset --repo somebody/merge-nli merge-nli --private --yes

    \b
      merge-nli publish dataset --repo somebody/merge-nli --version 2.0.0 --yes
    """  # \b is a mark of click: keep the lines that follow
    from merge_dataset.hub.dataset import plan_dataset

    publish(plan_dataset(folder, repo, version=version, private=private), yes, output)


def publish(planned: PublishingPlan, yes: bool, output: OutputFormat) -> None:
    """Show a plan, do what it says where the user wants that, and say what was done."""
    from merge_dataset.hub.publication import as_json, carry_out, done_lines, plan_lines

    if output == "text":  # at once, as the rest takes its time
        typer.echo("\n".join(plan_lines(planned)))
    done = carry_out(planned) if yes and planned.has_steps else None
    if output == "text":
        typer.echo("\n".join(done_lines(planned, done)))
    else:
        typer.echo(to_json(as_json(planned, done)))
