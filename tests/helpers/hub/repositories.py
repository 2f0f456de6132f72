import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class User:
    name: str
    role: str = "write"
    organisations: tuple[str, ...] = ()

    def may_write(self, repository: str) -> bool:
        return self.role == "write" and self.owns(repository)

    def owns(self, repository: str) -> bool:
        return repository.partition("/")[0] in (self.name, *self.organisations)


@dataclass(frozen=True)
class Entry:
    content: bytes
    large: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def git_oid(self) -> str:
        held = self.content
        if self.large:
            held = (
                "version https://git-lfs.github.com/spec/v1\n"
                f"oid sha256:{self.sha256}\nsize {len(held)}\n"
            ).encode()
        return hashlib.sha1(b"blob %d\0" % len(held) + held).hexdigest()

    def described(self, path: str) -> dict[str, Any]:
        return {"type": "file", "path": path} | self.sized(own="oid", of_large="oid")

    def sized(self, own: str = "blobId", of_large: str = "sha256") -> dict[str, Any]:
        """Description of the file in a listing of a repository's facts."""
        size = len(self.content)
        lfs = {"lfs": {of_large: self.sha256, "size": size, "pointerSize": 130}}
        return {"size": size, own: self.git_oid} | (lfs if self.large else {})


@dataclass(frozen=True)
class Commit:
    files: Mapping[str, Entry]
    message: str
    parent: str | None

    @property
    def sha(self) -> str:
        listed = {path: entry.git_oid for path, entry in sorted(self.files.items())}
        text = json.dumps([listed, self.message, self.parent])
        return hashlib.sha1(text.encode()).hexdigest()


@dataclass
class PullRequest:
    """A pull request; its branch is `refs/pr/NUMBER`."""

    number: int
    title: str
    description: str
    author: str
    status: str = "open"


@dataclass
class Repo:
    private: bool = False
    sdk: str | None = None
    allowed: tuple[str, ...] | None = None
    """Users who may read a gated repository's files; None if it is not gated."""
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    pull_requests: list[PullRequest] = field(default_factory=list)

    def add(self, branch: str, files: Mapping[str, Entry], message: str) -> str:
        commit = Commit(files, message, self.branches.get(branch))
        self.commits[commit.sha] = commit
        self.branches[branch] = commit.sha
        return commit.sha

    def propose(
        self, files: Mapping[str, Entry], title: str, author: str, description: str = ""
    ) -> str:
        number = len(self.pull_requests) + 1
        self.pull_requests.append(PullRequest(number, title, description, author))
        self.branches[f"refs/pr/{number}"] = self.branches["main"]
        return self.add(f"refs/pr/{number}", files, title)

    def resolve(self, revision: str) -> str | None:
        sha = self.branches.get(revision) or self.tags.get(revision) or revision
        return sha if sha in self.commits else None

    def at(self, revision: str = "main") -> dict[str, bytes]:
        sha = self.resolve(revision)
        assert sha is not None, revision
        return {path: entry.content for path, entry in self.commits[sha].files.items()}

    def history(self, branch: str = "main") -> list[str]:
        """Messages of a branch's commits, newest first."""
        messages, sha = [], self.branches.get(branch)
        while sha is not None:
            messages.append(self.commits[sha].message)
            sha = self.commits[sha].parent
        return messages


_LARGE = (".parquet", ".bin", ".safetensors", ".gguf", ".h5", ".msgpack", ".model", ".pt", ".onnx")


def entries_of(files: Mapping[str, bytes]) -> dict[str, Entry]:
    """Entries of a repository's files; the suffix decides which ones are large."""
    return {path: Entry(content, path.endswith(_LARGE)) for path, content in files.items()}


def listing(files: Mapping[str, Entry], base: str, *, recursive: bool) -> list[dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {}
    prefix = f"{base}/" if base else ""
    for path, entry in sorted(files.items()):
        if not path.startswith(prefix):
            continue
        first, slash, _ = path.removeprefix(prefix).partition("/")
        if slash:
            folder = prefix + first
            result.setdefault(folder, {"type": "directory", "path": folder, "oid": "0", "size": 0})
        if not slash or recursive:
            result[path] = entry.described(path)
    return list(result.values())
