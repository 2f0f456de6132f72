"""Registry of exports, the commands `merge-nli export NAME`, and what they have in common."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
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
    require_new,
    write_json,
    writing_to,
)
from merge_dataset.layout import (
    PROVENANCE,
    all_configurations,
    check_configurations,
    collections,
    configurations,
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

Run = Callable[..., None]
Out = Annotated[Path, option("Folder to write.")]
Overwrite = Annotated[bool, option("Replace an earlier export.", "--overwrite")]
date_option: Final[Any] = partial(option, formats=["%Y-%m-%d"], metavar="DATE")


def export(name: str, *, panel: str, extra: str | None = None) -> Callable[[Run], Run]:
    """Register a function as `merge-nli export NAME`; `extra` installs the packages it imports."""

    def register(run: Run) -> Run:
        app.command(name, rich_help_panel=panel)(command(extra=extra)(run))
        return run

    return register


def tell(
    output: OutputFormat, out: Path, contents: Mapping[str, Any], text: str, following: str
) -> None:
    """Write the result of an export: as JSON, or what it is in words and the next command."""
    whole = {"out": str(out), **contents, "next": following}
    write_result(output, whole, text, f"Next: {following}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """Options of all exports of datasets: what is exported, and how that is told."""

    folder: DatasetArgument = Path("merge-nli")
    config: Annotated[list[str] | None, config_option("all")] = None
    overwrite: Overwrite = False
    output: Format = "text"

    def configurations(self) -> list[str]:
        """Return the wanted configurations, each once, by default all; require unchanged files."""
        folder, wanted = self.folder, self.config or ()
        require_dataset(folder)
        chosen = check_configurations(folder, wanted) or all_configurations(folder)
        for collection in collections(folder):
            if {*configurations(folder, collection)}.isdisjoint(chosen):
                continue
            recorded = read_record(folder / collection / PROVENANCE, layout.FILES)[layout.FILES]
            if changed := changed_files(folder / collection, recorded):
                raise ValueError(
                    f"{folder / collection / changed[0]}: expected what was written, got other "
                    f"contents; `merge-nli check {folder}` says more"
                )
        return chosen

    def place(self, *, seen_from: Path) -> str:
        """Write the folder's path relative to another: exports hold no paths of a machine."""
        folder, other = (path.expanduser().resolve() for path in (self.folder, seen_from))
        return Path(os.path.relpath(folder, other)).as_posix()


def filled(name: str, **facts: Any) -> str:
    """Fill in a template."""
    from merge_dataset.card import environment

    made = environment(Path(__file__).with_name("templates"))
    made.filters["yaml"] = _yaml
    return made.get_template(name).render(facts)


def _yaml(value: Any) -> str:
    """Write a value as JSON that is YAML, too, which allows fewer characters than JSON."""
    text = json.dumps(value, ensure_ascii=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff]", lambda mark: f"\\u{ord(mark[0]):04x}", text)


MARK: Final = "merge-nli-export.json"
"""File that describes an exported folder; only folders with it are replaced."""


def read_split(folder: Path, config: str, split: str) -> Iterator[pa.Table]:
    """Yield the rows of a split as tables; the first one is empty and has the schema."""
    paths = [folder / name for name in split_files(folder, config)[split]]
    yield read_schema(paths[0]).empty_table()
    for path in paths:
        yield from read_row_groups(path)


@contextmanager
def new_folder(
    out: Path, description: Mapping[str, Any], *, overwrite: bool = False
) -> Iterator[Path]:
    """Yield a temporary folder that becomes `out` if the block ends without an error."""
    out = out.expanduser().resolve()
    with writing_to(out):
        is_export = (out / MARK).is_file()
        is_empty = not out.exists() or (out.is_dir() and not any(out.iterdir()))
        if not (is_empty or (is_export and overwrite)):
            got = "an earlier export: replace it with --overwrite, or" if is_export else "others:"
            raise FileExistsError(f"{out}: expected no files there, got {got} name another folder")
        with atomic_folder(out) as partial:
            yield partial
            write_json(partial / MARK, description)


@contextmanager
def new_file(out: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary path whose file becomes `out` if the block ends without an error."""
    out = out.expanduser().resolve()
    with writing_to(out):
        require_new(out, overwrite=overwrite)
        with atomic(out) as partial:
            yield partial
