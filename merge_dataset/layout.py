"""The dataset folder on disk: which sources, configurations and files it holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from merge_dataset.schema import CONFIG_SUFFIXES, WORD_CLASSES, config_files, config_name, is_source

CARD: Final = "README.md"
PROVENANCE: Final = "provenance.json"

_LEFTOVER = re.compile(r"\.([a-z0-9-]+|README\.md)\.(partial|old)")


def sources(folder: Path) -> list[str]:
    """Names of the sources in a dataset folder, sorted."""
    names = (path.parent.name for path in folder.glob(f"*/{PROVENANCE}"))
    return sorted(name for name in names if is_source(name))


def configurations(folder: Path, source: str) -> list[str]:
    """Configurations of one source: all classes first, then each class with variants."""
    return [config_name(source)] + [
        config_name(source, word_class)
        for word_class in WORD_CLASSES
        if (folder / source / CONFIG_SUFFIXES[word_class] / "variants.parquet").is_file()
    ]


def all_configurations(folder: Path) -> list[str]:
    """Configurations of every source, in the order of the card."""
    return [name for source in sources(folder) for name in configurations(folder, source)]


def split_files(folder: Path, config: str) -> dict[str, list[str]]:
    """The files of a configuration that exist, by split, relative to the folder."""
    return {
        split: [name for name in names if (folder / name).is_file()]
        for split, names in config_files(config).items()
    }


def parquet_files(folder: Path) -> list[str]:
    """Every Parquet file of the folder, relative to it, sorted."""
    paths = (path.relative_to(folder) for path in folder.rglob("*.parquet"))
    return sorted(path.as_posix() for path in paths if not path.parts[0].startswith("."))


def leftovers(folder: Path) -> list[Path]:
    """What an interrupted export left in the folder, sorted."""
    return sorted(path for path in folder.iterdir() if _LEFTOVER.fullmatch(path.name))


def partial_path(target: Path) -> Path:
    """The temporary name, next to it, under which `target` is written."""
    return target.with_name(f".{target.name}.partial")


def old_path(target: Path) -> Path:
    """The temporary name, next to it, of the `target` that is being replaced."""
    return target.with_name(f".{target.name}.old")


def require_dataset(folder: Path) -> None:
    """Raise unless `folder` is a dataset folder.

    Raises:
        NotADirectoryError: `folder` is no folder.
        ValueError: it holds no source.
    """
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder}: expected a dataset folder, found no folder there")
    if not sources(folder):
        raise ValueError(
            f"{folder}: expected a dataset folder, with <source>/{PROVENANCE} and Parquet files, "
            f"as `merge-nli build` writes it; found none"
        )
