"""Checks of a dataset folder: files, columns, rows, and the card. New modules are imported here."""

import errno
from collections.abc import Iterator
from pathlib import Path

from merge_dataset import provenance
from merge_dataset.checks import folder as _folder  # noqa: F401
from merge_dataset.checks import variants  # noqa: F401
from merge_dataset.checks.rules import CHECKS, Finding, summarise
from merge_dataset.engine import engine_errors
from merge_dataset.files import describe_os_error
from merge_dataset.layout import (
    CARD,
    PROVENANCE,
    as_dataset,
    collections,
    require_collections,
)

__all__ = ["check_dataset"]


def check_dataset(folder: str | Path) -> list[str]:
    """List the problems of a dataset folder, one line per file and kind; none when it is good.

    Rows and card are only looked at when all files are there with the right columns.
    """
    try:
        folder = as_dataset(folder)
        require_collections(folder)
    except (NotADirectoryError, ValueError) as error:
        return [str(error)]
    findings = [*_findings("structure", folder)]
    if findings:
        return summarise(findings)
    for collection in collections(folder):
        kind = provenance.kind_of(provenance.read(folder / collection / PROVENANCE))
        findings += _findings(kind, folder, collection)
    findings += _findings("contents", folder)
    # If something else is wrong with the data, changed bytes are no further news.
    only_card = all(finding.where == CARD for finding in findings)
    return summarise([*findings, *(_findings("bytes", folder) if only_card else ())])


def _findings(of: str, folder: Path, *collection: str) -> Iterator[Finding]:
    """Yield the findings of checks; a damaged file that stops a check is a finding, too."""
    for find in CHECKS[of]:
        try:
            with engine_errors():
                yield from find(folder, *collection)
        except Exception as error:
            if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.EMFILE:
                raise  # no problem of the dataset
            got = describe_os_error(error) if isinstance(error, OSError) else f"{error}"
            where = "/".join(collection) or folder.name
            name = find.__name__.replace("_", " ")
            if not isinstance(error, ValueError | OSError):
                # Such as DuckDB's "Invalid Input Error: Incorrect stats size".
                kind_of_error = type(error).__name__
                got = f"damaged ones ({kind_of_error}, {got.replace('Error: ', 'error, ')})"
            yield Finding(where, f"files with which to {name}", " ".join(got.split()))
