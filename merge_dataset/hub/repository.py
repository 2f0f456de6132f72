"""Repositories on the Hub: list files, compare them, and make a revision equal to planned files.

Each call only reads or may be repeated: after a temporary failure, the state is read again, and
only missing steps are done. No message has an address with a query, which could be signed.
huggingface_hub itself handles the token.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo, CommitOperationAdd, HfApi
    from huggingface_hub.hf_api import RepoFile

Files = list["CommitOperationAdd"]

log = logging.getLogger(__name__)

MAIN: Final = "main"

Changes = dict[str, list[str]]
"""Kind of change ("added", "changed", "removed") → its paths, in order."""


@dataclass(frozen=True, slots=True)
class Content:
    """Files that a branch is to hold, without others whose whole path matches `surplus`."""

    files: Files
    message: str = ""
    """That of the commit."""
    branch: str = MAIN
    surplus: re.Pattern[str] = re.compile("(?!)")


def hub_api() -> HfApi:
    """Return the API of huggingface_hub; its log hides queries, as signed ones permit writing."""
    from huggingface_hub import HfApi

    for logger in (logging.getLogger("huggingface_hub"), logging.getLogger()):
        for handler in logger.handlers:
            handler.addFilter(_without_query)
    return HfApi(library_name="merge-nli")


def _without_query(record: logging.LogRecord) -> bool:
    record.msg, record.args = _QUERY.sub("?…", record.getMessage()), ()
    return True


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository, by name and kind; calls are repeated if safe, and raise PublishError."""

    name: str
    """OWNER/NAME."""
    kind: Literal["dataset", "space", "model"]
    private: bool = False
    """Whether it is to be private: a new one is made so."""

    def __post_init__(self) -> None:
        """Require OWNER/NAME."""
        if re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", self.name) is None:
            raise ValueError(
                f"repo: expected OWNER/NAME, for example somebody/merge-nli, got {self.name!r}"
            )

    @property
    def address(self) -> str:
        """Its address for a browser."""
        from huggingface_hub.constants import ENDPOINT, REPO_TYPES_URL_PREFIXES

        return f"{ENDPOINT}/{REPO_TYPES_URL_PREFIXES.get(self.kind, '')}{self.name}"

    def call(self, doing: str, method: Callable[..., Any], **options: Any) -> Any:
        """Call a repeatable method of `hub_api` on it, as `call_hub` does."""
        return call_hub(doing, method, self.name, repo_type=self.kind, **options)

    def look(self) -> tuple[bool, dict[str, str]] | None:
        """Read whether it is private, and its branches and tags with their commits.

        None if it does not exist, or is not visible to you.
        """
        from huggingface_hub.errors import RepositoryNotFoundError

        doing = f"looking at {self.name}"
        info = self.call(doing, hub_api().repo_info, absent=RepositoryNotFoundError)
        if info is None:
            return None
        refs = self.call(doing, hub_api().list_repo_refs)
        commits = {ref.name: ref.target_commit for ref in (*refs.tags, *refs.branches)}
        return bool(info.private), {MAIN: str(info.sha)} | commits

    def commit_of(self, revision: str) -> str:
        """Find the commit of a branch or a tag."""
        doing = f"looking at {self.name}"
        return str(self.call(doing, hub_api().repo_info, revision=revision).sha)

    def changes(self, content: Content, revision: str | None) -> Changes:
        """Find the changes that give a revision, or an empty repository if None, some content."""
        from huggingface_hub.hf_api import RepoFile
        from huggingface_hub.utils.sha import git_hash

        def is_same(file: CommitOperationAdd, other: RepoFile) -> bool:
            if other.lfs:  # `blob_id` is the pointer's id
                return file.upload_info.sha256.hex() == other.lfs.sha256
            with file.as_file() as stream:
                return git_hash(stream.read()) == other.blob_id

        entries = []
        if revision is not None:
            doing, method = f"listing the files of {self.name}", hub_api().list_repo_tree
            entries = self.call(doing, method, revision=revision, recursive=True)
        present = {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}
        wanted = {file.path_in_repo: file for file in content.files}
        common = sorted(wanted.keys() & present.keys())
        return {
            "added": sorted(wanted.keys() - present.keys()),
            "changed": [path for path in common if not is_same(wanted[path], present[path])],
            "removed": sorted(filter(content.surplus.fullmatch, present.keys() - wanted.keys())),
        }

    def make_equal(self, content: Content, *, parent: str | None = None) -> str:
        """Give a branch some content, by one commit if necessary; return the commit's id.

        The commit's parent is the given one, or the head that is read here: if somebody else
        commits in between, this is an error, and nothing is overwritten.
        """
        from huggingface_hub import CommitOperationDelete

        def attempt() -> str:
            head = self.commit_of(content.branch)
            changes = self.changes(content, head)
            if not any(changes.values()):
                return head
            here = {*changes["added"], *changes["changed"]}
            operations = [
                *map(CommitOperationDelete, changes["removed"]),
                *(file for file in content.files if file.path_in_repo in here),
            ]
            return str(self._commit(content, operations, parent_commit=parent or head).oid)

        return str(call_hub(f"uploading to {self.name}", attempt))

    def propose(self, content: Content, *, description: str) -> str:
        """Open a pull request with some content, or update an open one; return its address."""
        doing = f"opening a pull request in {self.name}"
        own: dict[str, Any] = {"author": call_hub(doing, hub_api().whoami)["name"]}
        own |= {"discussion_type": "pull_request", "discussion_status": "open"}

        def attempt() -> int:
            # Look for your own one with this title, as even a failed attempt may have made one.
            for request in hub_api().get_repo_discussions(self.name, repo_type=self.kind, **own):
                if request.title == content.message:
                    return request.num
            options = {"commit_description": description, "create_pr": True}
            return int(self._commit(content, content.files, **options).pr_num or 0)

        number = call_hub(doing, attempt)
        self.make_equal(replace(content, branch=f"refs/pr/{number}"))
        return f"{self.address}/discussions/{number}"

    def _commit(self, content: Content, operations: Iterable[Any], **options: Any) -> CommitInfo:
        made: CommitInfo = hub_api().create_commit(
            self.name,
            map(copy, operations),  # as huggingface_hub marks what it has committed
            repo_type=self.kind,
            revision=content.branch,
            commit_message=content.message,
            **options,
        )
        return made


# --- Failures ---

_AGAIN: Final = "run the same command again"
_MEANINGS: Final = {
    401: "your token is not accepted; run `hf auth login` again, or set HF_TOKEN anew",
    403: "your token has no right to do this; use one that may write to the repository",
    **dict.fromkeys((409, 412), f"something else changed the repository meanwhile; {_AGAIN}"),
    429: f"too many requests; wait some minutes and {_AGAIN}",
    **dict.fromkeys((500, 502, 503, 504), f"the Hub failed; {_AGAIN} later"),
}
"""Status → what it means, and what to do."""
_WAITS: Final = (0.5, 2.0, 8.0)
"""Seconds before a call is repeated, unless the Hub names a time."""
_QUERY: Final = re.compile(r"(?<=\w)\?\S*=\S*")
"""Pattern of an address's query, from the question mark on."""


class PublishError(Exception):
    """The Hub refuses or fails, or its content is not as expected."""


def call_hub(
    doing: str,
    call: Callable[..., Any],
    *given: Any,
    absent: type[Exception] | None = None,
    **options: Any,
) -> Any:
    """Call; repeat after temporary failures, and turn others into `PublishError`.

    Returns None if exactly `absent` is raised.
    """
    from huggingface_hub.errors import (
        LocalEntryNotFoundError,
        LocalTokenNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    # A download without connection, and a failed upload of a file. Cards that the Hub rejects are
    # ValueErrors.
    wrapped = (LocalEntryNotFoundError, RuntimeError)
    failures = (http_error(), LocalTokenNotFoundError, OfflineModeIsEnabled, *wrapped, ValueError)
    waits = iter(_WAITS)
    while True:
        try:
            result = call(*given, **options)
            return list(result) if isinstance(result, Iterator) else result
        except failures as error:
            if type(error) is absent:
                return None
            cause = (isinstance(error, wrapped) and error.__cause__) or error
            reason, meaning = type(cause).__name__, " ".join(str(cause).split())
            may_pass, asked = False, ""
            if (response := getattr(cause, "response", None)) is not None:
                status, asked = response.status_code, response.headers.get("Retry-After", "")
                reason = f"the Hub answered {status}"
                may_pass = status in (429, 500, 502, 503, 504)
                meaning = _MEANINGS.get(status, "the Hub refuses it")
                if isinstance(cause, RepositoryNotFoundError):
                    meaning = "there is no such repository, or your token may not see it"
                told = " ".join(str(getattr(cause, "server_message", None) or "").split())
                meaning = ": ".join(filter(None, [f"{meaning} ({status})", told[:300]]))
            elif isinstance(cause, OfflineModeIsEnabled):
                meaning = "HF_HUB_OFFLINE is set and forbids every call; unset it to publish"
            elif isinstance(cause, (http_error(), json.JSONDecodeError)):
                # Refused or broken connections and truncated answers may pass, too.
                meaning = f"the connection failed ({reason}: {meaning}); {_AGAIN}"
                may_pass = True
            if not may_pass or (wait := next(waits, None)) is None:
                raise PublishError(f"{doing}: {meaning}") from error
            seconds = min(float(asked), 60) if asked.isdecimal() else wait
            log.warning("%s: %s; trying again in %g s", doing, reason, seconds)
            time.sleep(seconds)


def http_error() -> type[Exception]:
    """Return the base class of the HTTP library's errors, which differs between releases."""
    from huggingface_hub.errors import HfHubHTTPError

    base: type[Exception] = HfHubHTTPError.__bases__[0]
    return base


def refusal(error: BaseException, kind: Literal["model", "data set"], name: str) -> str | None:
    """Say why the Hub refused a repository, and what to do; None if it did not refuse."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    folder, expected = "", "a folder with a model"
    if kind == "data set":
        folder, expected = "datasets/", "a file or folder that is there"
    meanings = {
        GatedRepoError: f"the {kind} is gated: ask for access at https://huggingface.co/{folder}"
        f"{name}, then log in with hf auth login",
        RepositoryNotFoundError: f"there is no such {kind} on the Hub, or it is private: check the "
        "id, and log in with hf auth login if it is yours",
        RevisionNotFoundError: f"the {kind} on the Hub has no such revision",
        HFValidationError: f"expected {expected}, or an id on the Hub such as org/name",
    }
    return next((words for known, words in meanings.items() if isinstance(error, known)), None)
