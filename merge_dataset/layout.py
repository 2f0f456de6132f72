"""The dataset folder on disk: its collections, configurations and files."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from merge_dataset.files import read_record, read_schema, target_of
from merge_dataset.redaction import mask_urls
from merge_dataset.schema import (
    PARAPHRASE,
    WORD_CLASSES,
    ProblemFormat,
    collection_name,
    config_name,
    find_files,
    format_of,
    is_source,
    parse_config_name,
)
from merge_dataset.schema import split_files as split_files
from merge_dataset.settings import check_members

CARD: Final = "README.md"
PROVENANCE: Final = "provenance.json"

FILES: Final = "files"
"""Key of a provenance, and of the record below: path → SHA-256 of the files beside it."""

REGISTERED: Final = "merge-nli-registered.json"
"""Record of an entry in the cache of `datasets`: the dataset folder, digests of its files."""
FOLDER: Final = "folder"
"""Key of that record: the dataset folder that was registered."""


def collections(folder: Path) -> list[str]:
    """List the collections in a dataset folder, by source, replacements first."""
    names = (path.parent.name for path in folder.glob(f"*/{PROVENANCE}"))
    # Not by name alone, as "snli_paraphrases" would come after "snli-hard".
    return sorted(filter(_is_collection, names), key=lambda name: name.partition("_"))


def sources(folder: Path) -> list[str]:
    """List the sources in a dataset folder, sorted, each once."""
    return list(dict.fromkeys(parse_config_name(name)[0] for name in collections(folder)))


def configurations(folder: Path, collection: str) -> list[str]:
    """List a collection's configurations: first all classes, then each class with variants."""
    source, variant_class = parse_config_name(collection)
    if variant_class == PARAPHRASE:
        return [collection]
    return [collection] + [
        config_name(source, word_class)
        for word_class in WORD_CLASSES
        if split_files(folder, config_name(source, word_class))["variants"]
    ]


def all_configurations(folder: Path) -> list[str]:
    """List the configurations of every collection, in the order of the card."""
    return [
        name for collection in collections(folder) for name in configurations(folder, collection)
    ]


def check_configurations(folder: Path, wanted: Sequence[str]) -> list[str]:
    """Check that a folder has the wanted configurations; return each once."""
    check_members(f"{folder}: configurations", wanted, all_configurations(folder))
    return list(dict.fromkeys(wanted))


def format_in(folder: Path, config: str) -> ProblemFormat:
    """Read the format of a configuration's problems from its files."""
    return format_of(read_schema(Path(find_files(folder, config)["seeds"][0])))


def parquet_files(folder: Path) -> list[str]:
    """List every Parquet file of the folder, relative to it, sorted."""
    paths = (path.relative_to(folder) for path in folder.rglob("*.parquet"))
    return sorted(path.as_posix() for path in paths if not path.parts[0].startswith("."))


def leftovers(folder: Path) -> list[Path]:
    """List leftovers of an interrupted export, sorted."""
    targets = ((path, target_of(path)) for path in folder.iterdir())
    return sorted(
        path
        for path, target in targets
        if target and (target.name == CARD or _is_collection(target.name))
    )


def as_dataset(given: str | Path) -> Path:
    """Turn a folder, or else a name given by `merge-nli register`, into the dataset's folder."""
    path = Path(given)
    if path.exists() or path.name != str(path):
        return path
    import datasets
    from datasets.naming import camelcase_to_snakecase

    cache = Path(datasets.config.HF_DATASETS_CACHE).expanduser() / camelcase_to_snakecase(path.name)
    records = [record for record in cache.glob(f"*/*/*/{REGISTERED}") if record.is_file()]
    if not records:
        return path
    newest = max(records, key=lambda record: record.parent.stat().st_mtime)
    return Path(read_record(newest, FOLDER)[FOLDER])


def require_dataset(folder: Path) -> None:
    """Raise an error unless `folder` is a dataset folder with all of its files."""
    require_collections(folder)
    for collection in collections(folder):
        recorded = read_record(folder / collection / PROVENANCE, verify=False).get(FILES, {})
        if gone := [name for name in recorded if not (folder / collection / name).is_file()]:
            raise FileNotFoundError(
                f"{folder / collection / gone[0]}: expected a file, which {collection}/{PROVENANCE}"
                f" records, found none; `merge-nli check {folder}` lists what is missing"
            )


def require_collections(folder: Path) -> None:
    """Raise NotADirectoryError unless `folder` is one with a collection in it."""
    if collections(folder):
        return
    state, base = f"none with <source>/{PROVENANCE} and Parquet files", folder
    if (folder / "suggested.json").is_file():
        state = f"a run, of which `merge-nli build --run {folder}` makes one"
    elif not folder.is_dir():
        state = "a file" if folder.exists() else "no folder there"
        base = folder.absolute().parent
    names = (path.parents[1].name for path in base.glob(f"*/*/{PROVENANCE}"))
    near = next((name for name in sorted(names) if not name.startswith(".")), None)
    hint = f"; did you mean {os.path.relpath(base / near)}?" if near else ""
    raise NotADirectoryError(
        f"{mask_urls(str(folder))}: expected a dataset folder or a registered name, found {state}"
        f"{hint}"
    )


def _is_collection(name: str) -> bool:
    source = name.partition("_")[0]
    return is_source(source) and name in (source, collection_name(source, PARAPHRASE))
