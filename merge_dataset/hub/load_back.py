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
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from merge_dataset.schema import ProblemFormat

_LONGEST: Final = 500
"""Most characters of an error's text, as `datasets` may list all its suffixes."""

_CACHE_OR_OFFLINE: Final = re.compile(r"(HF|HUGGINGFACE)_\w*(CACHE|OFFLINE)")


def load_back(check: str, *arguments: str) -> dict[str, Any]:
    """Run a check of `CHECKS` with empty caches and your token; raise PublishError if it fails."""
    from merge_dataset.hub.repository import PublishError

    with tempfile.TemporaryDirectory(prefix="merge-nli-verify-") as home:
        done = subprocess.run(
            [sys.executable, "-m", __name__, check, *arguments],
            cwd=home,
            env=fresh_environment(Path(home) / "hf"),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        line = lines[-1]
        raise PublishError(line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def fresh_environment(home: Path) -> dict[str, str]:
    """Copy this process's environment, without offline modes and with caches in `home`."""
    from huggingface_hub.constants import HF_TOKEN_PATH

    kept = {k: v for k, v in os.environ.items() if _CACHE_OR_OFFLINE.fullmatch(k) is None}
    packages = Path(__file__).resolve().parents[2]
    paths = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | {
        "HF_HOME": str(home),
        # Otherwise the token would be looked up in the new home.
        "HF_TOKEN_PATH": str(HF_TOKEN_PATH),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",  # do not count checks as uses of the metric
        "PYTHONPATH": os.pathsep.join(paths),
    }


# --- In the new process ---


def check_published_dataset(
    repository: str, revision: str, folder: str
) -> dict[str, dict[str, int]]:
    """Load every configuration, compare it with the folder, and count rows by split."""
    import datasets

    from merge_dataset.layout import all_configurations, format_in, split_files

    root = Path(folder)
    rows: dict[str, dict[str, int]] = {}
    for config in all_configurations(root):
        loaded = datasets.load_dataset(repository, config, revision=revision)
        expected = split_files(root, config)
        if set(loaded) != set(expected):
            raise ValueError(
                f"{config}: expected the splits {sorted(expected)}, got {sorted(loaded)}"
            )
        rows[config] = {
            split: _compare_rows(
                f"{config}, split {split}", loaded[split], root, files, format_in(root, config)
            )
            for split, files in expected.items()
        }
    return rows


def _compare_rows(
    where: str, loaded: Any, folder: Path, files: list[str], problem_format: ProblemFormat
) -> int:
    """Count the loaded rows; raise ValueError unless all equal the files' rows."""
    from merge_dataset.files import read_row_groups
    from merge_dataset.schema import arrow_schema, features

    if loaded.features != (expected := features(problem_format)):
        raise ValueError(f"{where}: expected the features {expected}, got {loaded.features}")
    schema = arrow_schema(problem_format)
    stored = loaded.with_format("arrow")
    start = 0
    for file in files:
        for want in read_row_groups(folder / file):
            end = start + len(want)
            if end > len(stored):
                raise ValueError(f"{where}: expected more than {len(stored):,} rows, as in {files}")
            got = stored[start:end].cast(schema)
            if not got.equals(want.cast(schema)):
                raise ValueError(f"{where}: expected the rows of {file}, got others")
            start = end
    if start != len(stored):
        raise ValueError(f"{where}: expected {start:,} rows as in {files}, got {len(stored):,}")
    return start


def check_metric(name: str, example: str) -> dict[str, Any]:
    """Compute an example by the metric that `evaluate` loads by name; return its figures."""
    import evaluate

    wanted = json.loads(example)
    result = json.loads(json.dumps(evaluate.load(name).compute(**wanted["arguments"])))
    figures = {key: result.get(key) for key in wanted["figures"]}
    if figures != wanted["figures"]:
        raise ValueError(f"expected {wanted['figures']}, got {figures}")
    if result != wanted["result"]:
        raise ValueError("expected the figures of this version, got those of another")
    return figures


CHECKS: Final[Mapping[str, Callable[..., dict[str, Any]]]] = {
    "dataset": check_published_dataset,
    "metric": check_metric,
}


def main() -> None:
    """Run a check and print its result; on errors exit with one line."""
    check, *arguments = sys.argv[1:]
    try:
        found = CHECKS[check](*arguments)
    except Exception as error:  # loading may raise anything: the caller shows this one line
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
