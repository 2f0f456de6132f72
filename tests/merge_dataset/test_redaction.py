import base64
import logging
from pathlib import Path
from urllib.parse import quote

import pytest

from merge_dataset.commands.command_line import MessageFormatter
from merge_dataset.layout import require_collections
from merge_dataset.redaction import mask_known, mask_urls, spellings


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://me:pass@host/v1", "https://***@host/v1"),
        ("http://KEY@host: refused", "http://***@host: refused"),
        ("https:/me:pass@host/v1", "https:/***@host/v1"),  # as in a path
        ("C:/me@home", None),
        ("a https://x/y?api_key=abc&n=1 b", "a https://x/y?api_key=***&n=1 b"),
        ("https://x/y?X-Amz-Signature=abc", "https://x/y?X-Amz-Signature=***"),
        ("https://x/y?sig=abc#top", "https://x/y?sig=***#top"),
        ("https://x/y?monkey=1&name=key", "https://x/y?monkey=***&name=key"),
        ("https://host/~me@v1", None),
        ("hf-internal-testing/tiny-random-bert@main: no key=value", None),
        ("me@host: token=5", None),
        ("at https://x/y#access_token=abc", "at https://x/y#access_token=***"),
        ("https://x/y?auth=abc&code=d&pwd=e", "https://x/y?auth=***&code=***&pwd=***"),
        ("https://x/bot/sk-a1b2c3d4e5/v1", "https://x/bot/***/v1"),
        ("https://x/hf_AbCdEfGhIj/v1: refused", "https://x/***/v1: refused"),
        ("https://x/a1B2c3D4e5F6g7H8i9J0/v1", "https://x/***/v1"),
        ("https://x/key/abc", "https://x/key/***"),
        ("https://x/3f2504e0-4f89-11d3-9a0c-0305e82c3301/v1", "https://x/***/v1"),
        ("https://x/models/Mistral-7B-Instruct-v03/v1", None),
        ("https://x/deployments/gpt-4o-mini-2024-07-18/chat/completions", None),
        (f"https://x/d/resolve/{'0a' * 20}/README.md", None),
        ("/home/a1B2c3D4e5F6g7H8i9J0/x", None),
    ],
)
def test_urls(text: str, masked: str | None) -> None:
    """Text before an @, and values of keys and tokens, are masked."""
    assert mask_urls(text) == (text if masked is None else masked)


def test_secrets() -> None:
    """Secrets are masked in quotes, JSON, HTML or Base64, in any case; in logs and errors."""
    key = 'a/b"c&D e'
    known = spellings([key, "abc"])
    for spelt in (key, key.upper(), quote(key, safe=""), 'a/b\\"c&D e', "a/b&quot;c&amp;D e"):
        assert mask_known(f"<{spelt}> abc", known) == "<***> abc", spelt
    assert mask_known(base64.b64encode(key.encode()).decode(), known).startswith("***")
    record = logging.LogRecord("x", 20, "f", 1, "at %s", ("http://me:pw@host/",), None)
    assert MessageFormatter("%(message)s").format(record) == "at http://***@host/"
    with pytest.raises(NotADirectoryError) as raised:
        require_collections(Path("https://user:c0ffee@host/v1"))
    assert "https:/***@host/v1: expected a dataset folder or a registered name, found" in str(
        raised.value
    )
