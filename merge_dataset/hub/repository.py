"""Repositories on the Hub: their files, how others differ, and making a revision equal to these.

Every call is either one that changes nothing, or one that may be repeated: after a failure that
may pass, what is there is looked at again, and only what is still missing is done. The token is
huggingface_hub's own affair; nothing here reads it.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from merge_dataset.hub.errors import PublishError, call_hub, hide_queries

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo
    from huggingface_hub.hf_api import RepoFile

MAIN: Final = "main"

RepositoryType = Literal["dataset", "space", "model"]

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository by name and kind."""

    name: str
    """OWNER/NAME."""
    kind: RepositoryType

    @property
    def short_name(self) -> str:
        """The name without its owner."""
        return self.name.partition("/")[2]

    @property
    def address(self) -> str:
        """Its address for a browser."""
        from huggingface_hub.constants import ENDPOINT

        folder = "" if self.kind == "model" else f"{self.kind}s/"
        return f"{ENDPOINT}/{folder}{self.name}"


def parse_repository(text: str, kind: RepositoryType) -> Repository:
    """Read OWNER/NAME.

    >>> parse_repository("somebody/merge-nli", "dataset").short_name
    'merge-nli'
    """
    if _NAME.fullmatch(text) is None:
        raise ValueError(f"repo: expected OWNER/NAME, for example somebody/merge-nli, got {text!r}")
    return Repository(text, kind)


# --- Files ---


@dataclass(frozen=True, slots=True)
class File:
    """A file to be published."""

    path: str
    """Path in the repository."""
    content: Path | bytes
    size: int
    git_oid: str
    sha256: str

    def is_same(self, other: RepoFile) -> bool:
        """Tell whether the file on the Hub has the same content."""
        if self.size != other.size:
            return False
        # In large file storage `blob_id` is that of the pointer.
        return self.sha256 == other.lfs.sha256 if other.lfs else self.git_oid == other.blob_id


def make_file(path: str, content: Path | bytes) -> File:
    """Make a file with its size and digests.

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
class Changes:
    """Changes that a commit would make to a revision."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0

    @property
    def paths(self) -> tuple[str, ...]:
        """Files that the commit would touch."""
        return (*self.added, *self.changed, *self.removed)

    def __bool__(self) -> bool:
        """Tell whether there is any change."""
        return bool(self.paths)

    def __str__(self) -> str:
        """Write the counts in words."""
        counts = {
            "to add": len(self.added),
            "to change": len(self.changed),
            "to remove": len(self.removed),
            "as they are": self.unchanged,
        }
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)


def compare(
    files: Iterable[File],
    there: Mapping[str, RepoFile],
    removable: Callable[[str], bool] = lambda path: False,
) -> Changes:
    """Find the changes that make the files there equal to these."""
    wanted = {file.path: file for file in files}
    added = [path for path in wanted if path not in there]
    changed = [p for p, file in wanted.items() if p in there and not file.is_same(there[p])]
    removed = [path for path in there if path not in wanted and removable(path)]
    unchanged = len(wanted) - len(added) - len(changed)
    return Changes(tuple(sorted(added)), tuple(sorted(changed)), tuple(sorted(removed)), unchanged)


# --- Repositories ---


@dataclass(frozen=True, slots=True)
class State:
    """The present state of a repository."""

    private: bool
    head: str
    """Commit of `main`."""
    branches: Mapping[str, str]
    """Name → commit."""
    tags: Mapping[str, str]


class Hub:
    """Calls of huggingface_hub, repeated where that is safe, failing in words for users."""

    def __init__(self) -> None:
        """Get ready to ask; nothing is asked yet."""
        from huggingface_hub import HfApi

        hide_queries()
        self._api = HfApi(library_name="merge-nli")

    @property
    def is_offline(self) -> bool:
        """Tell whether HF_HUB_OFFLINE forbids every call."""
        from huggingface_hub import constants

        return bool(constants.HF_HUB_OFFLINE)

    def has_token(self) -> bool:
        """Tell whether huggingface_hub finds a token."""
        from huggingface_hub import get_token

        return get_token() is not None

    def account(self) -> str:
        """Name the user to whom the token belongs.

        Raises:
            PublishError: there is no token, it is not accepted, or it may only read.
        """
        if not self.has_token():
            raise PublishError(
                "expected to be logged in to the Hub, found no token: run `hf auth login`, or set "
                "HF_TOKEN to one that may write (https://huggingface.co/settings/tokens)"
            )
        answer: dict[str, Any] = call_hub("asking who you are", self._api.whoami)
        token = answer.get("auth", {}).get("accessToken", {})
        if token.get("role") == "read":
            raise PublishError(
                f"expected a token that may write, got one of {answer['name']} that may only "
                "read; make another: https://huggingface.co/settings/tokens"
            )
        return str(answer["name"])

    def state(self, repository: Repository) -> State | None:
        """Look at a repository; None where there is none, or none that you may see."""
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

        def ask() -> State | None:
            try:
                info = self._api.repo_info(repository.name, repo_type=repository.kind)
                refs = self._api.list_repo_refs(repository.name, repo_type=repository.kind)
            except GatedRepoError:
                raise
            except RepositoryNotFoundError:
                return None
            branches = {ref.name: ref.target_commit for ref in refs.branches}
            tags = {ref.name: ref.target_commit for ref in refs.tags}
            return State(bool(info.private), branches.get(MAIN, str(info.sha)), branches, tags)

        return call_hub(f"looking at {repository.name}", ask)

    def files(self, repository: Repository, revision: str) -> dict[str, RepoFile]:
        """List the files of a revision, by path."""
        from huggingface_hub.hf_api import RepoFile

        def ask() -> dict[str, RepoFile]:
            entries = self._api.list_repo_tree(
                repository.name, repo_type=repository.kind, revision=revision, recursive=True
            )
            return {each.path: each for each in entries if isinstance(each, RepoFile)}

        return call_hub(f"listing the files of {repository.name} at {revision}", ask)

    def read(self, repository: Repository, path: str, revision: str) -> bytes:
        """Read a small file; empty where there is no such file."""
        from huggingface_hub.errors import EntryNotFoundError

        def ask() -> bytes:
            try:
                local = self._api.hf_hub_download(
                    repository.name, path, repo_type=repository.kind, revision=revision
                )
            except EntryNotFoundError:
                return b""
            return Path(local).read_bytes()

        return call_hub(f"reading {path} of {repository.name}", ask)

    def create(self, repository: Repository, *, private: bool, sdk: str | None = None) -> None:
        """Make a repository; one that is there already stays as it is."""
        make, told = self._api.create_repo, f"making {repository.name}"
        self._do(told, make, repository, private=private, exist_ok=True, space_sdk=sdk)

    def make_equal(
        self,
        repository: Repository,
        files: Iterable[File],
        *,
        message: str,
        revision: str = MAIN,
        removable: Callable[[str], bool] = lambda path: False,
        planned_on: str | None = None,
    ) -> str:
        """Make a branch equal to these files in one commit, or none where it is so already.

        The commit is made on the head that was looked at: one that somebody else makes in
        between is not overwritten, but an error.

        With `planned_on`, it must be the head that was looked at before this call.

        Returns:
            The branch's commit with these files.

        Raises:
            PublishError: it failed; the message says whether the branch is as it was.
        """
        files = list(files)
        before = self.commit_of(repository, revision)

        def attempt() -> str:
            head = self.commit_of(repository, revision)
            difference = compare(files, self.files(repository, head), removable)
            if not difference:
                return head
            if planned_on not in (None, head):
                raise PublishError(
                    f"uploading to {repository.name}: something else changed {revision} since "
                    "it was looked at; run the same command again"
                )
            return str(
                self._commit(
                    repository, files, difference, message, revision=revision, parent_commit=head
                ).oid
            )

        try:
            return call_hub(f"uploading to {repository.name}", attempt)
        except PublishError as error:
            try:
                after = self.commit_of(repository, revision)
            except PublishError:
                told = (
                    f"Whether {revision} has changed could not be seen; the same command, run "
                    "again, goes on from what is there."
                )
            else:
                was = f"was at {before[:12]} and is at {after[:12]} now"
                told = f"is as it was, at {before[:12]}" if after == before else was
                told = f"{revision} of {repository.name} {told}."
            raise PublishError(f"{error}\n{told}") from error

    def propose(
        self, repository: Repository, files: Iterable[File], *, message: str, description: str
    ) -> str:
        """Open a pull request with these files, or bring up to date the one open already.

        Returns:
            The pull request's address.
        """
        files = list(files)
        number = self._open_request(repository, message)
        if number is not None:
            self.make_equal(repository, files, message=message, revision=f"refs/pr/{number}")
            return f"{repository.address}/discussions/{number}"

        def attempt() -> str:
            # After a failed attempt there may be one nevertheless.
            found = self._open_request(repository, message)
            if found is not None:
                return f"{repository.address}/discussions/{found}"
            difference = Changes(added=tuple(file.path for file in files))
            made = self._commit(
                repository,
                files,
                difference,
                message,
                description=description,
                revision=MAIN,
                create_pr=True,
            )
            return str(made.pr_url)

        return call_hub(f"opening a pull request in {repository.name}", attempt)

    def tag(self, repository: Repository, name: str, revision: str, message: str) -> None:
        """Name a commit; a tag of this name that is there already stays."""
        more = {"tag": name, "tag_message": message, "revision": revision, "exist_ok": True}
        self._do(f"tagging {name}", self._api.create_tag, repository, **more)

    def branch(self, repository: Repository, name: str, revision: str) -> None:
        """Make a branch that starts at a commit; one that is there already stays."""
        more = {"branch": name, "revision": revision, "exist_ok": True}
        self._do(f"making the branch {name}", self._api.create_branch, repository, **more)

    def commit_of(self, repository: Repository, revision: str) -> str:
        """Find the commit of a branch or a tag."""
        ask, told = self._api.repo_info, f"looking at {repository.name}"
        return str(self._do(told, ask, repository, revision=revision).sha)

    def _do(self, doing: str, call: Callable[..., Any], repository: Repository, **more: Any) -> Any:
        """Make a call about a repository that may be repeated."""
        return call_hub(doing, partial(call, repository.name, repo_type=repository.kind, **more))

    def _commit(
        self,
        repository: Repository,
        files: Iterable[File],
        difference: Changes,
        message: str,
        *,
        description: str | None = None,
        revision: str = MAIN,
        **more: Any,
    ) -> CommitInfo:
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        wanted = {file.path: file for file in files}
        # Made for each commit anew: huggingface_hub writes into them.
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            CommitOperationAdd(path, wanted[path].content)
            for path in (*difference.added, *difference.changed)
        ]
        operations += [CommitOperationDelete(path) for path in difference.removed]
        made: CommitInfo = self._api.create_commit(
            repository.name,
            operations,
            commit_message=message,
            commit_description=description,
            repo_type=repository.kind,
            revision=revision,
            **more,
        )
        return made

    def _open_request(self, repository: Repository, title: str) -> int | None:
        """Find the number of your open pull request of this title, if any."""

        def ask() -> int | None:
            found = self._api.get_repo_discussions(
                repository.name,
                author=self._api.whoami()["name"],
                discussion_type="pull_request",
                discussion_status="open",
                repo_type=repository.kind,
            )
            return next((each.num for each in found if each.title == title), None)

        return call_hub(f"looking at the pull requests of {repository.name}", ask)
