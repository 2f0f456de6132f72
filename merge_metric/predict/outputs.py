"""Where predictions go: checked before a model is loaded, and never put in another's place."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from merge_metric.predict.problems import description_of
from merge_metric.runs.predictions import SUFFIXES, read_metadata, suffix_of

_SHOWN = 4
"""Settings that a refusal names."""


def check_file(path: Path) -> None:
    """Raise where predictions could not be written to a file.

    Raises:
        ValueError: its name has another suffix.
        IsADirectoryError, NotADirectoryError, PermissionError: a folder is there, or none can be.
    """
    suffix_of(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected a predictions file or nothing, found a folder")
    check_folder(path.parent)


def check_folder(folder: Path) -> None:
    """Raise where no predictions files could be written into a folder, which need not exist.

    Raises:
        NotADirectoryError, PermissionError: a file is there, or it may not be written to.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        advice = ": --preset writes several, so --out is a folder" if _is_name(there) else ""
        raise NotADirectoryError(
            f"{there}: expected a folder for predictions files, found a file{advice}"
        )
    if not os.access(there, os.W_OK):
        raise PermissionError(
            f"{there}: expected a folder to write to, got one without permission; name another "
            f"place, or allow it there, then give the same command again"
        )


def _is_name(path: Path) -> bool:
    return path.name.endswith(SUFFIXES)


def require_replaceable(
    out: Path, description: Mapping[str, Any], problems: pa.Table, texts: str, *, overwrite: bool
) -> None:
    """Raise where a file has predictions of another model, or of other settings or problems.

    A file is another run's if its metadata differ in any key of the description, or it has none.

    Args:
        out: The predictions file, which need not exist.
        description: What is known of the model: all of `PairModel.describe()`, and the run's
            `fingerprint`, or, before it is loaded, some of it.
        problems: What it is to be asked about.
        texts: Digest of these.
        overwrite: Whether another run's file may be replaced.

    Raises:
        FileExistsError: it must not be replaced.
    """
    if overwrite or not out.exists():
        return
    there = read_metadata(out)
    if not there:
        found = "a file in which no model is named"
        differ = ""
    else:
        found = _run_of(there, there.get("problems", {}), there.get("rows"))
        keys = [key for key in description if there.get(key) != description[key]]
        if there.get("texts") != texts:
            keys.insert(0, "the texts of the problems")
        if not keys:
            return
        if "fingerprint" in keys:  # of everything, so it tells something only where all is the same
            keys.remove("fingerprint")
            keys = keys or ["gold labels"]
        differ = f"; they differ in {_names(keys)}"
    coming = _run_of(description, description_of(problems), len(problems))
    raise FileExistsError(
        f"{out}: expected no predictions of another run, found {found}; in their place would come "
        f"{coming}{differ}: name another file with `out`, or replace it with `overwrite`"
    )


def _run_of(model: Mapping[str, Any], problems: Mapping[str, Any], rows: Any) -> str:
    """Name a run: "those of bert for 1,049 problems of snli"."""
    configs = "+".join(problems.get("configs") or []) or problems.get("dataset") or "a dataset"
    count = f"{rows:,}" if isinstance(rows, int) else "the"
    return f"those of {model.get('name', 'a model')} for {count} problems of {configs}"


def _names(keys: Sequence[str]) -> str:
    shown = ", ".join(key.replace("_", " ") for key in keys[:_SHOWN])
    return f"{shown}, …" if len(keys) > _SHOWN else shown
