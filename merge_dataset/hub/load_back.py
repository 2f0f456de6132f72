"""Loading back what was published, in a process with empty caches, as on another machine.

`python -m merge_dataset.hub.load_back CHECK ARGUMENT …` prints the result of a check as JSON.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

_LONGEST: Final = 500
"""Most characters of an error's text, as `datasets` may list all its suffixes."""

_CACHE_OR_OFFLINE: Final = re.compile(r"(HF|HUGGINGFACE)_\w*(CACHE|OFFLINE)")


def load_back(check: str, *arguments: str) -> dict[str, Any]:
    """Run a check of `CHECKS` with empty caches and your token; raise PublishError if it fails."""
    from huggingface_hub.constants import HF_TOKEN_PATH

    from merge_dataset.hub.repository import PublishError

    kept = {k: v for k, v in os.environ.items() if _CACHE_OR_OFFLINE.fullmatch(k) is None}
    packages = Path(__file__).resolve().parents[2]
    paths = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory(prefix="merge-nli-verify-") as home:
        done = subprocess.run(
            [sys.executable, "-m", __name__, check, *arguments],
            cwd=home,
            env=kept
            | {
                "HF_HOME": str(Path(home) / "hf"),
                # Otherwise the token would be looked up in the new home.
                "HF_TOKEN_PATH": str(HF_TOKEN_PATH),
                "HF_HUB_DISABLE_PROGRESS_BARS": "1",
                "HF_UPDATE_DOWNLOAD_COUNTS": "0",  # do not count checks as uses of the metric
                "PYTHONPATH": os.pathsep.join(paths),
            },
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        line = lines[-1]
        raise PublishError(line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


# --- In the new process ---


def check_published_dataset(
    repository: str, folder: str, revision: str
) -> dict[str, dict[str, dict[str, int]]]:
    """Load every configuration, compare it with the folder, and count rows by split."""
    import datasets

    from merge_dataset.files import read_row_groups
    from merge_dataset.layout import all_configurations, format_in, split_files
    from merge_dataset.schema import arrow_schema, features

    root = Path(folder)
    rows: dict[str, dict[str, int]] = {}
    for config in all_configurations(root):
        loaded = datasets.load_dataset(repository, config, revision=revision)
        wanted, schema = split_files(root, config), arrow_schema(format_in(root, config))
        if set(loaded) != set(wanted):
            raise ValueError(
                f"{config}: expected the splits {sorted(wanted)}, got {sorted(loaded)}"
            )
        rows[config] = {}
        for split, files in wanted.items():
            where, expected = f"{config}, split {split}", features(format_in(root, config))
            if loaded[split].features != expected:
                got = loaded[split].features
                raise ValueError(f"{where}: expected the features {expected}, got {got}")
            stored, start = loaded[split].with_format("arrow"), 0
            for want in (table for file in files for table in read_row_groups(root / file)):
                end = start + len(want)
                if end > len(stored) or not stored[start:end].cast(schema).equals(
                    want.cast(schema)
                ):
                    raise ValueError(f"{where}: expected the rows of {files}, got others")
                start = end
            if start != len(stored):
                raise ValueError(f"{where}: expected {start:,} rows, got {len(stored):,}")
            rows[config][split] = start
    return {"rows": rows}


def check_metric(name: str, example: str, _: str) -> dict[str, Any]:
    """Compute an example by the metric that `evaluate` loads by name; return its figures."""
    import evaluate

    wanted = json.loads(example)
    result = json.loads(json.dumps(evaluate.load(name).compute(**wanted["arguments"])))
    figures = {key: result.get(key) for key in wanted["figures"]}
    if figures != wanted["figures"]:
        raise ValueError(f"expected {wanted['figures']}, got {figures}")
    if result != wanted["result"]:
        raise ValueError("expected the figures of this version, got those of another")
    return {"figures": figures}


CHECKS: Final[Mapping[str, Callable[[str, str, str], dict[str, Any]]]] = {
    "dataset": check_published_dataset,
    "space": check_metric,
}
"""Kind of repository → check of it, by its name, folder or example, and revision."""


def main() -> None:
    """Run a check and print its result; on errors exit with one line."""
    try:
        result = CHECKS[sys.argv[1]](*sys.argv[2:])
    except Exception as error:  # loading may raise anything: the caller shows this one line
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
