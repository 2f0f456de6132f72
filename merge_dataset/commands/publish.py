"""The command `publish dataset`, and what the commands that publish have in common."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from merge_dataset.commands.check import OutputFormat, user_errors
from merge_dataset.schema import DATASET_NAME

if TYPE_CHECKING:
    from merge_dataset.hub.dataset import Plan, Published
    from merge_dataset.hub.difference import Difference, File

NOTHING_TO_DO: Final = "Nothing to do."
NOTHING_WRITTEN: Final = "Nothing was written. To do this, add --yes."

Yes = Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be done.")]
Private = Annotated[
    bool, typer.Option("--private", help="Make it private; one that is there must be.")
]
Format = Annotated[OutputFormat, typer.Option("--format", help="How to write the result.")]

_MARKS: Final = {"added": "+", "changed": "~", "removed": "-"}


def publish_dataset_command(
    repo: Annotated[str, typer.Option(help="The dataset repository, OWNER/NAME.")],
    folder: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="The dataset folder.")
    ] = Path(DATASET_NAME),
    version: Annotated[
        str | None,
        typer.Option(
            help="Of the data, e.g. 1.0.0. Default: that of the tag with the same data, else the "
            "next minor one."
        ),
    ] = None,
    private: Private = False,
    yes: Yes = False,
    output: Format = OutputFormat.text,
) -> None:
    """Publish a dataset folder on the Hub.

    The folder is checked, uploaded to main in one commit, loaded back with empty caches and
    compared row by row, and tagged with its version. The branch `script` keeps the loading
    script for datasets 3. Without --yes only what would be done is shown.

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
    with publishing():
        from merge_dataset.hub.dataset import carry_out, plan

        planned = plan(folder, repo, version=version, private=private)
        show(output, _as_text(planned))
        done = carry_out(planned) if yes and not planned.is_done else None
        show(output, _done_as_text(planned, done), value=lambda: _as_json(planned, done))


@contextmanager
def publishing() -> Iterator[None]:
    """As `user_errors`; what the Hub refuses is exit code 1."""
    with user_errors():
        for name in ("httpx", "httpx2"):  # which of them depends on huggingface_hub's release
            logging.getLogger(name).setLevel(logging.WARNING)
        # It has a handler of its own, and would say everything twice.
        logging.getLogger("huggingface_hub").propagate = False
        from merge_dataset.hub.errors import PublishError

        try:
            yield
        except PublishError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from error


def show(
    output: OutputFormat, lines: Iterable[str], value: Callable[[], dict[str, Any]] | None = None
) -> None:
    """Write a part of the result: as text at once, as JSON only where it is the whole."""
    if output is OutputFormat.text:
        typer.echo("\n".join(lines))
    elif value is not None:
        typer.echo(json.dumps(value(), indent=2, ensure_ascii=False))


def describe_files(difference: Difference, files: Iterable[File]) -> Iterator[str]:
    """One line per file that a commit would touch."""
    sizes = {file.path: file.size for file in files}
    for kind, mark in _MARKS.items():
        for path in getattr(difference, kind):
            yield f"  {mark} {path}" + (f"  {size(sizes[path])}" if path in sizes else "")


def size(n: int) -> str:
    """Bytes for readers.

    >>> size(950), size(12_345), size(12_345_678)
    ('950 bytes', '12.3 kB', '12.3 MB')
    """
    if n < 1000:
        return f"{n} bytes"
    for unit in ("kB", "MB"):
        n_units = n / 1000 if unit == "kB" else n / 1000**2
        if n_units < 1000:
            return f"{n_units:.1f} {unit}"
    return f"{n / 1000**3:.1f} GB"


def repository_line(name: str, kind: str, *, exists: bool, private: bool) -> str:
    """The first line of a plan."""
    seen = "private" if private else "public"
    return f"{name}: {'a' if exists else 'to be made, a'} {seen} {kind}"


def account_line(account: str | None) -> str:
    """Who would do it."""
    if account is not None:
        return f"logged in as {account}"
    return "not logged in, which --yes needs: run `hf auth login`, or set HF_TOKEN"


def _as_text(planned: Plan) -> Iterator[str]:
    target = planned.repository
    yield repository_line(target.name, "dataset", exists=planned.exists, private=planned.private)
    yield account_line(planned.account)
    yield f"version {planned.version}: {planned.why}"
    if planned.superseded:
        yield f"main holds other data than {planned.version} and stays as it is"
    elif planned.is_done:
        yield "main, tag and script are up to date"
    else:
        yield f"main: {planned.main or 'nothing to commit'}"
        yield from describe_files(planned.main, planned.files)
        yield f"tag {planned.version}: {'is there' if planned.tagged else 'to be set'}"
        yield f"branch script: {planned.script or 'up to date'}"
    if planned.left_out:
        yield f"left out: {', '.join(planned.left_out)}"


def _done_as_text(planned: Plan, done: Published | None) -> Iterator[str]:
    if done is None:
        yield NOTHING_TO_DO if planned.is_done else NOTHING_WRITTEN
        return
    yield f"main is at {done.revision}" + ("" if done.committed else ", as before")
    if done.rows:
        rows = sum(sum(splits.values()) for splits in done.rows.values())
        yield f"loaded back: {len(done.rows)} configurations, {rows:,} rows, as in the folder"
    yield f"Published: {planned.repository.address}"
    name, config = planned.repository.name, planned.configurations[0]
    yield f'load_dataset("{name}", "{config}", revision="{planned.version}")'


def _as_json(planned: Plan, done: Published | None) -> dict[str, Any]:
    return {
        "repository": planned.repository.name,
        "exists": planned.exists,
        "private": planned.private,
        "account": planned.account,
        "version": planned.version,
        "why": planned.why,
        "tagged": planned.tagged,
        "superseded": planned.superseded,
        "configurations": list(planned.configurations),
        "main": difference_json(planned.main),
        "script": difference_json(planned.script),
        "left_out": list(planned.left_out),
        "nothing_to_do": planned.is_done,
        "done": None
        if done is None
        else {
            "revision": done.revision,
            "committed": done.committed,
            "tagged": done.tagged,
            "rows": {config: dict(rows) for config, rows in done.rows.items()},
        },
    }


def difference_json(difference: Difference) -> dict[str, Any]:
    """What a commit would do, by file."""
    return {kind: list(getattr(difference, kind)) for kind in _MARKS}
