"""Registration of a dataset: `load_dataset(NAME, …)` works offline, in any folder."""

import logging
import os
import re
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path

import datasets
from datasets.exceptions import DatasetGenerationError
from datasets.naming import camelcase_to_snakecase

from merge_dataset.checks import check_dataset
from merge_dataset.files import (
    changed_files,
    digests,
    exclusive,
    naming,
    read_record,
    working_in,
    write_record,
)
from merge_dataset.layout import FILES, FOLDER, REGISTERED, all_configurations, require_dataset
from merge_dataset.merge_nli import MergeNli, builder
from merge_dataset.schema import content_hash

log = logging.getLogger(__name__)


def registered_name(folder: Path, name: str | None = None) -> str:
    """Return the name that a folder is registered by: the given one, or else its own."""
    chosen = folder.resolve().name if name is None else name
    if not re.fullmatch(r"\w[\w.-]*", chosen):
        raise ValueError(
            f"name: expected letters, digits, -, _ and dots, got {chosen!r}"
            + ("; give the folder another name with `name`" if name is None else "")
        )
    return chosen


def register_dataset(
    folder: str | Path,
    cache_dir: str | Path | None = None,
    *,
    name: str | None = None,
    overwrite: bool = False,
) -> list[str]:
    """Check a dataset folder, and prepare each configuration into the cache of `datasets`.

    Where the Hub has no data set of that name, or cannot be reached, `load_dataset` falls
    back to its cache. The name also stands for the folder where a dataset is asked for. A name is
    one folder's: registering the folder again replaces what has changed, and makes anew what is
    damaged; another folder with other content is refused, unless it is to be replaced.

    Args:
        folder: The dataset folder.
        cache_dir: The cache; by default that of `datasets`. Another one must be given to
            `load_dataset` too, and no command looks there for names.
        name: The name; by default that of the folder.
        overwrite: Whether to replace another folder that has the name.

    Returns:
        Names of the configurations.

    Raises:
        FileExistsError: the name is another folder's.
        NotADirectoryError: `folder` is no folder.
        ValueError: the check found problems, which the message lists; or the name is none.
    """
    folder = Path(folder)
    cache_dir = None if cache_dir is None else Path(cache_dir)
    if not folder.is_dir():
        require_dataset(folder)
    name = registered_name(folder, name)
    with ExitStack() as held:
        with suppress(PermissionError):  # a folder that cannot be written to
            held.enter_context(working_in(folder, wait=True))
        if problems := check_dataset(folder):
            first = f"{folder}: not registered: {len(problems)} problem(s)"
            raise ValueError("\n  ".join([first, *problems]))
        root = cache_dir or datasets.config.HF_DATASETS_CACHE
        cache = Path(root).expanduser() / camelcase_to_snakecase(name)  # as `datasets` does
        lock = cache.with_name(f".{cache.name}.lock")
        refusal = f"{cache}: another command is registering a dataset"
        held.enter_context(exclusive(lock, refusal, wait=True))
        contents = {config: content_hash(folder, config) for config in all_configurations(folder)}
        replaced: dict[Path, str] = {}  # entry of other contents → the folder that it was made from
        for path in sorted(cache.glob(f"*/*/*/{REGISTERED}")):
            entry = path.parent
            if contents.get(entry.parts[-3]) != entry.name:
                with suppress(ValueError):  # damaged
                    replaced[entry] = str(read_record(path, FOLDER, verify=False)[FOLDER])
        for other in sorted({*replaced.values()} - {str(folder.resolve())}):
            if not overwrite:
                raise FileExistsError(
                    f"{folder}: not registered: expected a name that no other dataset has, got "
                    f"{name!r}, by which {other} is registered; give another `name`, or replace "
                    "that with `overwrite`"
                )
        for config, content in contents.items():
            for entry in cache.glob(f"{config}/*/{content}"):  # set, before a builder reads it
                changed = [REGISTERED]
                with suppress(OSError, ValueError):  # missing, after a kill, or damaged
                    changed = changed_files(entry, read_record(entry / REGISTERED, FILES)[FILES])
                if changed:
                    log.warning("%s: damaged, made anew: %s", entry, ", ".join(changed))
                    shutil.rmtree(entry)
            made = builder(folder, config, dataset_name=name, cache_dir=cache_dir, hash=content)
            _prepare(made, folder, content)
        for entry in replaced:
            shutil.rmtree(entry)
        for other in dict.fromkeys(replaced.values()):
            log.warning("%s: replaces what was registered by this name from %s", name, other)
    return [*contents]


def _prepare(made: MergeNli, folder: Path, content: str) -> None:
    """Make the entry of a builder's configuration, unless it is there, and its record."""
    entry = Path(made.cache_dir)
    if not entry.exists():
        with naming(entry):
            try:
                made.download_and_prepare()
            except DatasetGenerationError as error:
                raise (error.__cause__ or error) from None
        # A folder that this command cannot write to has no lock that others respect.
        if content_hash(folder, made.config.name) != content:
            shutil.rmtree(entry)  # named by the digest of other contents
            raise BlockingIOError(
                f"{folder}: expected its files to stay while they are registered, but they "
                "were replaced; register again"
            )
    files = {path.name: path for path in sorted(entry.iterdir()) if path.is_file()}
    files.pop(REGISTERED, None)
    write_record(entry / REGISTERED, {FOLDER: str(folder.resolve()), FILES: digests(files)})
    os.utime(entry)
    # A killed preparation of other content leaves a folder that breaks the fallback.
    for leftover in entry.parent.glob("*.incomplete"):
        shutil.rmtree(leftover)
