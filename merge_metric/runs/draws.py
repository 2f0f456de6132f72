"""Digests of a dataset's draw: which variants its files have, and in which subsamples.

Predictions remember them, as the same texts with other `subsamples` give other figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from merge_dataset.engine import connect
from merge_dataset.files import read_schema
from merge_metric.runs.coverage import read_batches_of
from merge_metric.runs.relations import fetch
from merge_metric.runs.texts import hex_of

DRAWS: Final = "draws"
"""Key in the description of problems: file of variants → digest of its draw."""

_NAMES: Final = ("variant_id", "subsamples")
_SCHEMA: Final = pa.schema(
    [("file", pa.int64()), ("variant_id", pa.string()), ("subsamples", pa.list_(pa.int64()))]
)


def draw_digests(folder: Path, files: Iterable[str]) -> dict[str, str]:
    """Digest the draw of files of variants, whatever the order of their rows.

    Args:
        folder: A dataset folder.
        files: Relative to it; those without subsamples are left out.

    Returns:
        File → eight hexadecimal digits.

    Raises:
        ValueError: a file cannot be read.
    """
    drawn = [file for file in dict.fromkeys(files) if _has_subsamples(folder / file)]

    def batches() -> Iterator[pa.RecordBatch]:
        for number, file in enumerate(drawn):
            for batch in read_batches_of(folder, file, _NAMES):
                columns = [batch[name].cast(_SCHEMA.field(name).type) for name in _NAMES]
                yield pa.record_batch(
                    [pa.array(np.full(len(batch), number)), *columns], schema=_SCHEMA
                )

    with connect() as connection:
        found = fetch(
            connection,
            "SELECT file, sum(md5_number_lower(concat_ws(' ', variant_id, subsamples::VARCHAR)) "
            "% 4294967296)::BIGINT AS total FROM variants GROUP BY file ORDER BY file",
            variants=(_SCHEMA, batches()),
        )
    return {drawn[row["file"]]: hex_of(row["total"]) for row in found.to_pylist()}


def changed_draws(folder: Path, recorded: Any, files: Iterable[str]) -> list[str]:
    """List the files whose draw is another than predictions remember.

    Args:
        folder: A dataset folder.
        recorded: Metadata of predictions under `DRAWS`; what is not known of it is not compared.
        files: Those of interest.
    """
    if not isinstance(recorded, dict):
        return []
    now = draw_digests(folder, (file for file in files if file in recorded))
    return [file for file, digest in now.items() if digest != recorded[file]]


def _has_subsamples(path: Path) -> bool:
    schema = read_schema(path)
    if "subsamples" not in schema.names:
        return False
    kind = schema.field("subsamples").type
    return bool(pa.types.is_list(kind) and pa.types.is_integer(kind.value_type))
