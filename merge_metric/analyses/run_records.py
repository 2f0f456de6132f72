"""Files of a run folder that analyses read: what `merge-nli build` and `merge-nli count` left.

Read by name, as `generation` is not imported here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from merge_dataset.files import changed_files, digest_of_file, read_record

REPLACEMENTS: Final = "replacements.parquet"
"""R_M(⟨p, h⟩, o) in full, before sampling."""
PROBLEMS: Final = "problems.parquet"
"""All labelled problems of the source."""
VARIANTS: Final = "variants.parquet"
"""The sampled variants, where there is a build."""
SHARED_WORDS: Final = "shared_words.parquet"
"""Shared words of all classes, how often each stands in each text, and its other forms."""

MANIFEST: Final = "manifest.json"
"""Record of a finished build, with digests of its files."""

_COUNTS: Final = "counts.json"
_SUGGESTED: Final = "suggested.json"


def file_of_build(run: Path, name: str) -> Path:
    """Find a file of a finished build, as it was written.

    Raises:
        FileNotFoundError: there is no build.
        ValueError: the file is another since.
    """
    redo = f"run: merge-nli build --run {run}"
    manifest = run / MANIFEST
    if not manifest.is_file() or not (run / name).is_file():
        raise FileNotFoundError(
            f"{run}: expected a run folder with {MANIFEST} and {name}, found none; {redo}"
        )
    recorded = read_record(manifest).get("files", {})
    if changed_files(run, {name: recorded[name]} if name in recorded else {}):
        raise ValueError(
            f"{run}: expected {name} as recorded in {MANIFEST}, got other contents; {redo}"
        )
    return run / name


def read_counts(run: Path) -> dict[str, Any]:
    """Read the record of `merge-nli count`.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, or the suggestions or the shared words are others since.
    """
    path = run / _COUNTS
    redo = f"run: merge-nli count --run {run}"
    if not path.is_file():
        raise FileNotFoundError(f"{run}: expected a run folder with {_COUNTS}, found none; {redo}")
    record = read_record(path)
    suggested = run / _SUGGESTED
    if not suggested.is_file() or digest_of_file(suggested) != record["made_from"]:
        raise ValueError(
            f"{path}: expected counts of the run's suggestions, got older ones; {redo}"
        )
    if changed := changed_files(run, record["files"]):
        raise ValueError(f"{run}: expected {', '.join(changed)} as counted, got others; {redo}")
    return record
