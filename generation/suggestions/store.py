"""The stores of suggestions: every (model revision, sentence, span) is asked about once, ever."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from generation.records import MaskedQuery, Scores
from generation.suggestions.questions import keys_of
from generation.suggestions.vocabulary import Vocabulary
from merge_dataset.answer_store import AnswerStore
from merge_dataset.files import read_record, write_record

OF_SETTINGS: Final = ("masking", "suggestions_per_occurrence")
"""Settings of the questions that distinguish stores."""
OF_MODEL: Final = ("name", "revision", "architecture", "dtype", "device")
"""Attributes of a model that distinguish stores."""
IDENTITY: Final = ("name", "revision", "architecture", *OF_SETTINGS, "dtype", "device")

_SCHEMA: Final = pa.schema(
    [
        ("original", pa.int32()),
        ("original_logit", pa.float32()),
        ("log_normalizer", pa.float32()),
        ("windowed", pa.bool_()),
        ("tokens", pa.list_(pa.int32())),
        ("logits", pa.list_(pa.float32())),
    ]
)
"""Fields of `Scores`."""


def suggestion_store(root: Path, described: Mapping[str, Any]) -> AnswerStore:
    """Open the store of a model and settings, which a record describes, among others' stores."""
    identity = {name: described[name] for name in IDENTITY}
    return AnswerStore(root, identity, _SCHEMA, redo="merge-nli suggest")


def table_of(scores: Scores) -> pa.Table:
    """Convert scores to rows of a store."""
    columns = {}
    for name in _SCHEMA.names:
        values = getattr(scores, name)
        columns[name] = pa.array(values.ravel())
        if values.ndim > 1:
            starts = pa.array(np.arange(len(values) + 1, dtype=np.int32) * values.shape[1])
            columns[name] = pa.ListArray.from_arrays(starts, columns[name])
    return pa.table(columns, _SCHEMA)


def read_scores(store: AnswerStore, queries: Sequence[MaskedQuery]) -> Scores:
    """Read the answers to questions, in their order."""
    if not queries:
        return Scores.empty(0, 1)
    table = store.read(keys_of(queries))
    columns = {}
    for name in (field.name for field in fields(Scores)):
        column = table[name].combine_chunks()
        is_list = pa.types.is_list(column.type)
        values = (column.flatten() if is_list else column).to_numpy(zero_copy_only=False)
        columns[name] = values.reshape(len(table), -1) if is_list else values
    return Scores(**columns)


def write_vocabulary(store: AnswerStore, vocabulary: Vocabulary) -> None:
    """Write the texts and kinds of a model's token ids beside its suggestions."""
    values = {"texts": vocabulary.texts, "kinds": vocabulary.kinds.tolist()}
    write_record(_vocabulary(store), values)


def stored_vocabulary(store: AnswerStore) -> Vocabulary:
    """Read the texts and kinds of a store's token ids."""
    if not _vocabulary(store).is_file():
        raise FileNotFoundError(
            f"expected the suggestions of a masked LM in {store.folder}, found none; run: "
            "merge-nli suggest"
        )
    remedy = "Run merge-nli suggest again"
    values = read_record(_vocabulary(store), "texts", "kinds", remedy=remedy)
    return Vocabulary(tuple(values["texts"]), np.array(values["kinds"], np.int8))


def _vocabulary(store: AnswerStore) -> Path:
    return store.folder / "vocabulary.json"
