"""Files of a configuration, numbered ones of large splits too, for the loading script as well."""

import glob
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from .schema import config_files

_NUMBERED: Final = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})\.parquet$")


def numbered_file(name: str, number: int, count: int) -> str:
    """Name one of the files that a large split is divided into, in the order of its rows.

    >>> numbered_file("snli/seeds.parquet", 2, 12)
    'snli/seeds-00002-of-00012.parquet'
    """
    return f"{name.removesuffix('.parquet')}-{number:05}-of-{count:05}.parquet"


def patterns_of(files: Sequence[str]) -> list[str]:
    """Put a pattern in place of the files that one is divided into.

    >>> patterns_of(["a/seeds.parquet", "b/seeds-00000-of-00002.parquet",
    ...              "b/seeds-00001-of-00002.parquet"])
    ['a/seeds.parquet', 'b/seeds-*-of-00002.parquet']
    """
    return list(dict.fromkeys(_NUMBERED.sub(r"-*-of-\g<count>.parquet", file) for file in files))


def split_files(root: str | Path, config: str) -> dict[str, list[str]]:
    """List a configuration's files by split, relative to the folder, or a URL of fsspec."""
    base = _base_of(root)
    exists, find = os.path.exists, glob.glob
    if "://" in base:
        from fsspec.core import url_to_fs

        filesystem, _ = url_to_fs(base)
        exists, find = filesystem.exists, filesystem.glob
    return {
        split: [file for name in names for file in _files(exists, find, base, name)]
        for split, names in config_files(config).items()
    }


def find_files(root: str | Path, config: str) -> dict[str, list[str]]:
    """List the files of a configuration by split, absolute; an error where one has none."""
    if "://" not in str(root):
        root = Path(root).expanduser()
    base, found = _base_of(root), split_files(root, config)
    for split, names in config_files(config).items():
        if not found[split]:
            raise FileNotFoundError(
                f"configuration {config!r}, split {split!r}: expected "
                f"{' or '.join(f'{base}/{name}' for name in names)}, "
                f"found none; pass data_dir=<the folder that `merge-nli build` wrote>, or "
                f"make the source and class of variants this configuration is named after"
            )
    return {split: [f"{base}/{name}" for name in names] for split, names in found.items()}


def _base_of(root: str | Path) -> str:
    return str(root) if "://" in str(root) else Path(root).resolve().as_posix()


def _files(
    exists: Callable[[str], bool], find: Callable[[str], list[str]], base: str, name: str
) -> list[str]:
    """List a file, or those that it is divided into, in their order, as far as they exist."""
    if exists(f"{base}/{name}"):
        return [name]
    stem = glob.escape(f"{base}/{name.removesuffix('.parquet')}")
    folder, found = name.rpartition("/")[0], find(f"{stem}-?????-of-?????.parquet")
    files = sorted(f"{folder}/{Path(each).name}" for each in found)
    count = int(_NUMBERED.search(files[-1])["count"]) if files else 0  # type: ignore[index]
    expected = [numbered_file(name, number, count) for number in range(count)]
    if files != expected:
        missing = [each for each in expected if each not in files]
        raise FileNotFoundError(
            f"{base}/{name}: expected the {count:,} files that it is divided into, "
            f"{expected[0]} to {expected[-1]}, got {len(files):,} files"
            + (f", without {', '.join(missing[:3])}" if missing else "")
        )
    return files


def content_hash(root: str | Path, config: str) -> str:
    """Digest the names and bytes of a local configuration's files to 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for split, paths in find_files(root, config).items():
        for path in paths:
            digest.update(f"{split} {Path(path).parent.name}\n".encode())
            with Path(path).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
