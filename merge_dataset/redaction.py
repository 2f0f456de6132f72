"""Masking of keys and passwords in texts from a server or a URL, before they are shown."""

import base64
import html
import json
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote, quote_plus

_IN_URLS: Final = (
    r"(\b[a-z][\w+.-]+:/{1,2})[^/\s@?#]+(?=@)",
    r"([?&][\w-]*(?:key|token|secret|passw(?:or)?d|signature|\bsig)=)[^\s\"'&#,;)]+",
)
"""Patterns of secrets in URLs; the part before the secret is kept."""

_ANYWHERE: Final = (
    *_IN_URLS,
    r"(\b(?:bearer|basic)\s+)[\w.~+/=-]{4,}",
    r"((?:api[_-]?key|access[_-]?token|auth[_-]?token|secret|passw(?:or)?d|\btoken"
    r"|\bsignature|\bkey|\bauthorization)[\"']?\s*[=:]\s*[\"']?)"
    r"(?!bearer|basic|\*\*\*)[^\s\"'&,;}]+",
    r"(\b(?:sk|hf)[-_])[\w-]{8,}",
)
_SHORTEST: Final = 4
"""Fewest characters of a secret, as masking shorter ones would mask half of a message."""


def mask_secrets(text: str, known: Sequence[str] = ()) -> str:
    """Mask everything that looks like a key or password, as servers repeat what they received.

    >>> mask_secrets("bad request /v1?api_key=abc&x=1 with Basic dXNlcjpwYXNz")
    'bad request /v1?api_key=***&x=1 with Basic ***'
    >>> mask_secrets('{"token": "abc", "max_tokens": 5}')
    '{"token": "***", "max_tokens": 5}'
    """
    text = mask_known(text, known)
    for pattern in _ANYWHERE:
        text = re.sub(pattern, r"\1***", text, flags=re.IGNORECASE)
    return text


def mask_known(text: str, known: Sequence[str]) -> str:
    """Mask known secrets everywhere in a text, ignoring case."""
    for secret in known:
        text = re.sub(re.escape(secret), "***", text, flags=re.IGNORECASE)
    return text


def mask_urls(text: str) -> str:
    """Mask passwords and keys in URLs given by a user; keep all other words.

    >>> mask_urls("https://user:hunter2@host/v1?key=abc&version=2: no such model")
    'https://***@host/v1?key=***&version=2: no such model'
    """
    for pattern in _IN_URLS if ":/" in text else ():
        text = re.sub(pattern, r"\1***", text, flags=re.IGNORECASE)
    return text


def spellings(secrets: Iterable[str]) -> list[str]:
    """List secrets as they may appear in an address, JSON, HTML or a header; longest first."""
    found = set(secrets)
    for secret in tuple(found):
        found |= {quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1]}
        found |= {html.escape(secret), base64.b64encode(secret.encode()).decode().rstrip("=")}
    return sorted((secret for secret in found if len(secret) >= _SHORTEST), key=len, reverse=True)


class MaskingFormatter(logging.Formatter):
    """Formatter of log messages that masks passwords and keys in URLs."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as the base class does."""
        return mask_urls(super().format(record))
