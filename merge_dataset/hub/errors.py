"""Failures of the Hub: those that may pass are tried again, the rest is said in words for users.

No message has an address with a query, which could be signed.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from typing import Final, TypeVar

from merge_dataset.hub_refusals import http_error

log = logging.getLogger(__name__)

T = TypeVar("T")

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
    """Call, repeat after failures that may pass, and turn the others into words.

    Raises:
        PublishError: it failed for good.
    """
    for wait in (*_WAITS, None):
        try:
            return call()
        except _expected() as error:
            cause = error.__cause__ if isinstance(error, RuntimeError) else error
            if wait is None or not _may_pass(cause):
                raise PublishError(f"{doing}: {_in_words(cause or error)}") from error
            seconds = _asked_to_wait(cause, wait)
            log.warning("%s: %s; trying again in %g s", doing, _reason(cause), seconds)
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


def _expected() -> tuple[type[Exception], ...]:
    """List what calls of huggingface_hub raise for reasons that are not in this program."""
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalTokenNotFoundError,
        OfflineModeIsEnabled,
    )

    # The last two: a card that the Hub does not take, and one file's upload that failed.
    return (
        http_error(),
        HfHubHTTPError,
        LocalTokenNotFoundError,
        OfflineModeIsEnabled,
        ValueError,
        RuntimeError,
    )


def _status(error: BaseException | None) -> int | None:
    response = getattr(error, "response", None)
    return getattr(response, "status_code", None)


def _may_pass(error: BaseException | None) -> bool:
    from huggingface_hub.errors import OfflineModeIsEnabled

    status = _status(error)
    if status is not None:
        return status in _PASSING
    # A connection that was refused or cut, or half an answer.
    passing = (http_error(), json.JSONDecodeError)
    return isinstance(error, passing) and not isinstance(error, OfflineModeIsEnabled)


def _asked_to_wait(error: BaseException | None, otherwise: float) -> float:
    response = getattr(error, "response", None)
    text = response.headers.get("Retry-After", "") if response is not None else ""
    return min(float(text), _LONGEST_WAIT) if text.isdecimal() else otherwise


def _reason(error: BaseException | None) -> str:
    status = _status(error)
    return type(error).__name__ if status is None else f"the Hub answered {status}"


def _in_words(error: BaseException) -> str:
    from huggingface_hub.errors import OfflineModeIsEnabled, RepositoryNotFoundError

    status = _status(error)
    told = _told(error)
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


def _told(error: BaseException) -> str:
    """Quote the server's own message, in one line."""
    response = getattr(error, "response", None)
    header = response.headers.get("X-Error-Message") if response is not None else None
    text = " ".join(str(getattr(error, "server_message", None) or header or "").split())
    return f": {text[:_LONGEST_MESSAGE]}" if text else ""
