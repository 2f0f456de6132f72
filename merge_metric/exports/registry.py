"""Registry of exports: functions with the options of a command, whose docstring is the help."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from merge_dataset import layout
from merge_dataset.commands.command_line import (
    DatasetArgument,
    Format,
    OutputFormat,
    command,
    config_option,
    option,
    write_result,
)
from merge_dataset.files import (
    atomic,
    atomic_folder,
    changed_files,
    read_record,
    read_row_groups,
    read_schema,
    remove_partials,
    write_json,
    writing_to,
)
from merge_dataset.layout import (
    CARD,
    PROVENANCE,
    all_configurations,
    collections,
    configurations,
    require_configurations,
    require_dataset,
    split_files,
)

if TYPE_CHECKING:
    import pyarrow as pa

HARNESSES: Final = "Tasks for harnesses"
FILES: Final = "Files"
"""Heading of the help under which exports of files stand."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Write a dataset for other tools: harnesses' tasks, metadata, flat files.",
)

Folder = DatasetArgument
Out = Annotated[Path, option("Folder to write.")]
Configs = Annotated[list[str] | None, config_option("all")]
Overwrite = Annotated[bool, option("Replace an earlier export.", "--overwrite")]


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export, which its command prints."""

    out: Path
    contents: Mapping[str, Any]
    """Values that `--format json` prints."""
    text: str
    next: str


def export(
    name: str, *, panel: str, extra: str | None = None
) -> Callable[[Callable[..., Exported]], Callable[..., Exported]]:
    """Register a function as `merge-nli export NAME`; `extra` installs the packages it imports."""

    def register(run: Callable[..., Exported]) -> Callable[..., Exported]:
        @functools.wraps(run)
        def run_export(*, output: OutputFormat = "text", **options: Any) -> None:
            done = run(**options)
            whole = {"out": str(done.out), **done.contents, "next": done.next}
            write_result(output, whole, done.text, f"Next: {done.next}")

        own = inspect.signature(run, eval_str=True).parameters.values()
        form = inspect.Parameter(
            "output", inspect.Parameter.KEYWORD_ONLY, default="text", annotation=Format
        )
        parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in own] + [form]
        run_export.__annotations__ = {p.name: p.annotation for p in parameters}
        run_export.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name, rich_help_panel=panel)(command(extra=extra)(run_export))
        return run

    return register


def count(names: Sequence[str], noun: str) -> str:
    """Write the number of names with a noun, such as "2 tasks"."""
    return f"{len(names)} {noun}{'s' if len(names) > 1 else ''}"


def template(name: str) -> str:
    """Read the text of a template, which is exported as it is or filled in."""
    return Path(__file__).with_name("templates").joinpath(name).read_text(encoding="utf-8")


MARK: Final = "merge-nli-export.json"
"""File that describes an exported folder; only folders with it are replaced."""


def require_date(name: str, text: str | None) -> None:
    """Raise ValueError where the value of an option is no date."""
    if text is None:
        return
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name}: expected a date such as 2026-01-31, got {text!r}") from None


def configurations_of(folder: Path, wanted: Sequence[str] = ()) -> list[str]:
    """Return the wanted configurations, each once, by default all; require unchanged files."""
    require_dataset(folder)
    known = all_configurations(folder)
    require_configurations(folder, known, wanted)
    chosen = list(dict.fromkeys(wanted)) or known
    of_collection = {name: set(configurations(folder, name)) for name in collections(folder)}
    for collection, names in of_collection.items():
        if names.isdisjoint(chosen):
            continue
        recorded = read_record(folder / collection / PROVENANCE, layout.FILES)[layout.FILES]
        if changed := changed_files(folder / collection, recorded):
            raise ValueError(
                f"{folder / collection / changed[0]}: expected what was written, got other "
                f"contents; `merge-nli check {folder}` says more"
            )
    return chosen


def split_paths(folder: Path, config: str, split: str) -> list[Path]:
    """List the Parquet files of a split, which `configurations_of` has looked at."""
    return [folder / name for name in split_files(folder, config)[split]]


def read_split(folder: Path, config: str, split: str) -> Iterator[pa.Table]:
    """Yield the rows of a split as tables; the first one is empty and has the schema."""
    paths = split_paths(folder, config, split)
    yield read_schema(paths[0]).empty_table()
    for path in paths:
        yield from read_row_groups(path)


def place_of(folder: Path, *, seen_from: Path) -> str:
    """Write a folder's path relative to another: exports hold no absolute paths of a machine."""
    relative = os.path.relpath(folder.expanduser().resolve(), seen_from.expanduser().resolve())
    return Path(relative).as_posix()


def read_card(folder: Path) -> tuple[dict[str, Any], str]:
    """Read a dataset's card: the YAML in front, with what exports need, and the text."""
    from merge_dataset.card import read_front_matter

    path, needed = folder / CARD, ("pretty_name", "language", "license", "tags", "configs")
    try:
        text = path.read_text(encoding="utf-8")
        facts = read_front_matter(text)
        if missing := [name for name in needed if not facts.get(name)]:
            raise ValueError(f"no {', '.join(missing)} in its front matter")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path}: expected the card of the dataset, got {error}; `merge-nli check {folder}` "
            f"says more"
        ) from error
    return facts, text.partition("\n---\n")[2]


@contextmanager
def new_folder(
    out: Path, description: Mapping[str, Any], *, overwrite: bool = False
) -> Iterator[Path]:
    """Yield a temporary folder that becomes `out` if the block ends without an error."""
    out = out.expanduser().resolve()
    with writing_to(out):
        remove_partials(out.parent, (out.name,))
        if out.exists() and not out.is_dir():
            raise FileExistsError(f"{out}: expected a folder or nothing, found a file")
        is_used = out.exists() and any(out.iterdir())
        if is_used and not (out / MARK).is_file():
            raise FileExistsError(
                f"{out}: expected no folder, an empty one or an earlier export, found one that "
                f"holds something else; name another folder"
            )
        if is_used and not overwrite:
            raise FileExistsError(
                f"{out}: expected no folder or an empty one, found an earlier export; replace it "
                f"with --overwrite, or name another folder"
            )
        with atomic_folder(out) as partial:
            yield partial
            write_json(partial / MARK, description)


@contextmanager
def new_file(out: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary path whose file becomes `out` if the block ends without an error."""
    out = out.expanduser().resolve()
    if out.is_dir():
        raise FileExistsError(f"{out}: expected a file or nothing, found a folder")
    with writing_to(out):
        if out.exists() and not overwrite:
            raise FileExistsError(
                f"{out}: expected no file, found one; replace it with --overwrite"
            )
        with atomic(out) as partial:
            yield partial
