"""One URL that answers JSON with JSON: repeated attempts, and errors that say what happened."""

from __future__ import annotations

import json
import logging
import random
import threading
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    import httpx

_MAY_PASS: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses after which it is worth to ask again."""
_HINTS: Final = {
    400: "the prompt may be too long, or the server may not know one of the settings",
    401: "name the environment variable that holds the key with --api-key-env",
    403: "name the environment variable that holds the key with --api-key-env",
    404: "check the base URL, which mostly ends in /v1, and the model's name",
}
_LONGEST_WAIT: Final = 60.0
"""Seconds."""
_SHOWN: Final = 300
"""Characters of an answer that messages show."""

log = logging.getLogger(__name__)


class Endpoint:
    """A URL to post to, from several threads at a time."""

    def __init__(
        self,
        base_url: str,
        path: str,
        *,
        key: str | None,
        connections: int,
        timeout: float,
        retries: int,
        backoff: float,
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            base_url: A server's URL, such as `http://localhost:8000/v1`; its query stays.
            path: Where to post, from there.
            key: Sent as a bearer token, and nowhere shown.
            connections: Most connections at a time.
            timeout: Seconds without a byte after which an attempt counts as broken.
            retries: Attempts after the first.
            backoff: Seconds before the second attempt, doubled for each further one, at
                most a minute; a server's own `Retry-After` comes first.

        Raises:
            ValueError: not a URL of http or https.
        """
        import httpx

        try:
            parsed = httpx.URL(base_url)
        except httpx.InvalidURL as error:
            raise ValueError(f"expected a URL like http://localhost:8000/v1: {error}") from error
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise ValueError(f"expected a URL like http://localhost:8000/v1, got {base_url!r}")
        parsed = parsed.copy_with(path=f"{parsed.path.rstrip('/')}/{path}")
        self.name = str(parsed.copy_with(username=None, password=None, query=None))
        """The URL without what could be a secret."""
        self._url, self._key = parsed, key
        self._retries, self._backoff = retries, backoff
        self._stopped = threading.Event()
        self._settings: dict[str, Any] = {
            "headers": {"Authorization": f"Bearer {key}"} if key else {},
            "timeout": timeout,
            "limits": httpx.Limits(max_connections=connections),
        }
        self._client: httpx.Client | None = None

    def __enter__(self) -> Self:
        """Open the connections, as needed, for the posts to come."""
        import httpx

        self._stopped.clear()
        self._client = httpx.Client(**self._settings)
        return self

    def __exit__(self, *_: object) -> None:
        """Close them."""
        self.stop()
        if self._client is not None:
            self._client.close()
            self._client = None

    def stop(self) -> None:
        """Let no thread wait for another attempt."""
        self._stopped.set()

    def post(self, payload: dict[str, Any]) -> Any:
        """The answer to a JSON document, itself JSON; inside a `with` of this endpoint.

        Raises:
            ValueError: the server refused, or its answer is no JSON.
            ConnectionError: no attempt succeeded.
        """
        import httpx

        if self._client is None:
            raise RuntimeError("expected a post inside a with statement of the endpoint")
        for attempt in range(self._retries + 1):
            delay = min(self._backoff * 2.0**attempt, _LONGEST_WAIT) * random.uniform(0.8, 1.2)
            try:
                response = self._client.post(self._url, json=payload)
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if response.is_success:
                    return self._json(response)
                problem = f"HTTP {response.status_code}: {self._shown(response)}"
                if response.status_code not in _MAY_PASS:
                    hint = _HINTS.get(response.status_code)
                    raise ValueError(
                        f"{self.name}: expected an answer, got {problem}"
                        + (f": {hint}" if hint else "")
                    )
                delay = _retry_after(response) or delay
            if attempt < self._retries:
                log.info("%s: %s; asking again in %.1f s", self.name, problem, delay)
                if self._stopped.wait(delay):
                    break
        raise ConnectionError(
            f"{self.name}: expected an answer, got none in {attempt + 1} attempts; the last one "
            f"ended in {problem}"
        )

    def _json(self, response: httpx.Response) -> Any:
        try:
            return response.json()
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{self.name}: expected JSON, got {self._shown(response)!r}: {error}"
            ) from error

    def _shown(self, response: httpx.Response) -> str:
        """The beginning of an answer, on one line, without the key should it be in there."""
        text = " ".join(response.text.split())
        if self._key:
            text = text.replace(self._key, "***")
        return text[:_SHOWN] or response.reason_phrase


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds that the server asks to wait, unless it gives a date."""
    try:
        seconds = float(response.headers.get("Retry-After", ""))
    except ValueError:
        return None
    return min(max(seconds, 0.0), _LONGEST_WAIT)
