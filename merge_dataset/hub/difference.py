"""Files that are to be published, and how they differ from those of a revision on the Hub."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a revision, by what the Hub tells of its content."""

    path: str
    size: int
    git_oid: str
    sha256: str | None
    """Where the content lies in large file storage; `git_oid` is then that of the pointer."""


@dataclass(frozen=True, slots=True)
class File:
    """A file to be published."""

    path: str
    """In the repository."""
    content: Path | bytes
    size: int
    git_oid: str
    sha256: str

    def is_same(self, other: RemoteFile) -> bool:
        """Whether the file on the Hub has the same content."""
        if self.size != other.size:
            return False
        return (
            self.git_oid == other.git_oid if other.sha256 is None else self.sha256 == other.sha256
        )


def make_file(path: str, content: Path | bytes) -> File:
    """A file with its size and digests.

    >>> make_file("a", b"hello").git_oid  # as `git hash-object` says
    'b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0'
    """
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    # git names its objects by SHA-1; nothing here is secured by it.
    git = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    sha256 = hashlib.sha256()
    with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as stream:
        while block := stream.read(1 << 20):
            git.update(block)
            sha256.update(block)
    return File(path, content, size, git.hexdigest(), sha256.hexdigest())


@dataclass(frozen=True, slots=True)
class Difference:
    """What a commit would do to a revision."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.added or self.changed or self.removed)

    def __str__(self) -> str:
        """In words, the counts."""
        counts = {
            "to add": len(self.added),
            "to change": len(self.changed),
            "to remove": len(self.removed),
            "as they are": self.unchanged,
        }
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)


def compare(
    files: Iterable[File],
    there: Mapping[str, RemoteFile],
    removable: Callable[[str], bool] = lambda path: False,
) -> Difference:
    """What makes the files there equal to these.

    Args:
        files: What is to be.
        there: What is, by path.
        removable: Whether a file there that is none of these is to go.
    """
    wanted = {file.path: file for file in files}
    added = [path for path in wanted if path not in there]
    changed = [p for p, file in wanted.items() if p in there and not file.is_same(there[p])]
    removed = [path for path in there if path not in wanted and removable(path)]
    unchanged = len(wanted) - len(added) - len(changed)
    return Difference(
        tuple(sorted(added)), tuple(sorted(changed)), tuple(sorted(removed)), unchanged
    )
