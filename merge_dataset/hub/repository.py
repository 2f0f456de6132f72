"""Repositories on the Hub: list files, compare them, and make a revision equal to planned files.

Each call only reads or may be repeated: after a temporary failure, the state is read again, and
only missing steps are done. No message has an address with a query, which could be signed.
huggingface_hub itself handles the token.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo, HfApi
    from huggingface_hub.hf_api import RepoFile

log = logging.getLogger(__name__)

T = TypeVar("T")

MAIN: Final = "main"

RepositoryType = Literal["dataset", "space", "model"]

Kind = Literal["model", "data set"]

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


# --- Files ---


@dataclass(frozen=True, slots=True)
class File:
    """A file to publish."""

    path: str
    content: Path | bytes
    size: int
    git_oid: str
    sha256: str

    def is_same(self, other: RepoFile) -> bool:
        """Return whether the file on the Hub has the same content."""
        if self.size != other.size:
            return False
        # With large file storage, `blob_id` is the pointer's id.
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
    """Changes that a commit makes to a revision."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths that the commit touches."""
        return (*self.added, *self.changed, *self.removed)

    def __bool__(self) -> bool:
        """Return whether there is any change."""
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
    removable: Callable[[str], bool] | None = None,
) -> Changes:
    """Find the changes that make the files on the Hub equal to these."""
    wanted = {file.path: file for file in files}
    added = [path for path in wanted if path not in there]
    changed = [p for p, file in wanted.items() if p in there and not file.is_same(there[p])]
    removed = [path for path in there if path not in wanted and removable and removable(path)]
    unchanged = len(wanted) - len(added) - len(changed)
    return Changes(tuple(sorted(added)), tuple(sorted(changed)), tuple(sorted(removed)), unchanged)


# --- Repositories ---


@dataclass(frozen=True, slots=True)
class State:
    """Current state of a repository."""

    private: bool
    head: str
    """Commit of `main`."""
    branches: Mapping[str, str]
    """Name of a branch → commit."""
    tags: Mapping[str, str]


def is_offline() -> bool:
    """Return whether HF_HUB_OFFLINE forbids all calls."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def account_of_token() -> str | None:
    """Return the token's user; None without a token; raise if the token cannot write."""
    from huggingface_hub import get_token

    if get_token() is None:
        return None
    answer: dict[str, Any] = call_hub("asking who you are", _api().whoami)
    token = answer.get("auth", {}).get("accessToken", {})
    if token.get("role") == "read":
        raise PublishError(
            f"expected a token that may write, got one of {answer['name']} that may only "
            "read; make another: https://huggingface.co/settings/tokens"
        )
    return str(answer["name"])


def _api() -> HfApi:
    """Return the API of huggingface_hub, with queries hidden in its log."""
    from huggingface_hub import HfApi

    hide_queries()
    return HfApi(library_name="merge-nli")


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository, by name and kind; calls are repeated if safe, and raise PublishError."""

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

    def state(self) -> State | None:
        """Read its state; None if it does not exist, or is not visible to you."""
        from huggingface_hub.errors import RepositoryNotFoundError

        told = f"looking at {self.name}"
        info = self._call(told, _api().repo_info, absent=RepositoryNotFoundError)
        if info is None:
            return None
        refs = self._call(told, _api().list_repo_refs)
        branches = {ref.name: ref.target_commit for ref in refs.branches}
        tags = {ref.name: ref.target_commit for ref in refs.tags}
        return State(bool(info.private), branches.get(MAIN, str(info.sha)), branches, tags)

    def files(self, revision: str) -> dict[str, RepoFile]:
        """List the files of a revision, by path."""
        from huggingface_hub.hf_api import RepoFile

        told = f"listing the files of {self.name} at {revision}"
        entries = self._call(told, _api().list_repo_tree, revision=revision, recursive=True)
        return {each.path: each for each in entries if isinstance(each, RepoFile)}

    def read(self, path: str, revision: str) -> bytes:
        """Read a small file; empty if there is no such file."""
        from huggingface_hub.errors import RemoteEntryNotFoundError

        told, more = f"reading {path} of {self.name}", {"filename": path, "revision": revision}
        local = self._call(told, _api().hf_hub_download, absent=RemoteEntryNotFoundError, **more)
        return b"" if local is None else Path(local).read_bytes()

    def create(self, *, private: bool, sdk: str | None = None) -> None:
        """Create the repository; an existing one is unchanged."""
        more: dict[str, Any] = {"private": private, "exist_ok": True, "space_sdk": sdk}
        self._call(f"making {self.name}", _api().create_repo, **more)

    def tag(self, name: str, revision: str, message: str) -> None:
        """Tag a commit; an existing tag of this name is unchanged."""
        more: dict[str, Any] = {"tag": name, "tag_message": message, "revision": revision}
        self._call(f"tagging {name}", _api().create_tag, exist_ok=True, **more)

    def branch(self, name: str, revision: str) -> None:
        """Create a branch at a commit; an existing one is unchanged."""
        more: dict[str, Any] = {"branch": name, "revision": revision, "exist_ok": True}
        self._call(f"making the branch {name}", _api().create_branch, **more)

    def commit_of(self, revision: str) -> str:
        """Find the commit of a branch or a tag."""
        return str(self._call(f"looking at {self.name}", _api().repo_info, revision=revision).sha)

    def make_equal(
        self,
        files: Sequence[File],
        *,
        message: str,
        revision: str = MAIN,
        removable: Callable[[str], bool] | None = None,
        planned_on: str | None = None,
    ) -> str:
        """Make a branch equal to these files, by one commit if necessary; return the commit's id.

        The commit's parent is the head that was read here, or earlier as `planned_on`: if somebody
        else commits in between, this is an error, and nothing is overwritten.
        """
        before = self.commit_of(revision)

        def attempt() -> str:
            head = self.commit_of(revision)
            difference = compare(files, self.files(head), removable)
            if not difference:
                return head
            if planned_on not in (None, head):
                raise PublishError(
                    f"uploading to {self.name}: something else changed {revision} since "
                    "it was looked at; run the same command again"
                )
            made = self._commit(files, difference, message, revision=revision, parent_commit=head)
            return str(made.oid)

        try:
            return call_hub(f"uploading to {self.name}", attempt)
        except PublishError as error:
            try:
                after = self.commit_of(revision)
            except PublishError:
                told = (
                    f"Whether {revision} has changed could not be seen; the same command, run "
                    "again, goes on from what is there."
                )
            else:
                was = f"was at {before[:12]} and is at {after[:12]} now"
                told = f"is as it was, at {before[:12]}" if after == before else was
                told = f"{revision} of {self.name} {told}."
            raise PublishError(f"{error}\n{told}") from error

    def propose(self, files: Sequence[File], *, message: str, description: str) -> str:
        """Open a pull request with these files, or update an open one; return its address."""

        def attempt() -> int:
            # Look for your own one with this title, as even a failed attempt may have made one.
            found = _api().get_repo_discussions(
                self.name,
                author=_api().whoami()["name"],
                discussion_type="pull_request",
                discussion_status="open",
                repo_type=self.kind,
            )
            for each in found:
                if each.title == message:
                    return each.num
            new = Changes(added=tuple(file.path for file in files))
            more = {"commit_description": description, "revision": MAIN, "create_pr": True}
            return int(self._commit(files, new, message, **more).pr_num or 0)

        number = call_hub(f"opening a pull request in {self.name}", attempt)
        self.make_equal(files, message=message, revision=f"refs/pr/{number}")
        return f"{self.address}/discussions/{number}"

    def _call(
        self,
        doing: str,
        call: Callable[..., Any],
        *,
        absent: type[Exception] | None = None,
        **more: Any,
    ) -> Any:
        """Make a repeatable call; None if it raises exactly `absent`, not a subclass."""

        def attempt() -> Any:
            try:
                found = call(self.name, repo_type=self.kind, **more)
                return list(found) if isinstance(found, Iterator) else found
            except Exception as error:
                if type(error) is absent:
                    return None
                raise

        return call_hub(doing, attempt)

    def _commit(
        self, files: Sequence[File], difference: Changes, message: str, **more: Any
    ) -> CommitInfo:
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        wanted = {file.path: file for file in files}
        # New objects for each commit, as huggingface_hub modifies them.
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            CommitOperationAdd(path, wanted[path].content)
            for path in (*difference.added, *difference.changed)
        ]
        operations += [CommitOperationDelete(path) for path in difference.removed]
        more |= {"commit_message": message, "repo_type": self.kind}
        made: CommitInfo = _api().create_commit(self.name, operations, **more)
        return made


def parse_repository(text: str, kind: RepositoryType) -> Repository:
    """Parse OWNER/NAME."""
    if _NAME.fullmatch(text) is None:
        raise ValueError(f"repo: expected OWNER/NAME, for example somebody/merge-nli, got {text!r}")
    return Repository(text, kind)


# --- Failures ---

_EXPECTED: Final = {"model": "a folder with a model", "data set": "a file or folder that is there"}
_PAGES: Final = {"model": "https://huggingface.co/", "data set": "https://huggingface.co/datasets/"}

_PASSING: Final = (429, 500, 502, 503, 504)
_WAITS: Final = (0.5, 2.0, 8.0)
"""Seconds before a call is repeated, unless the Hub names a time."""
_LONGEST_WAIT: Final = 60.0
_QUERY: Final = re.compile(r"(?<=\w)\?\S*=\S*")
"""Pattern of an address's query, from the question mark on."""


class PublishError(Exception):
    """The Hub refuses or fails, or its content is not as expected."""


def call_hub(doing: str, call: Callable[[], T]) -> T:
    """Call; repeat after temporary failures, and turn others into `PublishError`."""
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        LocalTokenNotFoundError,
        OfflineModeIsEnabled,
    )

    # The last three: a download without connection, a failed upload of a file, and a card that the
    # Hub rejects.
    wrapped = (LocalEntryNotFoundError, RuntimeError)
    not_ours = (http_error(), HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled,
                *wrapped, ValueError)  # fmt: skip
    for wait in (*_WAITS, None):
        try:
            return call()
        except not_ours as error:
            cause = error.__cause__ if isinstance(error, wrapped) else error
            response = getattr(cause, "response", None)
            status = getattr(response, "status_code", None)
            # Refused or broken connections and truncated answers may be temporary, too.
            cut = isinstance(cause, (http_error(), json.JSONDecodeError))
            cut = cut and not isinstance(cause, OfflineModeIsEnabled)
            if wait is None or not (cut if status is None else status in _PASSING):
                raise PublishError(f"{doing}: {_in_words(cause or error)}") from error
            asked = response.headers.get("Retry-After", "") if response is not None else ""
            seconds = min(float(asked), _LONGEST_WAIT) if asked.isdecimal() else wait
            reason = type(cause).__name__ if status is None else f"the Hub answered {status}"
            log.warning("%s: %s; trying again in %g s", doing, reason, seconds)
            time.sleep(seconds)
    raise AssertionError("the last round returns or raises")


def hide_queries() -> None:
    """Keep queries out of huggingface_hub's log, as a signed query permits writing."""
    for logger in (logging.getLogger("huggingface_hub"), logging.getLogger()):
        for handler in logger.handlers:
            handler.addFilter(_without_query)


def _without_query(record: logging.LogRecord) -> bool:
    record.msg, record.args = _QUERY.sub("?…", record.getMessage()), ()
    return True


def _in_words(error: BaseException) -> str:
    from huggingface_hub.errors import OfflineModeIsEnabled, RepositoryNotFoundError

    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    header = response.headers.get("X-Error-Message") if response is not None else None
    quoted = " ".join(str(getattr(error, "server_message", None) or header or "").split())
    told = f": {quoted[:300]}" if quoted else ""
    again = "run the same command again"
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set and forbids every call; unset it to publish"
    if isinstance(error, RepositoryNotFoundError):
        return f"there is no such repository, or your token may not see it ({status}){told}"
    if status is None and not isinstance(error, http_error()):
        return " ".join(str(error).split())
    if status is None:
        return f"the connection failed ({type(error).__name__}: {error}); {again}"
    meanings = {
        401: "your token is not accepted; run `hf auth login` again, or set HF_TOKEN anew",
        403: "your token has no right to do this; use one that may write to the repository",
        409: f"something else changed the repository meanwhile; {again}",
        412: f"something else changed the repository meanwhile; {again}",
        429: f"too many requests; wait some minutes and {again}",
    }
    failed = f"the Hub failed; {again} later" if status in _PASSING else "the Hub refuses it"
    return f"{meanings.get(status, failed)} ({status}){told}"


def http_error() -> type[Exception]:
    """Return the base class of the HTTP library's errors, which differs between releases."""
    from huggingface_hub.errors import HfHubHTTPError

    base: type[Exception] = HfHubHTTPError.__bases__[0]
    return base


def refusal(error: BaseException, kind: Kind, name: str) -> str | None:
    """Say why the Hub refused a repository, and what to do; None if it did not refuse."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, GatedRepoError):
        return (
            f"the {kind} is gated: ask for access at {_PAGES[kind]}{name}, then log in with hf "
            f"auth login"
        )
    if isinstance(error, RepositoryNotFoundError):
        return (
            f"there is no such {kind} on the Hub, or it is private: check the id, and log in with "
            f"hf auth login if it is yours"
        )
    if isinstance(error, RevisionNotFoundError):
        return f"the {kind} on the Hub has no such revision"
    if isinstance(error, HFValidationError):
        return f"expected {_EXPECTED[kind]}, or an id on the Hub such as org/name"
    return None
