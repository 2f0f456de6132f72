"""Failures of the Hub: those that may pass are tried again, the rest is said in words for users.

`refusal` says why it does not give a repository, for all that read from it.

No message has an address with a query, which could be signed.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from typing import Final, Literal, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")
Kind = Literal["model", "data set"]

_EXPECTED: Final = {"model": "a folder with a model", "data set": "a file or folder that is there"}
_PAGES: Final = {"model": "https://huggingface.co/", "data set": "https://huggingface.co/datasets/"}

_PASSING: Final = (429, 500, 502, 503, 504)
"""Status codes of failures that may pass."""
_WAITS: Final = (0.5, 2.0, 8.0)
"""Seconds before a call is repeated, where the Hub names no time itself."""
_LONGEST_WAIT: Final = 60.0
_LONGEST_MESSAGE: Final = 300
_QUERY: Final = re.compile(r"(?<=\w)\?\S*=\S*")
"""The part of an address from the question mark on."""


class PublishError(Exception):
    """The Hub refuses or fails, or what it holds is not what it should be."""


def call_hub(doing: str, call: Callable[[], T]) -> T:
    """Call, repeat after failures that may pass, and turn the others into `PublishError`."""
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        LocalTokenNotFoundError,
        OfflineModeIsEnabled,
    )

    # The last three: a download that no connection gave, one file's upload that failed, and a card
    # that the Hub does not take.
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
            # A connection that was refused or cut, or half an answer, may pass too.
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
    """Keep what huggingface_hub logs of addresses free of signatures.

    It logs the address of a request that it repeats; that of a large file is signed, and who has
    it may write.
    """
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
    told = f": {quoted[:_LONGEST_MESSAGE]}" if quoted else ""
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
    """Find the base class of all errors of the HTTP library, which differs between releases."""
    from huggingface_hub.errors import HfHubHTTPError

    base: type[Exception] = HfHubHTTPError.__bases__[0]
    return base


def refusal(error: BaseException, kind: Kind, name: str) -> str | None:
    """Say in a line why the Hub does not give a repository, and what to do.

    None where the Hub did not refuse: it could not be asked, or is broken for now.
    """
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
