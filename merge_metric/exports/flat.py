"""Flat files of a dataset: each split, or each random subsample, as JSON lines, CSV or Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from merge_dataset.commands.command_line import ForSpreadsheets
from merge_dataset.files import write_tables
from merge_dataset.schema import SPLITS, format_of
from merge_metric.exports.registry import FILES, Exported, Out, export, new_folder, read_split, tell

if TYPE_CHECKING:
    import pyarrow as pa


@export("jsonl", panel=FILES)
def export_jsonl(exported: Exported, out: Out = Path("merge-nli-jsonl")) -> None:
    """Each split of each configuration as JSON lines, labels as names.

    \b
    Examples:
      merge-nli export jsonl merge-nli --config snli_nouns --out flat
    """
    _export("jsonl", ".jsonl", exported, out)


@export("csv", panel=FILES)
def export_csv(
    exported: Exported, out: Out = Path("merge-nli-csv"), for_spreadsheets: ForSpreadsheets = False
) -> None:
    """Each split of each configuration as CSV, labels as names and lists as JSON.

    Texts stay as they are, for programs; spreadsheets run those that begin like a formula.

    \b
    Examples:
      merge-nli export csv merge-nli --config snli_nouns --for-spreadsheets
    """
    _export("csv", ".csv", exported, out, for_spreadsheets=for_spreadsheets)


@export("mini-datasets", panel=FILES)
def export_mini_datasets(exported: Exported, out: Out = Path("merge-nli-mini")) -> None:
    """The random subsamples as data sets of their own, a file each.

    Ten per configuration, unless the recipe says otherwise, and the seeds beside them.

    \b
    Examples:
      merge-nli export mini-datasets merge-nli --config snli_nouns
    """
    _export("mini-datasets", ".parquet", exported, out)


def _export(
    name: str, suffix: str, exported: Exported, out: Path, *, for_spreadsheets: bool = False
) -> None:
    folder, chosen = exported.folder, exported.configurations()
    about = {"export": name, "dataset": exported.place(seen_from=out)}
    description = {**about, "configurations": chosen}
    files: dict[str, int] = {}
    with new_folder(out, description, overwrite=exported.overwrite) as partial:
        for config in chosen:
            (partial / config).mkdir()
            parts = ((split, read_split(folder, config, split)) for split in SPLITS)
            for part, tables in _subsamples(folder, config) if suffix == ".parquet" else parts:
                file = f"{config}/{part}{suffix}"
                path = partial / file
                files[file] = write_file(path, tables, for_spreadsheets=for_spreadsheets)
    shown = "\n".join(f"  {name}: {rows:,} rows" for name, rows in files.items())
    last = out / list(files)[-1]
    builder = "json" if last.suffix == ".jsonl" else last.suffix[1:]
    load = f"load_dataset('{builder}', data_files='{last}')"
    hint = f'python -c "from datasets import load_dataset; print({load})"'
    tell(exported.output, out, {"files": files}, f"{out}:\n{shown}", hint)


def _subsamples(folder: Path, config: str) -> Iterator[tuple[str, Iterable[pa.Table]]]:
    """Make a file of the seeds, and one per subsample of variants; subsamples may overlap."""
    import pyarrow.compute as pc

    def variants(number: int) -> Iterator[pa.Table]:
        for table in read_split(folder, config, "variants"):
            column = table["subsamples"].combine_chunks()
            holds = pc.equal(pc.list_flatten(column), number)
            yield table.take(pc.list_parent_indices(column).filter(holds).unique())

    yield "seeds", read_split(folder, config, "seeds")
    tables = read_split(folder, config, "variants")
    for number in sorted({n for t in tables for n in pc.list_flatten(t["subsamples"]).to_pylist()}):
        yield f"mini-{number:02}", variants(number)


def write_file(path: Path, tables: Iterable[pa.Table], *, for_spreadsheets: bool = False) -> int:
    """Write rows as JSON lines, CSV with a header, or Parquet, and return their number.

    In text, labels are names, and float32 numbers the shortest decimals that are exact.
    """
    import numpy as np
    import pyarrow as pa

    from merge_dataset.redaction import no_formula

    if path.suffix == ".parquet":
        return write_tables(path, tables)
    count = 0
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        for number, table in enumerate(tables):
            if path.suffix == ".csv" and not number:
                writer.writerow(table.column_names)
            labels, count = format_of(table.schema).labels, count + len(table)
            numbers = [field.name for field in table.schema if pa.types.is_float32(field.type)]
            for row in table.to_pylist():
                row["label"] = labels[row["label"]]
                if row["annotator_labels"] is not None:
                    row["annotator_labels"] = [labels[label] for label in row["annotator_labels"]]
                for name in numbers:
                    if row[name] is not None:
                        row[name] = float(str(np.float32(row[name])))
                if path.suffix == ".jsonl":
                    stream.write(json.dumps(row, ensure_ascii=False) + "\n")
                    continue
                cells = [
                    json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
                    for value in row.values()
                ]
                marked = (no_formula(cell) if isinstance(cell, str) else cell for cell in cells)
                writer.writerow(marked if for_spreadsheets else cells)
    return count
