"""What a Parquet file of predictions, or of problems, says of how it was made."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from merge_metric.runs.predictions import SUFFIXES

METADATA_KEY: Final = b"merge_nli"
"""In the Parquet metadata: a JSON object."""

log = logging.getLogger(__name__)


def read_metadata(path: Path) -> dict[str, Any]:
    """What a file says of its making; empty where there is no file, or it does not say."""
    if path.suffix != ".parquet" or not path.is_file():
        return {}
    try:
        return metadata_of(pq.read_schema(path))
    except (pa.ArrowException, OSError):
        return {}  # reading the file itself will say what is wrong
    except ValueError:
        log.warning("%s: expected a JSON object in its metadata %r", path, METADATA_KEY.decode())
        return {}


def metadata_of(schema: pa.Schema) -> dict[str, Any]:
    """The same of a table's schema.

    Raises:
        ValueError: it is no JSON object.
    """
    value = json.loads((schema.metadata or {}).get(METADATA_KEY, b"{}"))
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {value!r}")
    return value


def with_metadata(table: pa.Table, value: Mapping[str, Any]) -> pa.Table:
    """The table with this as its only metadata."""
    return table.replace_schema_metadata({METADATA_KEY: json.dumps(value, ensure_ascii=False)})


def model_name(path: Path) -> str:
    """What a predictions file says of its model's name, else the file's own name."""
    stem = path.name
    for suffix in SUFFIXES:
        stem = stem.removesuffix(suffix)
    metadata = read_metadata(path)
    name = str(metadata.get("short_name") or metadata.get("name") or "").rstrip("/\\")
    # Where it is a folder of someone's machine, its last part.
    return (Path(name).name if Path(name).is_absolute() else name) or stem
