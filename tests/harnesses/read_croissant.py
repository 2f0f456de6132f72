"""Print as JSON the records that mlcroissant reads: `read_croissant.py FILE RECORD_SET…`."""

import json
import sys
from typing import Any


def plain(value: Any) -> Any:
    """Convert NumPy's numbers to Python's, and mlcroissant's bytes to text."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [plain(part) for part in value]
    return value.item() if hasattr(value, "item") else value


def main(file: str, names: list[str]) -> dict[str, list[dict[str, Any]]]:
    import mlcroissant

    dataset = mlcroissant.Dataset(jsonld=file)
    issues = dataset.metadata.ctx.issues
    assert not issues.errors
    assert not issues.warnings, issues.warnings
    return {
        name: [
            {key.rpartition("/")[2]: plain(value) for key, value in record.items()}
            for record in dataset.records(name)
        ]
        for name in names
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2:])))
