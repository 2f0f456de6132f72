"""Files of a configuration, also those that a large split is divided into, and their digest.

`merge_nli` takes it along as a loading script, so its import of ours is relative, in one line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from glob import escape
from pathlib import Path
from typing import Any, Final

from fsspec.core import url_to_fs

from .schema import config_files

_NUMBERED: Final = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})\.parquet$")


def numbered_file(name: str, number: int, count: int) -> str:
    """Name one of the files that a large split is divided into, in the order of its rows.

    >>> numbered_file("snli/seeds.parquet", 2, 12)
    'snli/seeds-00002-of-00012.parquet'
    """
    return f"{name.removesuffix('.parquet')}-{number:05}-of-{count:05}.parquet"


def numbered_files(name: str, found: Iterable[str]) -> list[str]:
    """Sort the files that a split is divided into, out of those found in its folder."""
    files = sorted(found)
    count = int(_NUMBERED.search(files[-1])["count"]) if files else 0  # type: ignore[index]
    expected = [numbered_file(name, number, count) for number in range(count)]
    missing = [each for each in expected if not any(file.endswith(each) for file in files)]
    if missing or len(files) != count:
        raise FileNotFoundError(
            f"{name}: expected the {count:,} files that it is divided into, "
            f"{numbered_file(name, 0, count)} to {expected[-1]}, got {len(files):,} files"
            + (f", without {', '.join(missing[:3])}" if missing else "")
        )
    return files


def patterns_of(files: Sequence[str]) -> list[str]:
    """Put a pattern in place of the files that one is divided into.

    >>> patterns_of(["a/seeds.parquet", "b/seeds-00000-of-00002.parquet",
    ...              "b/seeds-00001-of-00002.parquet"])
    ['a/seeds.parquet', 'b/seeds-*-of-00002.parquet']
    """
    return list(dict.fromkeys(_NUMBERED.sub(r"-*-of-\g<count>.parquet", file) for file in files))


def find_files(root: str | Path, config: str) -> dict[str, list[str]]:
    """List the files of a configuration by split, absolute, without the files of absent classes.

    The root is the dataset folder, or a URL that fsspec can look into (`hf://datasets/…`).
    """
    base = str(root) if "://" in str(root) else Path(root).expanduser().resolve().as_posix()
    filesystem, _ = url_to_fs(base)
    found = {}
    for split, names in config_files(config).items():
        paths = [f"{base}/{name}" for name in names]
        found[split] = [file for path in paths for file in _files(filesystem, path)]
        if not found[split]:
            raise FileNotFoundError(
                f"configuration {config!r}, split {split!r}: expected {' or '.join(paths)}, "
                f"found none; pass data_dir=<the folder that `merge-nli build` wrote>, or "
                f"make the source and class of variants this configuration is named after"
            )
    return found


def _files(filesystem: Any, path: str) -> list[str]:
    """List a file, or those that it is divided into, as far as they exist."""
    if filesystem.exists(path):
        return [path]
    name = escape(path.removesuffix(".parquet"))
    found = filesystem.glob(f"{name}-?????-of-?????.parquet")
    folder = path.rpartition("/")[0]
    names = (str(each).rpartition("/")[2] for each in found)
    return numbered_files(path, [f"{folder}/{name}" for name in names])


def content_hash(root: str | Path, config: str) -> str:
    """Digest the names and bytes of a local configuration's files to 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for split, paths in find_files(root, config).items():
        for path in paths:
            digest.update(f"{split} {Path(path).parent.name}\n".encode())
            with Path(path).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
