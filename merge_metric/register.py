"""Registration of the metric: `evaluate.load("seed_variant_accuracy")` works offline."""

import ast
import hashlib
import os
import time
from pathlib import Path
from typing import Final

from merge_dataset.files import atomic_folder, exclusive, naming, remove

METRIC_NAME: Final = "seed_variant_accuracy"
SPACE: Final = Path(__file__).with_name(METRIC_NAME)
"""The folder that is the metric's Space."""


def register_metric(modules_cache: str | Path | None = None, *, wait: bool = True) -> Path:
    """Copy the metric into the module cache of `evaluate`; each command of `merge-nli` does.

    Where the Hub has no metric of that name, or cannot be reached, `evaluate.load` falls back to
    this cache and takes the entry modified last. So the version registered last is the one that
    loads; registering the same version again only marks it so.

    Args:
        modules_cache: The cache; by default that of `evaluate`, which HF_MODULES_CACHE or
            HF_HOME move.
        wait: Wait for another process that registers; else raise.

    Returns:
        The folder of the entry.

    Raises:
        BlockingIOError: another process registers, and this one is not to wait.
    """
    given = None if modules_cache is None else Path(modules_cache)
    cache = given or default_modules_cache()
    # As if it came from evaluate-metric/, the Hub's organisation for names without an owner.
    entries = cache / "evaluate_modules" / "metrics" / f"evaluate-metric--{METRIC_NAME}"
    entries.mkdir(parents=True, exist_ok=True)
    for package in (entries, entries.parent, entries.parent.parent):
        (package / "__init__.py").touch()
    files = {name: (SPACE / name).read_bytes() for name in module_files()}
    digest = hashlib.sha256()  # `evaluate` recognises an entry by 64 hexadecimal digits
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    entry = entries / digest.hexdigest()
    lock = entries.with_name(f".{entries.name}.lock")
    with exclusive(lock, f"{entries}: another command is registering the metric", wait=wait):
        written = [entry / name for name in files]
        if not all(path.is_file() and path.read_bytes() == files[path.name] for path in written):
            # Written under a temporary name, then moved; a damaged entry may be replaced.
            with naming(entry), atomic_folder(entry) as scratch:
                for name, content in files.items():
                    (scratch / name).write_bytes(content)
        latest = time.time()  # evaluate takes the newest; folders without the script would hide it
        for other in entry.parent.iterdir():
            script = other / f"{METRIC_NAME}.py"
            if len(other.name) != len(entry.name) or other == entry:
                continue
            if script.is_file():
                latest = max(latest, script.stat().st_mtime + 1)
            else:
                remove(other)
        os.utime(entry / f"{METRIC_NAME}.py", (latest, latest))
    return entry


def default_modules_cache() -> Path:
    """Find the module cache of `evaluate` by the rule of `evaluate.config`, slow to import."""
    cache_home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("HF_HOME", f"{cache_home}/huggingface")
    return Path(os.environ.get("HF_MODULES_CACHE", Path(home).expanduser() / "modules"))


def module_files() -> list[str]:
    """List the files that `evaluate` needs: the script and the siblings that it imports."""
    script = ast.parse((SPACE / f"{METRIC_NAME}.py").read_text(encoding="utf-8"))
    siblings = [n.module for n in script.body if isinstance(n, ast.ImportFrom) and n.level == 1]
    return ["__init__.py", f"{METRIC_NAME}.py", *(f"{module}.py" for module in siblings)]
