"""Data sets read with the library `datasets`: Hub, folders, `save_to_disk`; no scripts."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from merge_dataset.data_files import Row, table_rows
from merge_dataset.hub.repository import refusal

if TYPE_CHECKING:
    import datasets

log = logging.getLogger(__name__)

CONVERTED: Final = "refs/convert/parquet"
"""Branch with the Hub's copy in Parquet, with a folder for each configuration."""
_ONLY_CONFIG: Final = "default"

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_BATCH: Final = 1000


@dataclass(frozen=True, slots=True)
class Opened:
    """A data set whose rows can be read."""

    rows: Iterator[Row]
    description: str
    """Origin: a file name, or a data set with commit, configuration and split."""
    commit: str | None = None


def open_dataset(
    name: str, *, config: str | None, split: str, revision: str | None, streaming: bool = False
) -> Opened:
    """Open a data set of the Hub at its revision's current commit, or the Hub's Parquet copy."""
    import datasets

    commit = _resolve(name, revision)
    folder = {"data_dir": config or _ONLY_CONFIG} if revision == CONVERTED else {}
    try:
        table = datasets.load_dataset(
            name,
            None if folder else config,
            split=split,
            revision=commit or revision,
            streaming=streaming,
            **folder,
        )
    except Exception as error:
        raise ValueError(_explain(error, name, split, folder.get("data_dir"))) from error
    cached = commit
    if commit is None and not streaming:  # the commit from which the cached table was made
        folders = (Path(file["filename"]).parent.name for file in table.cache_files)
        cached = next((name for name in folders if _COMMIT.fullmatch(name)), None)
    if commit is None and revision is not None and cached is not None and revision != cached:
        raise ValueError(
            f"`revision`: {revision!r} of {name} cannot be looked up without a connection, and "
            f"what is in the cache is {cached}; expected a connection, or `revision` {cached}"
        )
    at = f"@{cached or revision}" if cached or revision else ""
    place = "/".join(filter(None, (config, split)))
    return Opened(_rows(table, f"{name} [{split}] row "), f"{name}{at} [{place}]", cached)


def open_folder(folder: Path, *, config: str | None, split: str | None) -> Opened:
    """Open a folder that `save_to_disk` wrote, or a folder of data files."""
    import datasets

    saved = [folder / name for name in ("state.json", "dataset_dict.json")]
    try:
        if any(file.is_file() for file in saved):
            loaded: Any = datasets.load_from_disk(str(folder))
        else:
            wanted = split or "test"
            loaded = datasets.load_dataset(str(folder), config, split=wanted)
    except Exception as error:
        raise ValueError(_explain(error, str(folder), split or "test", None)) from error
    if isinstance(loaded, datasets.DatasetDict):
        split = split or ("test" if "test" in loaded or len(loaded) > 1 else next(iter(loaded)))
        if split not in loaded:
            raise ValueError(f"`split`: expected one of {', '.join(loaded)}, got {split!r}")
        loaded = loaded[split]
    elif saved[0].is_file() and split is not None and str(loaded.split) != split:
        raise ValueError(
            f"`split`: expected none, as {folder} holds one table without splits, got {split!r}"
        )
    else:
        split = None if saved[0].is_file() else split or "test"
    place = "/".join(filter(None, (config, split)))
    description = f"{folder} [{place}]" if place else f"{folder}"
    return Opened(_rows(loaded, f"{description} row "), description)


def _rows(table: datasets.Dataset | datasets.IterableDataset, where: str) -> Iterator[Row]:
    """Read rows as they are stored, so that no image or sound is decoded."""
    features: dict[str, Any] = table.features.to_dict() if table.features else {}
    batches = table.with_format("arrow").iter(_BATCH)
    return table_rows(batches, features, where, first=0)


def _resolve(name: str, revision: str | None) -> str | None:
    """Look up the commit of a revision; None if there is no connection."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RevisionNotFoundError

    try:
        return HfApi().dataset_info(name, revision=revision).sha
    except RevisionNotFoundError as error:
        raise ValueError(
            f"`revision`: {name}@{revision}: {refusal(error, 'data set', name)}"
        ) from error
    except Exception as error:  # any failure of a connection; loading reports what is missing
        if words := refusal(error, "data set", name):
            raise ValueError(f"`dataset`: {name}: {words}") from error
        return None


def _explain(error: Exception, name: str, split: str, converted: str | None) -> str:
    """Describe what is wrong with a data set and what to do, in terms of our settings."""
    from huggingface_hub import HfApi

    reason = " ".join(str(error).split())
    is_local = Path(name).is_dir()
    if "scripts are no longer supported" in reason:
        if is_local:
            return f"{name} has a script, and scripts are not run; name a file of data with `data`"
        return (
            f"`dataset`: {name} is a script, and scripts of others are not run; the Hub has copies "
            f"of most of them in Parquet: add `revision` {CONVERTED}, and `dataset_config` where "
            f"it has several"
        )
    if found := re.search(r"[Uu]nknown split \"?.*?\"?\. Should be one of (.*?)\.?$", reason):
        return f"`split`: expected one of {found.group(1).strip('[]')} of {name}, got {split!r}"
    if found := re.search(r"pick one among the available configs: (\[.*?\])", reason):
        return f"`dataset_config`: expected one of {found.group(1).strip('[]')} of {name}, got none"
    if found := re.search(r"BuilderConfig (.*?) not found\. Available: (\[.*?\])", reason):
        names = found.group(2).strip("[]")
        return f"`dataset_config`: expected one of {names} of {name}, got {found.group(1)}"
    configs: list[str] = []
    if converted:
        try:
            files = HfApi().list_repo_files(name, repo_type="dataset", revision=CONVERTED)
            folders = (folder for folder, slash, _ in (f.partition("/") for f in files) if slash)
            configs = sorted(set(folders))
        except Exception as failed:  # it is only for a message
            log.debug("%s: no list of configurations (%s)", name, failed)
    if configs and converted not in configs:
        return (
            f"`dataset_config`: expected one of {', '.join(configs)} of {name} at {CONVERTED}, got "
            f"{'none' if converted == _ONLY_CONFIG else converted}"
        )
    if is_local and "any data files" in reason:
        return f"{name}: expected a folder with files of data, found none in it"
    if is_local:
        return f"could not load split {split!r} of the folder {name} ({reason})"
    return (
        f"could not load split {split!r} of {name!r} ({reason}); without a connection name the "
        f"official file with `data`"
    )
