"""Print as JSON what this environment's `datasets` loads from a dataset folder.

Runs without pytest, so that two environments can be compared: the one of this project,
and one with `datasets` 3, the last that runs loading scripts. Usage:

    python tests/legacy/read_rows.py path/to/merge-nli [script]

The folder must be called `merge-nli`: it is loaded by this name from its parent folder,
without the Hub and with an empty cache. With `script`, the loading script is loaded by
path instead, with the folder as `data_dir`, which only `datasets` before 4 can do; it
knows the sources of the paper and of the demo. Prints configuration → split → rows, and the
label names.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[2] / "merge_dataset" / "merge_nli.py"


def main(folder: Path, *, by_script: bool) -> dict[str, Any]:
    """Rows of every configuration that the folder's card lists."""
    import datasets

    datasets.disable_progress_bars()
    loaded = {}
    names = datasets.get_dataset_config_names(folder.name)
    if by_script:
        known = datasets.get_dataset_config_names(str(SCRIPT), trust_remote_code=True)
        names = [name for name in names if name in known]
    for name in names:
        if by_script:
            options = {"data_dir": folder.name, "trust_remote_code": True}
            data = datasets.load_dataset(str(SCRIPT), name, **options)
        else:
            data = datasets.load_dataset(folder.name, name)
        labels = data["variants"].features["label"].names
        loaded[name] = {split: data[split].to_list() for split in data} | {"labels": labels}
    return loaded


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"HF_HOME": home, "HF_HUB_OFFLINE": "1"}
        os.chdir(target.parent)
        result = main(target, by_script=sys.argv[2:] == ["script"])
    print(json.dumps(result, indent=1, sort_keys=True))
