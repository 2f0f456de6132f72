"""Registration of a dataset: `load_dataset("merge-nli", …)` works offline, in any folder."""

import errno
import logging
import os
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import datasets
from datasets.exceptions import DatasetGenerationError

from merge_dataset.checks import check_dataset
from merge_dataset.files import changed_files, digests, naming, read_record, write_record
from merge_dataset.layout import all_configurations, require_dataset
from merge_dataset.locks import exclusive, working_in
from merge_dataset.merge_nli import builder
from merge_dataset.numbered_files import content_hash
from merge_dataset.paths import as_path
from merge_dataset.schema import DATASET_NAME

log = logging.getLogger(__name__)

_DIGESTS: Final = "merge-nli-digests.json"
"""File of an entry with the digests of its other files; written last."""


def register_dataset(
    folder: str | Path, cache_dir: str | Path | None = None, *, checked: bool = False
) -> list[str]:
    """Check a dataset folder, and prepare each configuration into the cache of `datasets`.

    Where the Hub has no data set of that name, or cannot be reached, `load_dataset`
    falls back to its cache and takes the entry modified last. So the folder registered
    last is the one that loads; registering the same content again marks it so, and makes anew
    what is damaged.

    Args:
        folder: The dataset folder.
        cache_dir: The cache; by default that of `datasets`. Another one must be given to
            `load_dataset` too.
        checked: Whether the folder was checked before; then it is not again.

    Returns:
        Names of the configurations.

    Raises:
        BlockingIOError: another command replaces files meanwhile.
        NotADirectoryError: `folder` is no folder.
        TypeError: a path is none.
        ValueError: the check found problems, which the message lists.
    """
    folder = as_path("folder", folder)
    cache_dir = None if cache_dir is None else as_path("cache_dir", cache_dir)
    if not folder.is_dir():
        require_dataset(folder)
    with ExitStack() as held:
        with suppress(PermissionError):  # a folder that cannot be written to
            held.enter_context(working_in(folder, wait=True))
        if not checked and (problems := check_dataset(folder)):
            raise ValueError("\n  ".join([f"{len(problems)} problem(s)", *problems]))
        names = all_configurations(folder)
        root = cache_dir or datasets.config.HF_DATASETS_CACHE
        cache = Path(root).expanduser() / DATASET_NAME
        lock = cache.with_name(f".{cache.name}.lock")
        refusal = f"{cache}: another command is registering a dataset"
        held.enter_context(exclusive(lock, refusal, wait=True))
        contents = {name: content_hash(folder, name) for name in names}
        for name, content in contents.items():
            for entry in cache.glob(f"{name}/*/{content}"):
                _remove_damaged(entry)  # set before a builder reads it
            prepared = builder(
                folder, name, dataset_name=DATASET_NAME, cache_dir=cache_dir, hash=content
            )
            entry = Path(prepared.cache_dir)
            if not entry.exists():
                with naming(entry):
                    try:
                        prepared.download_and_prepare()
                    except DatasetGenerationError as error:
                        raise (error.__cause__ or error) from None
                    except OSError as error:
                        if "Not enough disk space" in str(error):  # an error without errno
                            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
                        raise
                if content_hash(folder, name) != content:
                    shutil.rmtree(entry)  # named by the digest of other contents
                    raise BlockingIOError(
                        f"{folder}: expected its files to stay while they are registered, but "
                        "another command replaced them; wait until it has ended, and register again"
                    )
                made = {path.name: path for path in sorted(entry.iterdir()) if path.is_file()}
                write_record(entry / _DIGESTS, {"files": digests(made)})
            os.utime(entry)
            # A killed preparation of other content leaves a folder that breaks the fallback.
            for leftover in entry.parent.glob("*.incomplete"):
                shutil.rmtree(leftover)
    return names


def _remove_damaged(entry: Path) -> None:
    """Remove an entry that was changed, or has no record."""
    try:
        changed = changed_files(entry, read_record(entry / _DIGESTS)["files"])
        if not changed:
            return
        log.warning("%s: damaged, made anew: %s", entry, ", ".join(changed))
    except FileNotFoundError:
        pass  # made by a command that was killed
    except (KeyError, ValueError):
        log.warning("%s: damaged, made anew: %s", entry, _DIGESTS)
    shutil.rmtree(entry)
