"""Check tasks and an export by Label Studio's own code; FOLDER/result.json is its JSON-MIN."""

import json
import sys
from pathlib import Path


def main(config: str, tasks: str, export: str, folder: str) -> dict[str, object]:
    from label_studio_sdk.converter import Converter
    from label_studio_sdk.label_interface import LabelInterface

    text = Path(config).read_text(encoding="utf-8")
    interface = LabelInterface(text)
    interface.validate()
    for task in json.loads(Path(tasks).read_text(encoding="utf-8")):
        assert interface.validate_task(task), task
    for task in json.loads(Path(export).read_text(encoding="utf-8")):
        for annotation in task["annotations"]:
            assert interface.validate_annotation(annotation), annotation
    Converter(text, project_dir=folder).convert_to_json_min(export, folder, is_dir=False)
    return {
        "controls": [control.name for control in interface.controls],
        "objects": [item.name for item in interface.objects],
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
