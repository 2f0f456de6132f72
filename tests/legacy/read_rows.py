"""Print the rows that `datasets` loads: `read_rows.py FOLDER [script]`; scripts run before 4."""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[2] / "merge_dataset" / "merge_nli.py"


def main(folder: Path, *, by_script: bool) -> dict[str, Any]:
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
