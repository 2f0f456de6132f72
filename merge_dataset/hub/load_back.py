"""Loading back what was published, in a process with empty caches, as on another machine.

`python -m merge_dataset.hub.load_back KIND NAME CONTENT REVISION` prints what was loaded as JSON.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def load_back(kind: str, name: str, content: str, revision: str) -> dict[str, Any]:
    """Load a repository with empty caches and your token; raise PublishError if it is otherwise.

    `content` is a dataset's folder, or an example for the metric of a Space.
    """
    from huggingface_hub.constants import HF_TOKEN_PATH

    from merge_dataset.hub.repository import MAIN, PublishError

    of_caches = r"(HF|HUGGINGFACE)_\w*(CACHE|OFFLINE)"
    kept = {k: v for k, v in os.environ.items() if re.fullmatch(of_caches, k) is None}
    paths = filter(None, [str(Path(__file__).resolve().parents[2]), kept.get("PYTHONPATH")])
    with tempfile.TemporaryDirectory(prefix="merge-nli-verify-") as home:
        done = subprocess.run(
            [sys.executable, "-m", __name__, kind, name, content, revision],
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
        raise PublishError(  # `datasets` may list all its suffixes
            f"{name} at {revision[:12]} does not load as it should: {lines[-1][:500]}\n"
            f"{MAIN} holds it, without a tag; the same command, run again, checks it again."
        )
    return dict(json.loads(done.stdout))


# --- In the new process ---


def check_published_dataset(
    repository: str, folder: str, revision: str
) -> dict[str, dict[str, dict[str, int]]]:
    """Load every configuration, compare it with the folder, and count rows by split."""
    import datasets

    from merge_dataset.files import read_row_groups
    from merge_dataset.layout import all_configurations, format_in, split_files
    from merge_dataset.schema import arrow_schema, features

    root, rows = Path(folder), dict[str, dict[str, int]]()
    for config in all_configurations(root):
        loaded = datasets.load_dataset(repository, config, revision=revision)
        wanted, schema = split_files(root, config), arrow_schema(format_in(root, config))
        expected, rows[config] = features(schema), {}
        for split, stored in loaded.items():
            end, is_same, table = 0, stored.features == expected, stored.with_format("arrow")
            for want in (rows for file in wanted[split] for rows in read_row_groups(root / file)):
                start, end = end, end + len(want)
                is_same = is_same and end <= len(table)
                is_same = is_same and table[start:end].cast(schema).equals(want.cast(schema))
            if not is_same or end != len(table) or {*loaded} != {*wanted}:
                raise ValueError(
                    f"{config}, split {split}: expected the {end:,} rows of {wanted[split]}, with "
                    f"their features, and the splits {[*wanted]}, got {len(table):,} of {[*loaded]}"
                )
            rows[config][split] = end
    return {"rows": rows}


def check_metric(name: str, example: str) -> dict[str, Any]:
    """Compute an example by the metric that `evaluate` loads by name; return its figures."""
    import evaluate

    wanted = json.loads(example)
    result = json.loads(json.dumps(evaluate.load(name).compute(**wanted["arguments"])))
    if result != wanted["result"]:
        other = {name: v for name, v in result.items() if v != wanted["result"].get(name)}
        raise ValueError(f"expected the figures of this version, got {other or 'fewer'}")
    names = ("seed_accuracy", "variant_accuracy", "seed_variant_accuracy")
    return {"figures": {name: result[name] for name in names}}


if __name__ == "__main__":
    kind, name, content, revision = sys.argv[1:]
    try:
        if kind == "dataset":
            result: Any = check_published_dataset(name, content, revision)
        else:
            result = check_metric(name, content)
    except Exception as error:  # loading may raise anything: the caller shows this one line
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
    sys.stdout.write(json.dumps(result))
