"""Flat files of a dataset's splits: JSON lines and CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from merge_dataset.schema import SPLITS, format_of
from merge_metric.exports.folders import configurations_of, new_folder, read_split
from merge_metric.exports.registry import (
    FILES,
    Configs,
    Exported,
    Folder,
    Out,
    Overwrite,
    export,
    exported_files,
)

if TYPE_CHECKING:
    import pyarrow as pa

FlatFormat = Literal["jsonl", "csv"]


@export("jsonl", panel=FILES)
def jsonl(
    folder: Folder = Path("merge-nli"),
    out: Out = Path("merge-nli-jsonl"),
    config: Configs = None,
    overwrite: Overwrite = False,
) -> Exported:
    """Each split of each configuration as JSON lines, labels as names.

    \b
    Examples:
      merge-nli export jsonl merge-nli --config snli_nouns --out flat
    """
    written = export_flat(folder, out, "jsonl", config or (), overwrite=overwrite)
    return exported_files(out, written, loader="json")


@export("csv", panel=FILES)
def csv_files(
    folder: Folder = Path("merge-nli"),
    out: Out = Path("merge-nli-csv"),
    config: Configs = None,
    overwrite: Overwrite = False,
) -> Exported:
    """Each split of each configuration as CSV, labels as names and lists as JSON.

    \b
    Examples:
      merge-nli export csv merge-nli --config snli_nouns --out flat
    """
    written = export_flat(folder, out, "csv", config or (), overwrite=overwrite)
    return exported_files(out, written, loader="csv")


def export_flat(
    folder: Path,
    out: Path,
    output: FlatFormat,
    configs: Sequence[str] = (),
    *,
    overwrite: bool = False,
) -> dict[str, dict[str, int]]:
    """Write `<configuration>/<split>.jsonl` or `.csv` into a new folder.

    Labels are written as names, nulls as null or as an empty cell, and lists in CSV as JSON.

    Args:
        folder: The dataset folder.
        out: The folder to write.
        output: The kind of file.
        configs: Configurations; by default all.
        overwrite: Replace an earlier export.

    Returns:
        File, relative to `out` → rows, by configuration.

    Raises:
        FileExistsError: `out` holds something.
        NotADirectoryError: there is no such dataset folder.
        ValueError: it is not a dataset folder, or lacks a configuration.
    """
    chosen = configurations_of(folder, configs)
    description = {"export": output, "dataset": str(folder.resolve()), "configurations": chosen}
    written: dict[str, dict[str, int]] = {}
    with new_folder(out, description, overwrite=overwrite) as partial:
        for config in chosen:
            (partial / config).mkdir()
            files = {split: f"{config}/{split}.{output}" for split in SPLITS}
            written[config] = {
                name: _WRITERS[output](partial / name, read_split(folder, config, split))
                for split, name in files.items()
            }
    return written


def write_jsonl(path: Path, tables: Iterable[pa.Table]) -> int:
    """Write rows as JSON lines, and return their number."""
    count = 0
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for table in tables:
            for row in plain_rows(table):
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
                count += 1
    return count


def write_csv(path: Path, tables: Iterable[pa.Table]) -> int:
    """Write rows as CSV with a header, and return their number."""
    count = 0
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        for number, table in enumerate(tables):
            if not number:
                writer.writerow(table.column_names)
            rows = plain_rows(table)
            writer.writerows([_cell(value) for value in row.values()] for row in rows)
            count += len(rows)
    return count


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Convert rows: labels to names, and float32 numbers to their shortest exact form."""
    import numpy as np
    import pyarrow as pa

    rows: list[dict[str, Any]] = table.to_pylist()
    labels = format_of(table.schema).labels
    numbers = [field.name for field in table.schema if pa.types.is_float32(field.type)]
    for row in rows:
        row["label"] = labels[row["label"]]
        if row["annotator_labels"] is not None:
            row["annotator_labels"] = [labels[label] for label in row["annotator_labels"]]
        for name in numbers:
            if row[name] is not None:
                row[name] = float(str(np.float32(row[name])))
    return rows


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


_WRITERS: Final[dict[FlatFormat, Callable[[Path, Iterable[pa.Table]], int]]] = {
    "jsonl": write_jsonl,
    "csv": write_csv,
}
