"""Where a model runs, and what identifies its files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def resolve_device(device: str) -> str:
    """`auto` → the best device there is; anything else must be a torch device.

    Raises:
        ValueError: torch knows no such device, or it is not there.
    """
    import torch

    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device: expected 'auto', 'cpu' or a device torch can use, got {device!r}: {error}"
        ) from error
    return device


def digest_of_files(paths: Iterable[Path]) -> str:
    """Digest of files' names and contents, in whatever order they come."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        with path.open("rb") as file:
            digest.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def hub_commit(model: Any, source: str, revision: str, name: str) -> str:
    """The commit on the Hub that a model was loaded from.

    Args:
        model: As transformers loaded it.
        source: Its id on the Hub.
        revision: What was asked for; "" for the newest.
        name: A file that was loaded; where it lies in the cache tells the commit where the
            model does not, as with GGUF files.
    """
    if commit := getattr(model.config, "_commit_hash", None):
        return str(commit)
    from huggingface_hub import try_to_load_from_cache

    cached = str(try_to_load_from_cache(source, name, revision=revision or None))
    found = re.search(r"snapshots[/\\]([0-9a-f]{40})[/\\]", cached)
    return found[1] if found else revision or "unknown"
