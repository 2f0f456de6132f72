"""Predictions files → models: several files of one name are parts of one model's answers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merge_metric.runs.coverage import Coverage, cover, some
from merge_metric.runs.metadata import read_metadata
from merge_metric.runs.predictions import PROBABILITIES, read_predictions
from merge_metric.runs.run import Source, parse_source

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A model's predictions, and what is known of it."""

    name: str
    files: tuple[str, ...]
    """Names of the predictions files, for example one per source."""
    description: Mapping[str, Any]
    """What the first file says of the model; empty where it says nothing."""
    predictions: pa.Table
    coverage: Coverage


def read_models(arguments: Sequence[str], folder: Path) -> list[Model]:
    """Read the predictions of one or several models.

    Args:
        arguments: Predictions files, each as FILE or NAME=FILE. Without a name, the model's
            own from the file's description is taken, else the file's name without suffix.
        folder: The dataset folder.

    Returns:
        Models in the order in which they are first named.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a file is unusable, or two of the same name answer the same problems.
    """
    sources: dict[str, list[Source]] = {}
    for argument in arguments:
        source = parse_source(argument)
        if source.dataset is not None:
            raise ValueError(
                f"expected FILE or NAME=FILE, got {argument!r}: "
                "a report is about one dataset folder"
            )
        sources.setdefault(source.model, []).append(source)
    return [_read(name, parts, folder) for name, parts in sources.items()]


def _read(name: str, sources: Sequence[Source], folder: Path) -> Model:
    paths = [source.path for source in sources]
    predictions = _joined(name, paths, [read_predictions(path, folder) for path in paths])
    try:
        coverage = cover(predictions, folder)
    except ValueError as error:
        raise ValueError(f"{', '.join(map(str, paths))}: {error}") from error
    return Model(
        name=name,
        files=tuple(path.name for path in paths),
        description=read_metadata(paths[0]),
        predictions=predictions,
        coverage=coverage,
    )


def _joined(name: str, paths: Sequence[Path], tables: Sequence[pa.Table]) -> pa.Table:
    """One table of several that answer different problems.

    Only a seed may stand in several, as those of replacements and of paraphrases have some in
    common; what the first file says of it counts.
    """
    if len(tables) == 1:
        return tables[0]
    if not all(PROBABILITIES in table.column_names for table in tables):
        tables = [
            table.drop_columns([PROBABILITIES]) if PROBABILITIES in table.column_names else table
            for table in tables
        ]
    whole = pa.concat_tables(tables).combine_chunks()
    ids = whole["variant_id"].combine_chunks()
    _, first, of_row = np.unique(
        ids.dictionary_encode().indices.to_numpy(), return_index=True, return_inverse=True
    )
    again = first[of_row] != np.arange(len(whole))
    is_variant = pc.not_equal(ids, whole["seed_id"].combine_chunks()).to_numpy(zero_copy_only=False)
    prediction = whole["prediction"].to_numpy()
    wrong = again & (is_variant | (prediction != prediction[first[of_row]]))
    if wrong.any():
        twice = ids.filter(pa.array(wrong)).unique()
        raise ValueError(
            f"{name}: expected every problem once in {', '.join(map(str, paths))}, or seeds that "
            f"are answered alike, got {len(twice):,} several times: {some(twice)}; if these are "
            f"different models, give each a name: NAME=FILE"
        )
    return whole.filter(pa.array(~again))
