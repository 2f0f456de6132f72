"""Names of the files that a large split is divided into. Imports nothing of ours, as scripts do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

_NUMBERED: Final = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})\.parquet$")


def numbered_file(name: str, number: int, count: int) -> str:
    """Name one of the files that a large split is divided into, in the order of its rows.

    >>> numbered_file("snli/seeds.parquet", 2, 12)
    'snli/seeds-00002-of-00012.parquet'
    """
    return f"{name.removesuffix('.parquet')}-{number:05}-of-{count:05}.parquet"


def numbered_files(name: str, found: Iterable[str]) -> list[str]:
    """Sort the files that a split is divided into, out of those found in its folder.

    Raises:
        FileNotFoundError: one is missing.
    """
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
