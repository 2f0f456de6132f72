"""Data sets of the Hub, in folders, or of `save_to_disk`; no scripts.

The library `datasets` finds the files of a split, and reads binary ones of the Hub. Others are read
by `merge_dataset.data_files`, as a file that is named alone: `datasets` guesses the types of ids
and texts, and its reader of CSV lets a lone quotation mark swallow rows.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from merge_dataset.data_files import Row, named_rows, read_file, table_rows
from merge_dataset.hub.repository import refusal

if TYPE_CHECKING:
    import datasets

log = logging.getLogger(__name__)

CONVERTED: Final = "refs/convert/parquet"
"""Branch with the Hub's copy in Parquet, with a folder for each configuration."""

_TEXT: Final = ("csv", "json", "text")
"""Modules of `datasets` whose files `read_file` reads instead."""
_HEEDED: Final = ("name", "version", "data_dir", "data_files", "description", "features",
                  "sep", "delimiter")  # fmt: skip
"""Options of files in a README.md's `configs` that are followed; `read_file` finds separators."""
_DESCRIPTIONS: Final = ("README.md", ".huggingface.yaml", "dataset_infos.json")
"""Files that say which files are a configuration's, and what their columns are."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A data set whose rows can be read."""

    rows: Iterator[Row]
    description: str
    """Origin: a file name, or a data set with commit, configuration and split."""
    commit: str | None = None


def open_dataset(name: str, *, config: str | None, split: str, revision: str | None) -> Opened:
    """Open a data set of the Hub at its revision's current commit, or the Hub's Parquet copy."""
    import datasets
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RevisionNotFoundError

    commit: str | None = None
    try:
        commit = HfApi().dataset_info(name, revision=revision).sha
    except Exception as error:  # of a connection; loading reports what is missing then
        if words := refusal(error, "data set", name):
            is_unknown = isinstance(error, RevisionNotFoundError)
            place = f"`revision`: {name}@{revision}" if is_unknown else f"`dataset`: {name}"
            raise ValueError(f"{place}: {words}") from error
    is_copy = revision == CONVERTED
    folder = {"data_dir": config or "default"} if is_copy else {}
    with _explained(name, split):
        text = None if is_copy else _fetch_text(name, config, split, revision)
        if text is None:
            subset, at = None if is_copy else config, commit or revision
            table = datasets.load_dataset(name, subset, split=split, revision=at, **folder)
    cached = commit
    if text is not None:
        cached, rows = text
    else:
        if table.info.builder_name in _TEXT:
            raise ValueError(
                f"`dataset`: {name}: expected its files of text as they are, got a table that "
                "`datasets` made of them, which may differ; name the file itself with `data`"
            )
        rows = _rows(table, f"{name} [{split}] row ")
        if commit is None:  # the commit from which the cached table was made
            folders = (Path(file["filename"]).parent.name for file in table.cache_files)
            cached = next((name for name in folders if re.fullmatch("[0-9a-f]{40}", name)), None)
    if commit is None and revision is not None and cached is not None and revision != cached:
        raise ValueError(
            f"`revision`: {revision!r} of {name} cannot be looked up without a connection; "
            f"expected a connection, or `revision` {cached}, which is in the cache"
        )
    at = f"@{cached or revision}" if cached or revision else ""
    place = "/".join(filter(None, (config, split)))
    return Opened(rows, f"{name}{at} [{place}]", cached)


def open_folder(folder: Path, *, config: str | None, split: str | None) -> Opened:
    """Open a folder that `save_to_disk` wrote, or a folder of data files."""
    import datasets

    is_saved = any((folder / name).is_file() for name in ("state.json", "dataset_dict.json"))
    with _explained(str(folder), split or "test"):
        if not is_saved:
            split = split or "test"
            # Absolute, as a folder's name alone can also be that of a module: "csv".
            builder = datasets.load_dataset_builder(str(folder.absolute()), config)
            files, features = _files_of(builder, split)
            rows = named_rows(chain.from_iterable(map(read_file, files)), features)
        elif isinstance(table := datasets.load_from_disk(str(folder)), datasets.DatasetDict):
            split = split or ("test" if "test" in table or len(table) > 1 else next(iter(table)))
            table = _of_split(table, split)
        else:  # one table, perhaps of a split
            table = _of_split({None: table, str(table.split): table}, split)
            split = None
    place = "/".join(filter(None, (config, split)))
    description = f"{folder} [{place}]" if place else f"{folder}"
    return Opened(_rows(table, f"{description} row ") if is_saved else rows, description)


def _fetch_text(
    name: str, config: str | None, split: str, revision: str | None
) -> tuple[str, Iterator[Row]] | None:
    """Return commit and rows of a split in files of text; None if it has others, or none cached."""
    import datasets
    from huggingface_hub import get_cached_repo_tree, snapshot_download
    from huggingface_hub.errors import CachedRepoTreeNotFoundError, LocalEntryNotFoundError

    fetch = partial(snapshot_download, name, repo_type="dataset", revision=revision)
    try:
        # Further files, so that there is one; the revision itself, so that the cache knows it.
        snapshot = Path(fetch(allow_patterns=[*_DESCRIPTIONS, ".gitattributes"]))
        listed = get_cached_repo_tree(name, repo_type="dataset", revision=snapshot.name)
    except (CachedRepoTreeNotFoundError, LocalEntryNotFoundError):
        return None
    # `datasets` resolves splits by the names of files, so empty ones do.
    with TemporaryDirectory() as names_only:
        for entry in listed:
            file = Path(names_only, entry.path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        for description in _DESCRIPTIONS:
            if (snapshot / description).is_file():
                copyfile(snapshot / description, Path(names_only, description))
        try:
            builder = datasets.load_dataset_builder(names_only, config)
        except Exception as error:  # loading says what is wrong
            log.debug("%s: no files by their names (%s)", name, error)
            return None
        if builder.name not in _TEXT:
            return None
        files, features = _files_of(builder, split)
        paths = [file.relative_to(Path(names_only).resolve()).as_posix() for file in files]
    fetch(revision=snapshot.name, allow_patterns=paths)
    rows = chain.from_iterable(read_file(snapshot / path) for path in paths)
    return snapshot.name, named_rows(rows, features)


def _files_of(builder: datasets.DatasetBuilder, split: str) -> tuple[list[Path], dict[str, Any]]:
    by_split, usual = builder.config.data_files, type(builder.config)()
    for option in fields(builder.config):
        value = getattr(builder.config, option.name)
        if option.name not in _HEEDED and value != getattr(usual, option.name):
            raise ValueError(
                f"got `{option.name}`: {value!r}, which is not followed here, in its README.md"
            )
    features = builder.info.features
    return list(map(Path, _of_split(by_split, split))), features.to_dict() if features else {}


def _of_split(by_split: Mapping[Any, Any], split: str | None) -> Any:
    if split not in by_split:
        known = ", ".join(str(name) for name in by_split if name)
        raise ValueError(f"`split`: expected one of {known}, got {split!r}")
    return by_split[split]


def _rows(table: datasets.Dataset | datasets.IterableDataset, where: str) -> Iterator[Row]:
    """Read rows as they are stored, so that no image or sound is decoded."""
    features: dict[str, Any] = table.features.to_dict() if table.features else {}
    batches = table.with_format("arrow").iter(batch_size=1000)
    return table_rows(batches, features, where, first=0)


@contextmanager
def _explained(name: str, split: str) -> Iterator[None]:
    """Say of any error of a library what was to be loaded, and what to do."""
    try:
        yield
    except Exception as error:
        reason, is_local = " ".join(str(error).split()), Path(name).is_dir()
        hint = "" if is_local else "; without a connection name the official file with `data`"
        text = f"could not load split {split!r} of {name!r} ({reason}){hint}"
        if "scripts are no longer supported" in reason:
            text = (
                f"`dataset`: {name} is a script, and scripts of others are not run; name a file "
                f"with `data`, or take the Hub's copy, if it has one: `revision` {CONVERTED}, with "
                "`dataset_config` where there are several"
            )
        raise ValueError(text) from error
