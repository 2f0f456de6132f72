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

_COUNTS: Final = "counts.json"
_SUGGESTED: Final = "suggested.json"


def replacements_of(run: Path) -> Path:
    """Find the replacements of a build.

    Raises:
        FileNotFoundError: there is no build.
    """
    path = run / REPLACEMENTS
    if not path.is_file():
        raise FileNotFoundError(
            f"{run}: expected a run folder with {path.name}, found none; run: merge-nli build "
            f"--run {run}"
        )
    return path


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
