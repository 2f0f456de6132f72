"""Masking of keys and passwords in texts from a server or a URL, before they are shown."""

import base64
import html
import json
import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote, quote_plus

_IN_URLS: Final = (
    r"(\b[a-z][\w+.-]+:/{1,2})[^/\s@?#]+(?=@)",
    r"([?&#][\w-]*(?:key|token|secret|passw(?:or)?d|\bpwd|signature|\bsig|\bauth|\bjwt|credential|"
    r"\bcode)=)[^\s\"'&#,;)]+",
)
"""Patterns of secrets in URLs; the part before the secret is kept."""

_URL: Final = re.compile(r"\b[a-z][\w+.-]+:/{1,2}[^\s\"'<>]+", re.IGNORECASE)
_IN_PATHS: Final = re.compile(
    r"(?<=/)(?:(?:(?<=/key/)|(?<=/token/)|(?<=/secret/)|(?<=/auth/))[^/?#,;:)]+|"
    r"(?:sk|pk|gsk|hf|gh[a-z]|key|token|api|xox[a-z])[-_][\w~-]{8,}|[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}|"
    r"(?!(?:(?<=/resolve/)|(?<=/commit/)|(?<=/blob/)|(?<=/tree/)|(?<=/raw/))[\da-f]{40}\b)"
    r"(?=[a-z_]*\d)(?=[\d_]*[a-z])\w{16,}[\w~-]*)(?=[/?#,;:)]|$)",
    re.IGNORECASE,
)
"""Parts of a URL's path that look like a key: a long one of letters and digits, no revision."""

_ANYWHERE: Final = (
    *_IN_URLS,
    r"(\b(?:bearer|basic)\s+)[\w.~+/=-]{4,}",
    r"((?:api[_-]?key|access[_-]?token|auth[_-]?token|secret|passw(?:or)?d|\btoken"
    r"|\bsignature|\bkey|\bauthorization)[\"']?\s*[=:]\s*[\"']?)"
    r"(?!bearer|basic|\*\*\*)[^\s\"'&,;}]+",
    r"(\b(?:sk|hf)[-_])[\w-]{8,}",
)


def mask_secrets(text: str) -> str:
    """Mask everything that looks like a key or password, as servers repeat what they received.

    >>> mask_secrets("bad request /v1?api_key=abc&x=1 with Basic dXNlcjpwYXNz")
    'bad request /v1?api_key=***&x=1 with Basic ***'
    >>> mask_secrets('{"token": "abc", "max_tokens": 5}')
    '{"token": "***", "max_tokens": 5}'
    """
    text = _mask_paths(text)
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

    >>> mask_urls("https://user:hunter2@host/sk-a1b2c3d4/v1?key=abc&version=2: no such model")
    'https://***@host/***/v1?key=***&version=2: no such model'
    """
    if ":/" not in text:
        return text
    for pattern in _IN_URLS:
        text = re.sub(pattern, r"\1***", text, flags=re.IGNORECASE)
    return _mask_paths(text)


def secrets_in(path: str) -> list[str]:
    """List the parts of a URL's path that look like keys.

    >>> secrets_in("/v1/sk-a1b2c3d4/models/Llama-3.1-8B-Instruct")
    ['sk-a1b2c3d4']
    """
    return _IN_PATHS.findall(path)


def _mask_paths(text: str) -> str:
    return _URL.sub(lambda url: _IN_PATHS.sub("***", url[0]), text)


def spellings(secrets: Iterable[str]) -> list[str]:
    """List secrets as they may appear in an address, JSON, HTML or a header; longest first."""
    forms = set(secrets)
    for secret in tuple(forms):
        forms |= {quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1]}
        forms |= {html.escape(secret), base64.b64encode(secret.encode()).decode().rstrip("=")}
    # Masking shorter ones would mask half of a message.
    return sorted((form for form in forms if len(form) >= 4), key=len, reverse=True)


def no_formula(text: str) -> str:
    """Mark a text so that no spreadsheet takes it for a formula (OWASP, CSV injection).

    >>> no_formula("=HYPERLINK(1)"), no_formula("A girl runs.")
    ("'=HYPERLINK(1)", 'A girl runs.')
    """
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text
