"""Training data of the baselines: hypotheses and labels out of a file of NLI problems."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from merge_dataset import json_lines as jsonl
from merge_dataset.files import digest_of_file
from merge_dataset.schema import LABELS

HYPOTHESIS_COLUMNS: Final = ("hypothesis", "sentence2")
LABEL_COLUMNS: Final = ("label", "gold_label")
"""What the releases of SNLI and MultiNLI, and their copies on the Hub, call them."""

_UNLABELLED: Final = ("-", "", "-1", "None", "hidden")
_SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".csv", ".tsv", ".txt", ".parquet")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class TrainingData:
    """Hypotheses with gold labels."""

    hypotheses: list[str]
    labels: NDArray[np.int64]
    """(n,), positions in `LABELS`."""
    description: dict[str, object]
    """Name and digest of the file, and what was left out."""


def read_training_data(
    path: Path, *, hypothesis_column: str | None = None, label_column: str | None = None
) -> TrainingData:
    """Read the hypotheses and labels of a file; problems without a label are left out.

    Args:
        path: JSON lines, comma- or tab-separated values with a header, or Parquet, by its
            suffix. Labels are names or positions in `LABELS`.
        hypothesis_column: By default one of `HYPOTHESIS_COLUMNS`.
        label_column: By default one of `LABEL_COLUMNS`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be read, lacks a column, has unknown labels or only one.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file of NLI problems, found no file there")
    hypothesis = (hypothesis_column,) if hypothesis_column else HYPOTHESIS_COLUMNS
    label = (label_column,) if label_column else LABEL_COLUMNS
    table = _read(path, hypothesis, label)
    texts = _column(table, hypothesis, path).to_pylist()
    names = [str(value) for value in _column(table, label, path).to_pylist()]
    codes = {name: code for code, name in enumerate(LABELS)}
    codes |= {str(code): code for code in codes.values()}
    if unknown := sorted(set(names) - set(codes) - set(_UNLABELLED)):
        raise ValueError(
            f"{path}: expected the labels {', '.join(LABELS)} or 0, 1, 2, got "
            f"{', '.join(map(repr, unknown[:5]))}"
        )
    kept = [row for row, (text, name) in enumerate(zip(texts, names, strict=True))
            if name in codes and text]  # fmt: skip
    labels = np.array([codes[names[row]] for row in kept], np.int64)
    if len(np.unique(labels)) < 2:
        raise ValueError(f"{path}: expected problems of several labels, got {len(kept)} problems")
    if left_out := len(names) - len(kept):
        log.info("%s: %s problems without a label or hypothesis left out", path, f"{left_out:,}")
    return TrainingData(
        [texts[row] for row in kept],
        labels,
        {
            "file": path.name,
            "sha256": digest_of_file(path),
            "problems": len(kept),
            "left_out": left_out,
        },
    )


def _read(path: Path, hypothesis: Sequence[str], label: Sequence[str]) -> pa.Table:
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        types: dict[str, Sequence[pa.DataType]] = dict.fromkeys(hypothesis, (pa.string(),))
        types |= dict.fromkeys(label, (pa.int64(), pa.string()))
        return jsonl.read(path, types)
    try:
        if path.suffix == ".parquet":
            return pq.ParquetFile(path).read()
        if path.suffix in {".csv", ".tsv", ".txt"}:
            separator = "," if path.suffix == ".csv" else "\t"
            # The releases' tab-separated files have quotation marks as they are.
            quote = '"' if path.suffix == ".csv" else False
            options = pv.ParseOptions(
                delimiter=separator, quote_char=quote, newlines_in_values=bool(quote)
            )
            types = dict.fromkeys((*hypothesis, *label), pa.string())
            return pv.read_csv(
                path,
                parse_options=options,
                convert_options=pv.ConvertOptions(column_types=types, strings_can_be_null=False),
            )
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: could not be read: {error}") from error
    raise ValueError(
        f"{path}: expected a name that ends in {', '.join(_SUFFIXES)}, got {path.suffix!r}"
    )


def _column(table: pa.Table, names: Sequence[str], path: Path) -> pa.ChunkedArray:
    for name in names:
        if name in table.column_names:
            return table[name]
    raise ValueError(
        f"{path}: expected a column {' or '.join(names)}, got "
        f"{', '.join(table.column_names) or 'none of them'}; name it by --hypothesis-column or "
        f"--label-column"
    )
