"""Runs a module with empty caches, as on another machine, to see what the Hub really holds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from merge_dataset.hub.errors import PublishError

_PACKAGES: Final = Path(__file__).resolve().parents[2]
"""The folder that holds our packages."""

_LONGEST: Final = 500
"""Characters of an error; those of `datasets` may list every suffix that it knows."""

_CACHE_OR_OFFLINE: Final = re.compile(r"(HF|HUGGINGFACE)_\w*(CACHE|OFFLINE)")


def run_fresh(module: str, *arguments: str) -> str:
    """Run one of our modules in an empty working directory, with caches of its own.

    It may load what you may: huggingface_hub finds your token there too.

    Returns:
        What it printed.

    Raises:
        PublishError: it failed, with its last line of errors.
    """
    with tempfile.TemporaryDirectory(prefix="merge-nli-verify-") as home:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=home,
            env=fresh_environment(Path(home) / "hf"),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        line = lines[-1]
        raise PublishError(line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …")
    return done.stdout


def fresh_environment(home: Path) -> dict[str, str]:
    """This process's environment, but for caches, which are in `home`, and offline modes."""
    from huggingface_hub.constants import HF_TOKEN_PATH

    kept = {k: v for k, v in os.environ.items() if _CACHE_OR_OFFLINE.fullmatch(k) is None}
    paths = [str(_PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | {
        "HF_HOME": str(home),
        # Else it would be looked for in the new home.
        "HF_TOKEN_PATH": str(HF_TOKEN_PATH),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",  # a check is no use of the metric
        "PYTHONPATH": os.pathsep.join(paths),
    }
