"""Where exports are written: whole or not at all, and over nothing that is not theirs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from merge_dataset.files import atomic, partial_path, replace_folder, write_json

MARK: Final = "merge-nli-export.json"
"""File in every exported folder that says what it is; only such a folder is replaced."""


@contextmanager
def new_folder(
    out: Path, description: Mapping[str, Any], *, overwrite: bool = False
) -> Iterator[Path]:
    """A temporary folder that takes the place of `out` when the block ends well.

    Args:
        out: The folder; may exist if it is empty.
        description: What is written into `MARK`.
        overwrite: Replace an earlier export.

    Raises:
        FileExistsError: there is something at `out` that is not to be replaced.
    """
    out = out.expanduser().resolve()
    _require_replaceable(out, overwrite=overwrite)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_path(out)
    _remove(partial)  # of an export that was killed
    partial.mkdir()
    try:
        yield partial
        write_json(partial / MARK, description)
    except BaseException:
        _remove(partial)
        raise
    replace_folder(partial, out)


@contextmanager
def new_file(out: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary name for a file that takes the place of `out` when the block ends well.

    Raises:
        FileExistsError: there is a folder at `out`, or a file that is not to be replaced.
    """
    out = out.expanduser().resolve()
    if out.is_dir():
        raise FileExistsError(f"{out}: expected a file or nothing, found a folder")
    if out.exists() and not overwrite:
        raise FileExistsError(f"{out}: expected no file, found one; replace it with --overwrite")
    with atomic(out) as partial:
        yield partial


def _require_replaceable(out: Path, *, overwrite: bool) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise FileExistsError(f"{out}: expected a folder or nothing, found a file")
    if not any(out.iterdir()):
        return
    if not (out / MARK).is_file():
        raise FileExistsError(
            f"{out}: expected no folder, an empty one or an earlier export, found one that "
            f"holds something else; name another folder"
        )
    if not overwrite:
        raise FileExistsError(
            f"{out}: expected no folder or an empty one, found an earlier export; replace it "
            f"with --overwrite, or name another folder"
        )


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
